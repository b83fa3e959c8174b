"""When queue entries are written out, and queues and index synced: by the clock, and before that when there is much."""

from pathlib import Path

import pytest

from embermq import Message
from embermq.store.queues import consume_queues
from embermq.store.services import housekeeping
from embermq.store.services.housekeeping import unproven_bytes_max
from embermq.testing.builder import StoreBuilder
from tests.support.waiting import wait_until

MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "mib"), [(0, 256), (1, 256), (256, 256), (257, 257), (1000, 1000), (1025, 1024), (1_000_000, 1024)]
)
def test_a_sync_is_shared_by_many_messages(files: int, mib: int) -> None:
    assert unproven_bytes_max(files) == mib * MIB


def test_much_log_is_proven_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreBuilder(tmp_path / "store").open() as store:
        keeping = store.engine.services.housekeeping
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


def test_many_entries_are_written_out_before_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many for each queue: with thousands of them a write is shared all the same."""
    with StoreBuilder(tmp_path / "store").open() as store:
        keeping, queues = store.engine.services.housekeeping, store.engine.queues
        assert queues is not None
        keeping.stop()
        store.append_many([Message("orders", b"x", queue_id=n % 2) for n in range(10)])
        store.wait_for_dispatch()
        seen = [queues.has_many_pending]
        monkeypatch.setattr(consume_queues, "PENDING_ROWS_MANY", 10)
        seen.append(queues.has_many_pending)
        monkeypatch.setattr(consume_queues, "PENDING_ROWS_PER_QUEUE", 5)
        seen.append(queues.has_many_pending)
        keeping.write_out()
        seen.append(queues.has_many_pending)
        assert seen == [False, False, True, False]


def test_whoever_takes_many_has_them_written_out_and_proven_between_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "TICK_SECONDS", 1200.0)
    monkeypatch.setattr(consume_queues, "PENDING_ROWS_MANY", 1)
    monkeypatch.setattr(consume_queues, "PENDING_ROWS_PER_QUEUE", 1)
    with StoreBuilder(tmp_path / "store").open() as store:
        page = store.engine.parts.page
        assert page is not None
        store.append(Message("orders", b"x" * 1000))
        end = store.max_physical
        wait_until(lambda: page.queues_written == end)
        assert page.queues_durable < end
        monkeypatch.setattr(housekeeping, "UNPROVEN_BYTES", 1)
        monkeypatch.setattr(housekeeping, "UNPROVEN_BYTES_PER_FILE", 1)
        store.append(Message("orders", b"x" * 1000))
        end = store.max_physical
        wait_until(lambda: page.queues_durable == end)
