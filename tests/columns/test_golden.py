"""Kernels on logs written by RocketMQ: rows as the plain scan has them, entries and index files as its own."""

from pathlib import Path

import numpy as np
import pytest

from embermq.columns.compiled import scan as kernels
from embermq.columns.compiled.derive import index_put, index_rebuild_slots
from embermq.columns.plain.scan import resync, scan_rows
from embermq.columns.rows import C_PHYSICAL, C_SIZE, C_TAG_CODE, RecordColumns, new_rows
from embermq.format.frame import ScanStop
from embermq.format.index import IndexHeader, decode_header, encode_header, index_file_bytes
from embermq.format.queue_entry import BLANK_SIZE, ENTRY_DTYPE
from tests.support import golden

MINUTE = 60_000
DELAYS = np.array(
    [1000, 5000, 10000, 30000, *(k * MINUTE for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120))], dtype=np.int64
)
STORES = ("basic", "batch", "compressed", "delay", "delay-parked", "index", "ipv6", "lmq", "odd", "transaction-raw")


def batches(store: Path) -> list[RecordColumns]:
    """Every file of the log, scanned by kernel and twin alike."""
    found = []
    for start, data in golden.segments(store):
        ours, theirs = new_rows(1000), new_rows(1000)
        stop = kernels.scan(data, start, 0, len(data), ours, DELAYS, True, True)
        assert stop == scan_rows(data, start, 0, len(data), theirs, DELAYS, True, True)
        assert stop[2] in (ScanStop.BLANK, ScanStop.NOTHING)
        count = stop[0]
        assert np.array_equal(ours[:count], theirs[:count])
        assert kernels.resync(data, start, 1, len(data)) == resync(data, start, 1, len(data))
        found.append(RecordColumns(data, start, ours[:count]))
    return found


@pytest.mark.parametrize("name", STORES)
def test_entries_follow_from_rows(name: str, tmp_path: Path) -> None:
    store = golden.restore(name, tmp_path)
    expected = {
        int(row[C_PHYSICAL]): (int(row[C_SIZE]), int(row[C_TAG_CODE])) for batch in batches(store) for row in batch.rows
    }
    checked = 0
    for path in sorted(store.glob("consumequeue/*/*/*")):
        entries = np.frombuffer(path.read_bytes(), ENTRY_DTYPE)
        for entry in entries[(entries["size"] != 0) & (entries["size"] != BLANK_SIZE)]:
            assert expected[int(entry["physical_offset"])] == (int(entry["size"]), int(entry["tag_code"]))
            checked += 1
    assert checked > 0


@pytest.mark.parametrize(("name", "slots", "entries"), [("index", 50, 200)])
def test_index_files_are_those_of_rocketmq(name: str, slots: int, entries: int, tmp_path: Path) -> None:
    store = golden.restore(name, tmp_path)
    expected = [path.read_bytes() for path in sorted(store.glob("index/*"))]
    assert len(expected) > 1
    files = [np.zeros(index_file_bytes(slots, entries), np.uint8)]
    for batch in batches(store):
        row, key, _ = index_put(files[-1], slots, entries, batch, 0, 0, 0)
        while row < len(batch):
            full = decode_header(files[-1])
            born = IndexHeader(full.end_timestamp, full.end_timestamp, full.end_physical, full.end_physical, 0, 0)
            files.append(np.zeros(index_file_bytes(slots, entries), np.uint8))
            files[-1][:40] = np.frombuffer(encode_header(born), np.uint8)
            row, key, _ = index_put(files[-1], slots, entries, batch, row, key, 0)
    assert [file.tobytes() for file in files] == expected
    for file in files:
        index_rebuild_slots(file, slots, decode_header(file).count)
    assert [file.tobytes() for file in files] == expected
