"""File sizes of a store that lies there."""

import os
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files import RealFiles
from embermq.format.frame import encode_blank
from embermq.inspect.store_shape import found_shape
from tests.support import golden

FILES = RealFiles()
NAMES = {
    "mappedFileSizeCommitLog": "segment_bytes",
    "mappedFileSizeConsumeQueue": "queue_file_bytes",
    "maxHashSlotNum": "index_slots_max",
    "maxIndexNum": "index_entries_max",
}


@pytest.mark.parametrize("name", ["basic", "default-size", "index", "retry-dlq"])
def test_sizes_of_rocketmq(name: str, tmp_path: Path) -> None:
    store = golden.restore(name, tmp_path)
    written = StoreSettings.from_properties(golden.manifest(name).properties())
    found = found_shape(FILES, store).as_settings()
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
    assert found_shape(FILES, tmp_path).as_settings() == {
        "segment_bytes": 5000,
        "queue_file_bytes": 2000,
        "index_slots_max": 70,
        "index_entries_max": 123,
    }


def test_a_log_file_that_grew(tmp_path: Path) -> None:
    """Every file begins at a multiple of the size, whatever became of its length."""
    log = tmp_path / "commitlog"
    log.mkdir()
    for number, size in enumerate((9000, 8192)):
        (log / f"{number * 8192:020}").write_bytes(bytes(size))
    assert found_shape(FILES, tmp_path).as_settings() == {"segment_bytes": 8192}


def test_a_stray_log_file_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    for start, size in ((0, 8192), (100, 5000), (8192, 8192), (12288, 4096)):
        (log / f"{start:020}").write_bytes(bytes(size))
    assert found_shape(FILES, tmp_path).as_settings() == {"segment_bytes": 8192}


@pytest.mark.parametrize("size", [0, 5, 150, 24576, 25641])
def test_a_lone_log_file_that_was_cut_tells_nothing(size: int, tmp_path: Path) -> None:
    """So whoever opens the store takes the settings."""
    store = golden.restore("compressed", tmp_path)
    (file,) = (store / "commitlog").iterdir()
    whole = file.stat().st_size
    assert found_shape(FILES, store).as_settings()["segment_bytes"] == whole
    os.truncate(file, size)
    assert "segment_bytes" not in found_shape(FILES, store).as_settings()


def test_a_lone_log_file_that_was_cut_behind_its_records(tmp_path: Path) -> None:
    store = golden.restore("compressed", tmp_path)
    (file,) = (store / "commitlog").iterdir()
    os.truncate(file, 30001)
    assert "segment_bytes" not in found_shape(FILES, store).as_settings()
    os.truncate(file, 32768)  # A length like others: nobody can tell.
    assert found_shape(FILES, store).as_settings()["segment_bytes"] == 32768


@pytest.mark.parametrize("size", [150, 4096, 8192, 20000])
def test_ours_wrote_the_size_down(size: int, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreSettings(segment_bytes=8192, disk_full_percent=100)) as store:
        store.append(Message("t", b"x"))
    os.truncate(tmp_path / "commitlog" / "0".zfill(20), size)
    assert found_shape(FILES, tmp_path).as_settings()["segment_bytes"] == 8192


@pytest.mark.parametrize("length", [9000, 7990, 8192])
def test_a_blank_says_where_its_file_ends(length: int, tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / "0".zfill(20)).write_bytes(encode_blank(8192) + bytes(length - 8))
    assert found_shape(FILES, tmp_path).as_settings() == {"segment_bytes": 8192}


@pytest.mark.parametrize("size", [0, 1, 8, 39, 40, 100])
def test_an_index_file_that_was_cut(size: int, tmp_path: Path) -> None:
    """One good one is enough to tell; of none, only we have written it down."""
    store = golden.restore("index", tmp_path)
    files = sorted((store / "index").iterdir())
    whole = found_shape(FILES, store).as_settings()
    for file in files[:-1]:
        os.truncate(file, size)
        assert found_shape(FILES, store).as_settings() == whole
    os.truncate(files[-1], size)
    assert set(whole) - set(found_shape(FILES, store).as_settings()) == {"index_slots_max", "index_entries_max"}


def test_an_index_file_of_ours_that_was_cut(tmp_path: Path) -> None:
    settings = StoreSettings(index_slots_max=70, index_entries_max=123, disk_full_percent=100, segment_bytes=8192)
    with MessageStore.open(tmp_path, settings) as store:
        store.append(Message("t", b"x", keys=["k"]))
    (file,) = (tmp_path / "index").iterdir()
    os.truncate(file, 39)
    found = found_shape(FILES, tmp_path).as_settings()
    assert (found["index_slots_max"], found["index_entries_max"]) == (70, 123)
    file.unlink()
    assert "index_slots_max" not in found_shape(FILES, tmp_path).as_settings()


def test_nothing_there(tmp_path: Path) -> None:
    assert found_shape(FILES, tmp_path / "missing").as_settings() == {}
    assert found_shape(FILES, tmp_path).as_settings() == {}
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "notes").write_bytes(bytes(5000))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20240101000000000").write_bytes(bytes(123))
    assert found_shape(FILES, tmp_path).as_settings() == {}


def test_the_commonest_size_counts(tmp_path: Path) -> None:
    for queue, size in enumerate((400, 400, 0, 600, 7)):
        file = tmp_path / "consumequeue" / "t" / str(queue) / "00000000000000000000"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(size))
    assert found_shape(FILES, tmp_path).as_settings() == {"queue_file_bytes": 400}
