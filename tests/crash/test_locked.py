"""One writer at a time, any number of readers, and readers leave no trace."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StoreLocked, StoreReadOnly
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from embermq.testing.builder import StoreBuilder
from pathlib import Path
with StoreBuilder(Path(sys.argv[1])).open() as store:
    print("open", flush=True)
    sys.stdin.read()
"""


def tree_hash(root: Path) -> str:
    """Names, sizes, bytes and times of everything below a directory."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        status = path.stat()
        digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def test_a_second_process_is_told_who_has_the_store(builder: StoreBuilder) -> None:
    builder.open().close()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(builder.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked) as refused:
            builder.open()
        assert refused.value.holder_pid == holder.pid
        assert str(holder.pid) in str(refused.value)
        assert "read_only=True" in str(refused.value)
        with builder.open(read_only=True) as reader:
            assert reader.topics() == {}
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(30) == 0
    builder.open().close()


def test_a_second_open_in_the_same_process_is_refused(builder: StoreBuilder) -> None:
    with builder.open() as store:
        numbered.append(store, 0)
        with pytest.raises(StoreLocked) as refused:
            builder.open()
        assert refused.value.holder_pid == os.getpid()
        numbered.append(store, 1)  # Being asked did no harm, and the lock is still held.
        with pytest.raises(StoreLocked):
            builder.open()
    with builder.open() as store:
        numbered.check(store, [0, 1])


@pytest.mark.parametrize("how", ["closed", "running", "killed"])
def test_a_reader_changes_nothing(builder: StoreBuilder, tmp_path: Path, how: str) -> None:
    writer = builder.open()
    end = numbered.append_until(writer, 0, 50)
    writer.wait_for_dispatch()
    if how != "running":
        writer.close()
        if how == "killed":
            (builder.root / "abort").touch()
    else:
        writer.flush()
        writer.engine._stop_services()  # They go on writing by themselves: proofs, progress, files made ahead.
    before = tree_hash(builder.root)
    with builder.open(read_only=True) as reader:
        numbered.check(reader, range(end))
        with pytest.raises(StoreReadOnly):
            reader.append(Message("Topic0", b"x"))
        with pytest.raises(StoreReadOnly):
            reader.append_many([Message("Topic0", b"x")])
        with pytest.raises(StoreReadOnly):
            reader.flush()
    assert tree_hash(builder.root) == before
    if how == "running":
        numbered.check(writer, range(end))
        writer.close()


def test_a_reader_sees_what_was_there_when_it_opened(builder: StoreBuilder) -> None:
    with builder.open() as writer:
        end = numbered.append_until(writer, 0, 30)
        with builder.open(read_only=True) as reader:
            more = numbered.append_until(writer, end, end + 30)
            numbered.check(reader, range(end))
            numbered.check(writer, range(more))


def test_closing_twice_and_using_a_closed_store(builder: StoreBuilder) -> None:
    from embermq.errors import StoreClosed

    store: MessageStore = builder.open()
    store.close()
    store.close()
    for call in (
        lambda: store.append(Message("T", b"x")),
        lambda: store.append_many([Message("T", b"x")]),
        lambda: store.fetch("T", 0, 0),
        lambda: store.find("T", "k"),
        lambda: store.at(0),
        lambda: store.topics(),
        lambda: list(store.scan()),
        lambda: store.flush(),
    ):
        with pytest.raises(StoreClosed):
            call()
