"""When queues and index are synced: every minute, and before that when a power cut would leave too much to do."""

from pathlib import Path

import pytest

from embermq import Message
from embermq.store import housekeeping
from embermq.store.housekeeping import unproven_bytes_max
from embermq.testing.builder import StoreBuilder

MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "mib"), [(0, 256), (1, 256), (256, 256), (257, 257), (1000, 1000), (1025, 1024), (1_000_000, 1024)]
)
def test_a_sync_is_shared_by_many_messages(files: int, mib: int) -> None:
    assert unproven_bytes_max(files) == mib * MIB


def test_much_log_is_proven_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreBuilder(tmp_path / "store").open() as store:
        keeping = store._housekeeping
        keeping.stop()
        store.append(Message("orders", b"x" * 1000, queue_id=0))
        store.append(Message("orders", b"x" * 1000, queue_id=1))
        store.wait_for_dispatch()
        keeping.write_out()
        assert keeping._unsynced_files == 2
        assert not keeping._is_too_much_unproven()
        monkeypatch.setattr(housekeeping, "UNPROVEN_BYTES", 100)
        monkeypatch.setattr(housekeeping, "UNPROVEN_BYTES_PER_FILE", 1200)
        assert not keeping._is_too_much_unproven()  # Two files: worth waiting for 2,400 bytes.
        monkeypatch.setattr(housekeeping, "UNPROVEN_BYTES_PER_FILE", 1000)
        assert keeping._is_too_much_unproven()
        keeping.make_durable()
        assert keeping._unsynced_files == 0
        assert not keeping._is_too_much_unproven()
