"""Staged files: what goes in comes out, what is damaged is not believed, and nothing half-made has a name."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from embermq.errors import MessageRejected, StoreError
from embermq.files import RealFiles
from embermq.model.message import Message
from embermq.spark.writing import staging
from embermq.spark.writing.staging import clear_staged
from embermq.spark.writing.write_rows import STAGED_SCHEMA
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.support.links import listing, put_canary

FILES = RealFiles()
BORN_MS = 1_700_000_000_123


def batch(start: int, count: int) -> pa.RecordBatch:
    rows = range(start, start + count)
    return pa.record_batch(
        [
            pa.array([f"topic{row % 2}" for row in rows]),
            pa.array([row % 5 for row in rows], pa.int32()),
            pa.array([b"TAGS\x01%d" % row for row in rows]),
            pa.array([b"%d" % row * (row % 100) for row in rows]),
        ],
        schema=STAGED_SCHEMA,
    )


def message(row: int) -> Message:
    return Message(
        f"topic{row % 2}",
        b"%d" % row * (row % 100),
        queue_id=row % 5,
        encoded_properties=b"TAGS\x01%d" % row,
        born_timestamp=BORN_MS,
    )


@pytest.mark.parametrize("skip", [0, 1, 99, 100, 101, 8_099, 8_100])
def test_what_goes_in_comes_out(tmp_path: Path, skip: int) -> None:
    staged = staging.stage(FILES, tmp_path, 3, 17, [batch(0, 100), batch(100, 8_000)], BORN_MS)
    assert staged is not None
    assert (staged.partition, staged.rows) == (3, 8_100)
    assert staged.name.startswith("3-17-")
    assert [path.name for path in tmp_path.iterdir()] == [staged.name]
    assert (tmp_path / staged.name).stat().st_size == staged.size_bytes
    staging.check_file(FILES, tmp_path, staged)
    lists = list(staging.iter_messages(FILES, tmp_path, staged, skip))
    assert [one for messages in lists for one in messages] == [message(row) for row in range(skip, 8_100)]


def test_two_attempts_never_have_the_same_name(tmp_path: Path) -> None:
    for _ in range(20):
        staging.stage(FILES, tmp_path, 0, 0, [batch(0, 1)], BORN_MS)
    assert len(list(tmp_path.iterdir())) == 20


def test_no_rows_leave_no_file(tmp_path: Path) -> None:
    assert staging.stage(FILES, tmp_path, 0, 0, [], BORN_MS) is None
    assert list(tmp_path.iterdir()) == []


def test_a_refused_row_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(0, 5_000)
        raise MessageRejected("no")

    with pytest.raises(MessageRejected):
        staging.stage(FILES, tmp_path, 0, 0, rows(), BORN_MS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["create", "pwrite", "sync", "rename"])
def test_a_full_or_failing_disk_leaves_no_file_with_a_name(kind: str) -> None:
    files = FaultyFiles(LossyFiles())
    files.make_directory(Path("/staging"))
    files.fail(kind)
    with pytest.raises(OSError, match="Input/output"):
        staging.stage(files, Path("/staging"), 0, 0, [batch(0, 10)], BORN_MS)
    assert [entry.name for entry in files.list_directory(Path("/staging")) if entry.name.endswith(".arrow")] == []


def test_a_file_that_has_its_name_survives_a_power_cut() -> None:
    disk = LossyFiles()
    disk.make_directory(Path("/staging"))
    staged = staging.stage(disk, Path("/staging"), 0, 0, [batch(0, 500)], BORN_MS)
    assert staged is not None
    staging.check_file(disk.crash(), Path("/staging"), staged)


@pytest.mark.parametrize("at", [0, 5_000, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, at: int) -> None:
    staged = staging.stage(FILES, tmp_path, 0, 0, [batch(0, 1000)], BORN_MS)
    assert staged is not None
    path = tmp_path / staged.name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        staging.check_file(FILES, tmp_path, staged)
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match="damaged"):
        staging.check_file(FILES, tmp_path, staged)
    path.unlink()
    with pytest.raises(StoreError, match="is gone, with 1,000 rows"):
        staging.check_file(FILES, tmp_path, staged)


def test_a_directory_inside_a_new_store_makes_it_a_store(tmp_path: Path) -> None:
    """A directory that holds something but no log would not be taken for one."""
    store = tmp_path / "store"
    staging.make_directory(FILES, store / "embermq.staging" / "job" / "0", store)
    assert (store / "commitlog").is_dir()
    elsewhere = tmp_path / "elsewhere" / "0"
    staging.make_directory(FILES, elsewhere, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_clearing_up_keeps_what_comes_later(tmp_path: Path) -> None:
    for number in range(12):
        directory = staging.batch_directory(tmp_path, "query-1", number)
        directory.mkdir(parents=True)
        (directory / f"0-{number}-{'0' * 16}.arrow").touch()
    clear_staged(FILES, tmp_path, "query-1", up_to=9)
    assert sorted(path.name for path in (tmp_path / "query-1").iterdir()) == ["10", "11"]
    clear_staged(FILES, tmp_path, "query-1", up_to=None)
    clear_staged(FILES, tmp_path, "query-1", up_to=None)
    assert list(tmp_path.iterdir()) == []


def test_clearing_up_removes_nothing_that_no_task_wrote(tmp_path: Path) -> None:
    """No other file, and nothing behind a link, at whatever place."""
    name = f"0-0-{'0' * 16}.arrow"
    outside = tmp_path / "outside"
    for place in ("write", "batch", "file"):
        put_canary(outside / place / "0" / name)
        put_canary(outside / place / name)
    root = tmp_path / "staging"
    (root / "query-1" / "0").mkdir(parents=True)
    (root / "query-1" / "0" / name).touch()
    (root / "query-1" / "0" / f"{name}.tmp").touch()
    (root / "query-1" / "0" / f"0-1-{'0' * 16}.arrow").symlink_to(outside / "file" / name)
    put_canary(root / "query-1" / "0" / "notes.txt")
    (root / "query-1" / "1").symlink_to(outside / "batch")
    (root / "query-2").symlink_to(outside / "write")
    before = listing(outside)
    clear_staged(FILES, root, "query-1", up_to=5)
    clear_staged(FILES, root, "query-1", up_to=None)
    clear_staged(FILES, root, "query-2", up_to=None)
    staging.clear_forgotten(FILES, root, None, before_ms=1 << 50)
    assert listing(outside) == before
    assert sorted(path.name for path in (root / "query-1" / "0").iterdir()) == [f"0-1-{'0' * 16}.arrow", "notes.txt"]
    assert (root / "query-1" / "1").is_symlink()
    assert (root / "query-2").is_symlink()


def test_staging_behind_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "staging").symlink_to(tmp_path / "disk")
    directory = staging.batch_directory(tmp_path / "staging", "query-1", 0)
    directory.mkdir(parents=True)
    staged = staging.stage(FILES, directory, 0, 0, [batch(0, 10)], BORN_MS)
    assert staged is not None
    staging.check_file(FILES, directory, staged)
    clear_staged(FILES, tmp_path / "staging", "query-1", up_to=0)
    assert listing(tmp_path / "disk") == {str(tmp_path / "disk" / "query-1"): ("directory", b"")}
