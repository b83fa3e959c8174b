"""What a store says about its puts: how long each took from the call to the answer, what was slow, how many it did not
take. Time passes where the test lets it pass: in a sync, while a file is made, before the put lock is free."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import BatchItem, FlushDisk, Message, MessageBatch, MessageStore, StoreSettings, errors
from embermq.files import RealFiles
from embermq.testing import FaultyFiles, ManualClock

SMALL = StoreSettings(
    segment_bytes=64 << 10,
    queue_file_bytes=1000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    kernels="never",  # type: ignore[arg-type]
)


class SlowDisk(FaultyFiles):
    """A disk on which the next operation of a kind takes so many milliseconds of a ManualClock."""

    def __init__(self) -> None:
        super().__init__(RealFiles())
        self.clock = ManualClock()
        self.takes_ms: dict[str, int] = {}

    def count(self, kind: str, path: Path) -> Any:
        if "commitlog" in path.parts:
            self.clock.advance(ms=self.takes_ms.pop(kind, 0))
        return super().count(kind, path)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


def opened(disk: SlowDisk, root: Path, **changes: Any) -> MessageStore:
    store = MessageStore.open(root / "s", SMALL.replace(**changes), files=disk, clock=disk.clock)
    store.append(Message("t", b"first"))
    return store


def longest_ms(store: MessageStore) -> int:
    return int(store.runtime_info()["putMessageEntireTimeMax"])


MESSAGE = Message("t", b"x")
PUTS: dict[str, Callable[[MessageStore], object]] = {
    "append": lambda store: store.append(MESSAGE),
    "append_many": lambda store: store.append_many([MESSAGE, MESSAGE]),
    "append_batch": lambda store: store.append_batch(MessageBatch(MESSAGE, [BatchItem(b"x")])),
    "append_async": lambda store: store.append_async(MESSAGE).result(10),
    "append_columns, many": lambda store: store.append_columns("t", [b"x", b"x"]),
    "internal": lambda store: store.internal.append(MESSAGE),
    "internal, many": lambda store: store.internal.append_many([MESSAGE, MESSAGE]),
}


@pytest.mark.parametrize("kind", PUTS)
def test_under_sync_flush_a_put_takes_until_the_disk_has_it(tmp_path: Path, disk: SlowDisk, kind: str) -> None:
    with opened(disk, tmp_path, flush=FlushDisk.SYNC) as store:
        disk.takes_ms["sync"] = 300
        PUTS[kind](store)
        assert longest_ms(store) == 300


@pytest.mark.parametrize("kind", [kind for kind in PUTS if "columns" not in kind])
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_put_takes_from_its_beginning_on(
    tmp_path: Path, disk: SlowDisk, kind: str, flush: FlushDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is done before the put lock is taken: checks and encoding."""
    with opened(disk, tmp_path, flush=flush) as store:
        encode = Message.property_bytes

        def slow_encode(message: Message) -> bytes:
            if not disk.takes_ms:
                disk.takes_ms["once"] = 0
                disk.clock.advance(ms=40)
            return encode(message)

        monkeypatch.setattr(Message, "property_bytes", slow_encode)
        PUTS[kind](store)
        assert longest_ms(store) == 40


def test_slow_flush_is_said(tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    with opened(disk, tmp_path, flush=FlushDisk.SYNC) as store:
        disk.takes_ms["sync"] = 501
        store.append(MESSAGE)
    said = [line for line in caplog.messages if line.startswith("slow")]
    assert [line.rpartition(" ")[0] for line in said] == ["slow flush elapsed_ms=501", "slow put elapsed_ms=501"]


def test_slow_commit_is_said(tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    with opened(disk, tmp_path, transient_pool=True, transient_pool_buffers=2) as store:
        store.flush()
        disk.takes_ms["pwrite"] = 900
        store.append(MESSAGE)
        store.flush()
    assert any(line.startswith("slow commit elapsed_ms=900 flushed_offset=") for line in caplog.messages)


def test_slow_creation_of_a_file_is_said(tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    disk.takes_ms["create"] = 600
    with opened(disk, tmp_path):
        pass
    assert any(line.startswith("slow file creation elapsed_ms=600 path=") for line in caplog.messages)
    assert any(line.startswith("slow append held_ms=600 ") for line in caplog.messages)


def test_what_is_not_slow_is_not_said(tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    disk.takes_ms = {"create": 500, "sync": 0}
    with opened(disk, tmp_path, flush=FlushDisk.SYNC) as store:
        disk.takes_ms["sync"] = 500
        store.append(MESSAGE)
    assert [line for line in caplog.messages if "slow" in line] == []


# -- what is not stored is counted -------------------------------------------------------------------------------


def assert_counted(store: MessageStore, failed: int) -> None:
    assert store.stats().put_failed == failed
    assert store.stats().put_count == 1
    assert store.runtime_info()["putMessageFailedTimes"] == str(failed)


BAD = Message("t", b"x" * 5000)
REJECTED: dict[str, tuple[Callable[[MessageStore], object], int]] = {
    "append": (lambda store: store.append(BAD), 1),
    "append_many": (lambda store: store.append_many([MESSAGE, BAD, MESSAGE]), 3),
    "append_batch": (lambda store: store.append_batch(MessageBatch(MESSAGE, [BatchItem(BAD.body)] * 2)), 2),
    "an empty batch": (lambda store: store.append_batch(MessageBatch(MESSAGE, [])), 1),
    "append_async": (lambda store: store.append_async(BAD), 1),
    "internal": (lambda store: store.internal.append(BAD), 1),
    "a bad property": (lambda store: store.append(Message("t", b"x", properties={"a\x01": "b"})), 1),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_rejected_messages_are_counted(tmp_path: Path, disk: SlowDisk, kind: str) -> None:
    put, count = REJECTED[kind]
    with opened(disk, tmp_path, message_bytes_max=1000) as store:
        with pytest.raises(errors.MessageRejected):
            put(store)
        assert_counted(store, count)


@pytest.mark.parametrize("kind", PUTS)
def test_refused_messages_are_counted(tmp_path: Path, disk: SlowDisk, kind: str) -> None:
    with opened(disk, tmp_path) as store:
        store.engine.writer.refuse_while_full(errors.DiskFull("full"))
        with pytest.raises(errors.DiskFull):
            PUTS[kind](store)
        assert_counted(store, 2 if "many" in kind else 1)


@pytest.mark.parametrize("kind", PUTS)
def test_messages_refused_by_a_busy_writer_are_counted(tmp_path: Path, disk: SlowDisk, kind: str) -> None:
    with opened(disk, tmp_path) as store:
        writer = store.engine.writer
        disk.clock.advance(ms=1)
        with writer.put_lock.lock:
            writer.put_lock.held_since = disk.clock.monotonic()
            disk.clock.advance(ms=1001)
            with pytest.raises(errors.PageCacheBusy):
                PUTS[kind](store)
            writer.put_lock.held_since = 0.0
        assert_counted(store, 2 if "many" in kind else 1)


def test_a_file_that_cannot_be_made_counts_what_is_left_of_a_list(tmp_path: Path, disk: SlowDisk) -> None:
    with opened(disk, tmp_path) as store:
        disk.fail("create", times=None, error=errno.ENOSPC, path_contains="commitlog")
        with pytest.raises(errors.SegmentUnavailable):
            store.append_many([Message("t", b"x" * 20_000)] * 4)
        assert (store.stats().put_count, store.stats().put_failed) == (4, 1)
        disk.heal()
