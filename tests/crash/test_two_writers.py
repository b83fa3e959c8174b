"""Two processes that would both write to one store: kept apart by the lock, and where it fails, by the fence.

The lock must survive a process that reads its own store directory (copies, tar, grep). Where a second writer comes in
all the same, the first one stops before it acknowledges or overwrites anything, and says why.
"""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StoreError, StoreLocked, WriterFenced
from embermq.model.status import PutStatus
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from tests.crash.numbered import TINY

ROOT = Path(__file__).parents[2]

TRY = """
import sys
from pathlib import Path
from embermq.errors import StoreLocked
from embermq.testing.builder import StoreBuilder
try:
    StoreBuilder(Path(sys.argv[1])).open().close()
except StoreLocked as locked:
    print(locked)
else:
    print("opened")
"""

TRY_AS_JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("refused")
    else:
        print("locked")
"""

# A writer that comes in although the first one is there: from another machine, or after an accident with the lock.
INTRUDE = """
import os, sys
from pathlib import Path
from embermq import Message
from embermq.errors import StoreLocked
from embermq.settings import FlushDisk
from embermq.store.layout import directory
from embermq.testing.builder import StoreBuilder
from tests.crash.numbered import TINY
root = Path(sys.argv[1])
directory.living_writer = lambda files, root: None
print("ready", flush=True)
sys.stdin.readline()
store = None
while store is None:  # The first writer makes the file again as soon as it notices.
    os.unlink(root / "lock")
    try:
        store = StoreBuilder(root, flush=FlushDisk[sys.argv[2]], **TINY).open()
    except StoreLocked:
        pass
with store:
    for n in range(50):
        store.append(Message("t", b"second %d" % n))
        print(n, flush=True)
    sys.stdin.readline()
"""

FORK = """
import os, sys, time
from pathlib import Path
from embermq import Message
from embermq.testing.builder import StoreBuilder
store = StoreBuilder(Path(sys.argv[1])).open()
store.append(Message("t", b"parent"))
if os.fork() == 0:  # Its first line follows what is run after a fork.
    print(os.getpid(), flush=True)
time.sleep(600)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def answer_of(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def running(script: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **TINY)


def bodies(builder: StoreBuilder) -> set[bytes]:
    with builder.open() as store:
        return {message.body for message in store.scan()}


# -- the lock survives its own process ---------------------------------------------------------------------------------


def open_and_close(root: Path) -> None:
    (root / "lock").read_bytes()


def copy(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))


def tar(root: Path) -> None:
    with tarfile.open(root.with_name("copy.tar"), "w") as archive:
        archive.add(root)


@pytest.mark.parametrize("look", [open_and_close, copy, tar], ids=lambda look: look.__name__)
def test_a_process_that_reads_its_own_directory_keeps_the_lock(
    builder: StoreBuilder, look: Callable[[Path], None]
) -> None:
    with builder.open() as store:
        store.append(Message("t", b"first"))
        look(builder.root)
        said = answer_of(TRY, builder.root)
        assert said.startswith(f"{builder.root} is already open for writing by process {os.getpid()} (")
        assert answer_of(TRY_AS_JAVA, builder.root / "lock") == "refused"
        store.append(Message("t", b"second"))
    assert bodies(builder) == {b"first", b"second"}
    assert answer_of(TRY, builder.root) == "opened"


