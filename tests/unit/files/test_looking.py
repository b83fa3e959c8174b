"""Names of a directory and ends of a file: the disk's own way, and the same by steps."""

import errno
import os
from pathlib import Path

import pytest

from embermq.files import (
    FaultTolerantFiles,
    FileEnds,
    FoundName,
    RealFiles,
    list_names_by_steps,
    names_of,
    read_ends_by_steps,
)
from embermq.testing import FaultyFiles, LossyFiles

DISK = RealFiles()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Everything that can lie in a directory."""
    (tmp_path / "b-file").write_bytes(b"x" * 100)
    (tmp_path / "a-directory").mkdir()
    os.mkfifo(tmp_path / "c-fifo")
    (tmp_path / "d-link-to-file").symlink_to("b-file")
    (tmp_path / "e-link-to-directory").symlink_to("a-directory")
    (tmp_path / "f-link-to-nothing").symlink_to("nothing")
    (tmp_path / "g-link-to-itself").symlink_to("g-link-to-itself")
    (tmp_path / "h-link-to-fifo").symlink_to("c-fifo")
    return tmp_path


def test_names_are_sorted_and_links_followed(place: Path) -> None:
    expected = [
        FoundName("a-directory", False, True, False),
        FoundName("b-file", True, False, False),
        FoundName("c-fifo", False, False, False),
        FoundName("d-link-to-file", True, False, True),
        FoundName("e-link-to-directory", False, True, True),
        FoundName("h-link-to-fifo", False, False, True),
    ]
    assert DISK.list_names(str(place)) == expected
    assert list_names_by_steps(DISK, str(place)) == expected


def test_names_of_no_directory(place: Path) -> None:
    for name in ("nothing", "b-file", "g-link-to-itself"):
        assert names_of(DISK, str(place / name)) == []
        with pytest.raises(OSError):
            DISK.list_names(str(place / name))


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("name", ["nothing", "a-directory", "c-fifo", "g-link-to-itself", "b-file/below"])
def test_what_is_no_file_has_no_ends(place: Path, name: str, writable: bool) -> None:
    assert DISK.read_ends(str(place / name), 10, 10, writable) is None
    assert read_ends_by_steps(DISK, str(place / name), 10, 10, writable) is None


@pytest.mark.parametrize(("head_bytes", "tail_bytes"), [(10, 0), (10, 5), (100, 100), (200, 101), (0, 0)])
def test_ends_of_a_file(tmp_path: Path, head_bytes: int, tail_bytes: int) -> None:
    path, content = tmp_path / "file", bytes(range(100))
    path.write_bytes(content)
    found = DISK.read_ends(str(path), head_bytes, tail_bytes, False)
    tail = content[-tail_bytes:] if 0 < tail_bytes <= 100 else b""
    assert found is not None
    assert found[:3] == (100, content[:head_bytes], tail)
    assert read_ends_by_steps(DISK, str(path), head_bytes, tail_bytes, False) == found


@pytest.mark.parametrize("written_at", [0, 4096, 1 << 20])
def test_a_rest_with_data_is_no_hole(tmp_path: Path, written_at: int) -> None:
    """Whether a hole is known to be one depends on the file system; data is never taken for a hole."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 22)
        file.seek(written_at)
        file.write(b"data")
    for found in (DISK.read_ends(str(path), 4096, 0, False), read_ends_by_steps(DISK, str(path), 4096, 0, False)):
        assert found is not None
        assert written_at == 0 or not found.rest_is_hole


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    files = FaultyFiles(DISK)
    (tmp_path / "file").write_bytes(b"content")
    for kind in ("open", "pread"):
        files.fail(kind)
        with pytest.raises(OSError) as caught:
            files.read_ends(str(tmp_path / "file"), 4, 0, False)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path / "file"))
    files.fail("list_directory")
    with pytest.raises(OSError):
        files.list_names(str(tmp_path))


def test_bad_blocks_read_as_zeros(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    faulty = FaultyFiles(DISK)
    faulty.fail("pread", times=2)
    files = FaultTolerantFiles(faulty).as_files
    assert files.read_ends(str(tmp_path / "file"), 4, 0, False) == FileEnds(7, bytes(4), b"", False)


def test_a_disk_in_memory() -> None:
    files = LossyFiles()
    files.put(Path("/store/one"), b"content")
    files.put(Path("/store/two"), None)
    assert files.list_names("/store") == [FoundName("one", True, False, False), FoundName("two", False, True, False)]
    found = files.read_ends("/store/one", 3, 2, True)
    assert found is not None
    assert found[:3] == (7, b"con", b"nt")
    assert files.read_ends("/store/none", 3, 2, True) is None
