"""The next sound record behind damage, looked for through the map of a segment: by scan and by the dispatcher."""

import tracemalloc
from pathlib import Path

from embermq import Message, MessageStore, StoreSettings

SETTINGS = StoreSettings(
    segment_bytes=8 << 20, queue_file_bytes=20 * 500, index_slots_max=100, index_entries_max=400, disk_full_percent=100
)


def test_the_next_record_lies_at_or_behind_a_place_and_before_the_limit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        receipts = [store.append(Message("t", b"body %d" % n)) for n in range(3)]
        log = store.engine.log
        places, end = [receipt.physical_offset for receipt in receipts], log.wrote_offset
        assert log.next_record(places[0], end) == places[0]
        assert log.next_record(places[0] + 1, end) == places[1]
        assert log.next_record(places[1] + 1, end - 1) is None  # The last record does not end before the limit.
        assert log.next_record(end, end) is None
        assert log.next_record(end + SETTINGS.segment_bytes, end) is None


def test_a_scan_passes_damage_without_a_copy_of_the_segment(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        receipts = store.append_many([Message("t", bytes([n % 256]) * 50_000) for n in range(100)])
        first, last = receipts[1].physical_offset, receipts[90].physical_offset
    path = tmp_path / "commitlog" / f"{0:020}"
    with MessageStore.open(tmp_path, SETTINGS) as store:
        with path.open("r+b") as file:
            file.seek(first)
            file.write(b"\xda" * (last - first))
        tracemalloc.start()
        try:
            found = [message.queue_offset for message in store.scan()]
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found == [0, *range(90, 100)]
        assert peak_bytes < 3 << 20 < last - first
