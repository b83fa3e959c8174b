"""A disk with bad blocks: the rest is read, and what is missing is known."""

import errno
from pathlib import Path

import pytest

from embermq.files.fault_tolerant_files import BLOCK_BYTES, BadBlock, FaultTolerantFiles
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.support.bad_disk import BadDisk

PATH = Path("/file")
SIZE = 5 * BLOCK_BYTES + 100
CONTENT = bytes(1 + at % 255 for at in range(SIZE))


def reader(*bad_places: int) -> FaultTolerantFiles:
    disk = LossyFiles()
    disk.put(PATH, CONTENT)
    return FaultTolerantFiles(BadDisk(disk, {PATH: list(bad_places)}))


def test_a_good_disk_is_read_as_it_is() -> None:
    files = reader()
    file = files.as_files.open(PATH, False)
    assert file.pread(SIZE, 0) == CONTENT
    assert file.pread(10, SIZE - 4) == CONTENT[-4:]
    assert file.size == SIZE
    assert files.bad_blocks == []
    assert files.as_files.exists(PATH)


@pytest.mark.parametrize(("count", "at"), [(SIZE, 0), (SIZE + 50, 0), (3 * BLOCK_BYTES, 17), (9000, BLOCK_BYTES - 1)])
def test_bad_blocks_are_zeros_and_the_rest_is_there(count: int, at: int) -> None:
    bad = BLOCK_BYTES + 5
    files = reader(bad)
    expected = bytearray(CONTENT)
    expected[BLOCK_BYTES : 2 * BLOCK_BYTES] = bytes(BLOCK_BYTES)
    file = files.as_files.open(PATH, False)
    for _ in range(2):
        assert file.pread(count, at) == bytes(expected[at : at + count])
    assert files.bad_blocks == [BadBlock(PATH, BLOCK_BYTES)]  # Each once.


def test_a_bad_block_at_the_end_is_as_long_as_the_file() -> None:
    files = reader(SIZE - 1)
    assert files.as_files.open(PATH, False).pread(200, SIZE - 100) == bytes(100)


def test_what_is_not_the_disk_is_an_error() -> None:
    inner = FaultyFiles(LossyFiles())
    inner.create(PATH, 10, fallocate=False)
    file = FaultTolerantFiles(inner).as_files.open(PATH, False)
    inner.fail("pread", error=errno.EACCES)
    with pytest.raises(PermissionError):
        file.pread(1, 0)
