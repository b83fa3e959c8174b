"""File sizes of a store that lies there."""

from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files.files import RealFiles
from embermq.store.found_sizes import sizes_found
from tests.support import golden

FILES = RealFiles()
NAMES = {
    "mappedFileSizeCommitLog": "segment_bytes",
    "mappedFileSizeConsumeQueue": "queue_file_bytes",
    "maxHashSlotNum": "index_slots_max",
    "maxIndexNum": "index_entries_max",
}


@pytest.mark.parametrize("name", ["basic", "default-size", "index", "retry-dlq"])
def test_sizes_of_the_reference(name: str, tmp_path: Path) -> None:
    store = golden.restore(name, tmp_path)
    written = StoreSettings.from_properties(golden.manifest(name).properties())
    found = sizes_found(FILES, store)
    for attribute in NAMES.values():
        if attribute in found:
            assert found[attribute] == getattr(written, attribute), attribute
    assert {"segment_bytes", "queue_file_bytes"} <= set(found)


def test_sizes_of_ours(tmp_path: Path) -> None:
    settings = StoreSettings(
        segment_bytes=5000, queue_file_bytes=2000, index_slots_max=70, index_entries_max=123, disk_full_percent=100
    )
    with MessageStore.open(tmp_path, settings) as store:
        store.append(Message("t", b"x", keys=["k"]))
    assert sizes_found(FILES, tmp_path) == {
        "segment_bytes": 5000, "queue_file_bytes": 2000, "index_slots_max": 70, "index_entries_max": 123,
    }  # fmt: skip


def test_a_log_file_that_grew(tmp_path: Path) -> None:
    """Every file begins at a multiple of the size, whatever became of its length."""
    log = tmp_path / "commitlog"
    log.mkdir()
    for number, size in enumerate((9000, 8192)):
        (log / f"{number * 8192:020}").write_bytes(bytes(size))
    assert sizes_found(FILES, tmp_path) == {"segment_bytes": 8192}


def test_nothing_there(tmp_path: Path) -> None:
    assert sizes_found(FILES, tmp_path / "missing") == {}
    assert sizes_found(FILES, tmp_path) == {}
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes").write_bytes(bytes(5000))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20240101000000000").write_bytes(bytes(123))
    assert sizes_found(FILES, tmp_path) == {}


def test_the_commonest_size_counts(tmp_path: Path) -> None:
    for queue, size in enumerate((400, 400, 0, 600, 7)):
        file = tmp_path / "consumequeue" / "t" / str(queue) / "00000000000000000000"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(size))
    assert sizes_found(FILES, tmp_path) == {"queue_file_bytes": 400}
