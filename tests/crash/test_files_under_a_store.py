"""Log files that somebody deletes, empties or makes unreadable while the store is running.

Nothing wrong is delivered, everything intact is, appends go on where they can be kept, and the next start tells.
The file in use is another matter: what is appended to a deleted file would be gone at the next start, so appends are
refused as soon as that is noticed; and a file that is cut under its map kills the process: a crash like others.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import AppendRefused, StorePathInvalid
from embermq.files import RealFiles
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from tests.crash import numbered
from tests.crash.kills import ROOT, Child

COUNT = 120
SEGMENT_BYTES = 8192
SECOND = f"{SEGMENT_BYTES:020d}"


def builder(tmp_path: Path, files: FaultyFiles | None = None) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", files=files, flush=FlushDisk.SYNC, **numbered.TINY)


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def halve(path: Path) -> None:
    os.truncate(path, SEGMENT_BYTES // 2)


def zero(path: Path) -> None:
    path.write_bytes(bytes(SEGMENT_BYTES))


def scribble(path: Path) -> None:
    path.write_bytes(b"\xa5" * SEGMENT_BYTES)


def survivors(store: MessageStore) -> list[int]:
    """Numbers outside the second segment."""
    return [numbered.number_of(one.body) for one in store.scan() if one.physical_offset // SEGMENT_BYTES != 1]


def delivered(store: MessageStore) -> set[int]:
    """What consumers get of all queues, each checked against what was sent."""
    found = set()
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            at = store.min_offset(topic, queue_id)
            while at < store.max_offset(topic, queue_id):
                outcome = store.fetch(topic, queue_id, at)
                for one in outcome.messages:
                    n = numbered.number_of(one.body)
                    known = numbered.known(n)
                    assert (one.topic, one.queue_id, one.body) == (known.topic, known.queue_id, known.body)
                    found.add(n)
                assert outcome.next_offset > at
                at = outcome.next_offset
    return found


def delivered_but_for_errors(store: MessageStore, error: int) -> tuple[set[int], int]:
    """What a consumer gets that asks for every offset, and how often it gets this error instead."""
    found, refused = set(), 0
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            for queue_offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
                try:
                    (one,) = store.fetch(topic, queue_id, queue_offset, max_messages=1).messages
                    found.add(numbered.number_of(one.body))
                except StorePathInvalid as problem:
                    refused += os.strerror(error) in str(problem) and SECOND in str(problem)
    return found, refused


@pytest.mark.parametrize("what", [delete, empty, halve, zero, scribble], ids=lambda what: what.__name__)
def test_a_full_log_file(tmp_path: Path, what: Callable[[Path], None]) -> None:
    plan = builder(tmp_path)
    with plan.open() as store:
        end = numbered.append_until(store, 0, COUNT)
        store.wait_for_dispatch()
        intact = survivors(store)
        what(plan.root / "commitlog" / SECOND)
        queued = {n for n in intact if numbered.known(n).queued}
        assert delivered(store) >= queued
        assert set(survivors(store)) >= set(intact)
        end = numbered.append_until(store, end, end + 20)  # Appends go on.
        store.wait_for_dispatch()
    with plan.open() as store:
        reported = store.recovery.damages
        alive = numbered.numbers_in(store)
        assert set(alive) >= {*intact, *range(COUNT, end)}
        assert delivered(store) == {n for n in alive if numbered.known(n).queued}
    assert reported or what in (halve, empty)
    # Keys of what is gone may still lead there; nobody is given anything wrong, and `rebuild --index` drops them.
    assert all(flaw.family == "index" for flaw in verify(plan.root).flaws if flaw.is_fault)


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_a_log_file_that_cannot_be_read(tmp_path: Path, error: int) -> None:
    files = FaultyFiles(RealFiles())
    plan = builder(tmp_path, files)
    with plan.open() as store:
        end = numbered.append_until(store, 0, COUNT)
        store.wait_for_dispatch()
        intact = survivors(store)
        files.fail("pread", path_contains=SECOND, times=None, error=error)
        # A consumer gets an error, not the rest as if nothing was there; one that goes past it gets the rest.
        got, refused = delivered_but_for_errors(store, error)
        assert got == {n for n in intact if numbered.known(n).queued}
        assert refused == len({n for n in range(end) if numbered.known(n).queued} - got)
        end = numbered.append_until(store, end, end + 20)
        files.heal()
        numbered.check(store, range(end))  # It was only unreadable: all of it is back.
    with plan.open() as store:
        numbered.check(store, range(end))


# -- the file in use -----------------------------------------------------------------------------------------------


def test_the_file_in_use_is_deleted(tmp_path: Path) -> None:
    plan = builder(tmp_path)
    with plan.open() as store:
        end = numbered.append_until(store, 0, COUNT)
        active = max((path for path in (plan.root / "commitlog").iterdir() if path.stat().st_size), key=by_records)
        kept = [n for n, start in starts(store).items() if start < int(active.name)]
        active.unlink()
        store.engine.services.housekeeping.check_log()
        for _ in range(2):
            with pytest.raises(AppendRefused, match="was deleted while it is written to") as refused:
                store.append(Message("Topic0", b"x"))
            assert f"/proc/{os.getpid()}/fd" in str(refused.value)
        assert delivered(store) == {n for n in range(end) if numbered.known(n).queued}  # Reads go on.
    with plan.open() as store:
        alive = numbered.numbers_in(store)
        assert alive == kept
        assert store.recovery.damages or store.recovery.findings
        end = numbered.append_until(store, alive[-1] + 1, alive[-1] + 2)
    with plan.open() as store:
        assert numbered.numbers_in(store) == list(range(end))


def by_records(path: Path) -> tuple[bool, str]:
    return path.read_bytes().strip(b"\0") != b"", path.name


def starts(store: MessageStore) -> dict[int, int]:
    return {numbered.number_of(one.body): one.physical_offset for one in store.scan()}


def test_the_file_in_use_is_cut_under_its_map(tmp_path: Path) -> None:
    """The system kills the process for it (SIGBUS), or it goes on; either way all that was not cut off is there."""
    root = tmp_path / "store"
    settings = numbered.TINY | {"segment_bytes": 1 << 20, "flush": FlushDisk.SYNC}
    child = Child.writing(root, 0, settings)
    child.listen(200)
    (active,) = [path for path in (root / "commitlog").iterdir() if by_records(path)[0]]
    cut = 8192
    os.truncate(active, cut)
    ended = child.wait_or_kill(5.0)
    assert ended in (-signal.SIGBUS, -signal.SIGKILL)
    plan = StoreBuilder(root, **settings)
    with plan.open() as store:
        alive = numbered.numbers_in(store)
        assert alive == list(range(len(alive)))
        assert alive[-1] >= 20
        assert store.recovery.damages or store.recovery.findings or store.recovery.truncated_bytes


# -- permissions ---------------------------------------------------------------------------------------------------

PERMISSIONS = """
import json, os, sys
from pathlib import Path
from embermq.errors import AppendRefused, EmberError
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
root = Path(sys.argv[1])
plan = StoreBuilder(root, **numbered.TINY)
said = {}
try:
    open(root / "probe", "w")
    said["root"] = True