def test_a_copy_of_an_open_store_can_be_opened(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append(Message("t", b"first"))
        store.flush()
        shutil.copytree(builder.root, builder.root.with_name("copy"))
        with StoreBuilder(builder.root.with_name("copy"), **TINY).open() as copied:
            assert [message.body for message in copied.scan()] == [b"first"]
        store.append(Message("t", b"second"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_does_not_keep_the_lock_after_its_parent(builder: StoreBuilder) -> None:
    with running(FORK, builder.root) as parent:
        child = int(line_of(parent))
        try:
            with pytest.raises(StoreLocked) as refused:
                builder.open()
            assert refused.value.holder_pid == parent.pid
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # It lives.
            assert bodies(builder) == {b"parent"}
        finally:
            os.kill(child, signal.SIGKILL)


# -- the lock file goes ------------------------------------------------------------------------------------------------


def test_a_deleted_lock_file_lets_no_second_writer_in(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append(Message("t", b"first"))
        store.engine.services.housekeeping.stop()  # It would make the file again at once.
        (builder.root / "lock").unlink()
        assert f"by process {os.getpid()}" in answer_of(TRY, builder.root)
        with pytest.raises(StoreLocked):
            builder.open()
        assert not (builder.root / "lock").exists()
        store.engine.services.housekeeping.check_writer()
        assert (builder.root / "lock").read_bytes() == b"lock"
        assert sorted(path.name for path in builder.root.glob("lock*")) == ["lock"]
        assert f"by process {os.getpid()}" in answer_of(TRY, builder.root)
        assert answer_of(TRY_AS_JAVA, builder.root / "lock") == "refused"
        store.append(Message("t", b"second"))
    assert bodies(builder) == {b"first", b"second"}


def test_a_replaced_lock_file_is_noticed_within_a_second(builder: StoreBuilder) -> None:
    store = builder.open()
    store.append(Message("t", b"first"))
    (builder.root / "other").write_bytes(b"lock")
    os.replace(builder.root / "other", builder.root / "lock")
    replaced = time.monotonic()
    refused = _append_until_refused(store, set(), lambda: None)
    assert time.monotonic() - replaced < 10  # A second, on a machine with time to spare.
    assert f"{builder.root}/lock was replaced by another file" in str(refused)
    assert f"only one process has {builder.root} open for writing" in str(refused)
    with pytest.raises(WriterFenced):
        store.flush()
    assert b"first" in {message.body for message in store.scan()}  # Reading goes on.
    with pytest.raises(StoreError, match="was not closed cleanly"):
        store.close()
    assert (builder.root / "abort").exists()
    assert b"first" in bodies(builder)


def test_a_closed_descriptor_of_the_lock_is_noticed(builder: StoreBuilder) -> None:
    """As by a library that closes all descriptors before it goes into the background."""
    store = builder.open()
    lock = os.stat(builder.root / "lock").st_ino
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.stat(f"/proc/self/fd/{name}").st_ino == lock:
                os.close(int(name))
    store.engine.services.housekeeping.check_writer()
    with pytest.raises(WriterFenced, match="this process has closed the descriptor"):
        store.append(Message("t", b"x"))
    with pytest.raises(StoreError):
        store.close()


# -- a second writer comes in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_no_message_is_lost_that_either_of_two_writers_acknowledged(builder: StoreBuilder, flush: FlushDisk) -> None:
    builder = builder.changed(flush=flush)
    store = builder.open()
    acknowledged: set[bytes] = set()
    with running(INTRUDE, builder.root, flush.name) as second:
        assert line_of(second) == "ready"
        refused = _append_until_refused(store, acknowledged, lambda: go_on(second))
        assert str(second.pid) in str(refused) or "lock was" in str(refused)
        assert [line_of(second) for _ in range(50)] == [str(n) for n in range(50)]
        with pytest.raises(WriterFenced):
            store.append(Message("t", b"too late"))
        with pytest.raises(StoreError, match="was not closed cleanly"):
            store.close()
        go_on(second)
        assert second.wait(60) == 0
    assert verify(builder.root).is_sound
    assert len(acknowledged) >= 20
    assert bodies(builder) >= acknowledged | {b"second %d" % n for n in range(50)}


def _append_until_refused(
    store: MessageStore, acknowledged: set[bytes], after_some: Callable[[], None]
) -> WriterFenced:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        body = b"first %d" % len(acknowledged)
        try:
            receipt = store.append(Message("t", body))
        except WriterFenced as refused:
            return refused
        assert receipt.status is PutStatus.PUT_OK
        acknowledged.add(body)
        if len(acknowledged) == 20:
            after_some()
        time.sleep(0.005)
    raise AssertionError("the first writer was never stopped")
