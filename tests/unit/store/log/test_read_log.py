"""The log by physical range, as a replica asks for it."""

from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StoreClosed, StoreError
from embermq.settings import FlushDisk

SEGMENT_BYTES = 16 << 10
SETTINGS = StoreSettings(segment_bytes=SEGMENT_BYTES, index_slots_max=10, index_entries_max=1000, disk_full_percent=100)


def copied(store: MessageStore, step: int) -> bytes:
    at, parts = 0, []
    while part := store.read_log(at, step):
        assert at // SEGMENT_BYTES == (at + len(part) - 1) // SEGMENT_BYTES  # Never past a log file.
        parts.append(part)
        at += len(part)
    assert at == store.max_physical
    return b"".join(parts)


def test_pieces_joined_are_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        assert store.read_log(0, 100) == b""
        store.append_many(Message("orders", bytes(700)) for _ in range(60))
        files = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
        for step in (100, 1000, 1 << 20):
            assert copied(store, step) == files[: store.max_physical]


def test_what_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        store.append_many(Message("orders", bytes(700)) for _ in range(60))
        end = store.max_physical
        assert store.read_log(end, 10) == b""
        with pytest.raises(StoreError, match=f"past the end of the log, {end}"):
            store.read_log(end + 1, 10)
        with pytest.raises(StoreError, match="at least one byte"):
            store.read_log(0, 0)
        store.engine.log.segments.delete_first()
        for at in (-1, 0, SEGMENT_BYTES - 1):
            with pytest.raises(StoreError, match=f"in no log file; the log begins at {SEGMENT_BYTES}"):
                store.read_log(at, 10)
        assert len(store.read_log(SEGMENT_BYTES, 10)) == 10
    with pytest.raises(StoreClosed):
        store.read_log(0, 10)


def test_under_sync_flush_nothing_is_copied_that_a_crash_can_take_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS.replace(flush=FlushDisk.SYNC)) as store:
        receipt = store.append(Message("orders", bytes(700)))
        flushed = receipt.physical_offset + receipt.size
        assert len(store.read_log(0, 1 << 20)) == flushed
        store.engine.log.flushed_offset = flushed - 50  # As if the newest bytes were not synced yet.
        assert len(store.read_log(0, 1 << 20)) == flushed - 50
        store.engine.log.flushed_offset = flushed