except PermissionError:
    said["root"] = False
try:
    with plan.open(read_only=sys.argv[2] == "read"):
        said["opened"] = True
except EmberError as refused:
    said["refused"] = str(refused)
print(json.dumps(said))
"""


@pytest.mark.parametrize("how", ["read", "write"])
@pytest.mark.parametrize("place", ["", "commitlog", f"commitlog/{0:020d}"])
def test_permissions_are_taken_away_before_a_start(tmp_path: Path, place: str, how: str) -> None:
    """A process that is not root, or root in a user namespace that maps nobody, which is refused in the same way."""
    plan = builder(tmp_path)
    with plan.open() as store:
        end = numbered.append_until(store, 0, 40)
    before = {path: path.read_bytes() for path in plan.root.rglob("*") if path.is_file()}
    refused_at = plan.root / place
    mode = refused_at.stat().st_mode
    root_mode = plan.root.stat().st_mode
    plan.root.chmod(0o500)
    refused_at.chmod(0)
    try:
        said = without_privileges(PERMISSIONS, plan.root, how)
    finally:
        plan.root.chmod(root_mode)
        refused_at.chmod(mode)
    if said["root"]:
        pytest.skip("this process may do everything, and no user namespace can be made here")
    assert "opened" not in said
    assert str(plan.root) in said["refused"]
    assert "ermission" in said["refused"]
    assert {path: path.read_bytes() for path in plan.root.rglob("*") if path.is_file()} == before
    with plan.open() as store:
        numbered.check(store, range(end))


def without_privileges(script: str, *arguments: object) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-c", script, *map(str, arguments)]
    if os.geteuid() == 0:
        command = ["unshare", "--user", *command]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("user namespaces may not be made here")
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_permissions_are_taken_away_from_a_running_store(tmp_path: Path, error: int) -> None:
    """No new file can be made: appends are refused when the next log file is needed, and resume when it can be."""
    files = FaultyFiles(RealFiles())
    plan = builder(tmp_path, files)
    with plan.open() as store:
        n = numbered.append_until(store, 0, 20)
        for kind in ("create", "rename", "make_directory", "remove"):
            files.fail(kind, times=None, error=error)
        stored = list(range(n))
        refused = 0
        for _ in range(1000):
            if refused == 3:
                break
            try:
                numbered.append(store, n)
                stored += range(n, n + numbered.group_of(n))
            except AppendRefused as refusal:
                refused += os.strerror(error) in str(refusal)
            n += numbered.group_of(n)
        assert (numbered.numbers_in(store), refused) == (stored, 3)
        files.heal()
        for _ in range(10):
            numbered.append(store, n)
            stored += range(n, n + numbered.group_of(n))
            n += numbered.group_of(n)
        assert numbered.numbers_in(store) == stored
    with plan.open() as store:
        numbered.check(store, stored)


def test_a_start_that_may_not_write_changes_nothing_and_gives_the_lock_back(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    plan = builder(tmp_path, files)
    with plan.open() as store:
        end = numbered.append_until(store, 0, 40)
    files.fail("create", times=None, error=errno.EACCES)
    with pytest.raises(StorePathInvalid, match="Permission denied"):
        plan.open()
    files.heal()
    with plan.open() as store:
        numbered.check(store, range(end))
