"""One segment: positions move only when the bytes have, and views outlive deletion."""

import errno
import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from embermq.files import RealFiles
from embermq.files.pool import TransientPool
from embermq.files.segment import Segment
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles

SIZE = 16384


def make(root: Path, pool: TransientPool | None = None) -> tuple[FaultyFiles, Segment]:
    files = FaultyFiles(RealFiles())
    return files, Segment.create(files, root / f"{SIZE:020d}", SIZE, SIZE, pool=pool)


def store(segment: Segment, data: bytes) -> None:
    """What a writer does."""
    at = segment.wrote
    segment.target[at : at + len(data)] = data
    segment.wrote = at + len(data)


def test_a_new_segment_is_empty_active_and_durable(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    assert (segment.start, segment.end, segment.size) == (SIZE, 2 * SIZE, SIZE)
    assert (segment.wrote, segment.committed, segment.flushed, segment.readable) == (0, 0, 0, 0)
    assert segment.is_active
    assert not segment.is_full
    assert [kind for kind, _ in files.steps] == ["create", "sync", "sync_directory"]


@pytest.mark.parametrize("kind", ["create", "sync", "sync_directory", "map"])
def test_a_segment_that_cannot_be_made_leaves_no_file(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles(RealFiles())
    files.fail(kind, error=errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        Segment.create(files, tmp_path / "f", 0, SIZE)
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_the_first_error_is_told_when_the_half_made_file_cannot_be_removed(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    files.fail("map", error=errno.ENOMEM)
    files.fail("remove", error=errno.EIO)
    with pytest.raises(OSError) as caught:
        Segment.create(files, tmp_path / "f", 0, SIZE)
    assert caught.value.errno == errno.ENOMEM
    segment = Segment.take_up(files, tmp_path / "f", 0, SIZE)
    store(segment, b"hello")
    assert segment.read(0, 10) == b"hello"


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_a_short_file_of_zeros_is_taken_up_with_its_full_length(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    segment = Segment.take_up(RealFiles(), tmp_path / "f", 0, SIZE)
    assert segment.is_active
    assert (tmp_path / "f").stat().st_size == SIZE


@pytest.mark.parametrize("content", [b"\0" * 99 + b"x", b"\0" * (SIZE + 1)])
def test_a_file_that_holds_anything_is_not_taken_up(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(FileExistsError):
        Segment.take_up(RealFiles(), tmp_path / "f", 0, SIZE)
    assert (tmp_path / "f").read_bytes() == content


def test_readers_see_what_was_wrote_and_no_more(tmp_path: Path) -> None:
    _, segment = make(tmp_path)
    store(segment, b"hello")
    segment.target[5:9] = b"soon"  # stored, not yet published
    assert segment.read(0, 100) == b"hello"
    assert segment.read(3, 1) == b"l"
    assert segment.read(5, 1) == b""
    assert segment.read(-1, 3) == b""
    assert segment.target_array[4] == ord("o")


def test_a_sealed_segment_reads_the_same(tmp_path: Path) -> None:
    _, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    assert segment.is_full
    with segment.array_for_scan() as held:
        segment.seal()
        assert not segment.is_active
        assert segment.view is None
        assert bytes(held[:3]) == b"xxx"
    assert segment.read(SIZE - 2, 10) == b"xx"
    with segment.array_for_scan() as array:
        assert not array.flags.writeable
        assert len(array) == SIZE
        with segment.array_for_scan() as again:
            assert again.__array_interface__["data"][0] == array.__array_interface__["data"][0]


def test_a_bad_disk_is_an_error_when_a_sealed_segment_is_read(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    segment.seal()
    files.fail("pread")
    with pytest.raises(OSError):
        segment.read(0, 1)
    assert segment.read(0, 1) == b"x"


def test_flush_moves_to_what_was_readable_when_it_began(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    store(segment, b"one")
    files.before(step=len(files.steps) + 1, call=lambda: store(segment, b"two"))
    assert segment.flush()
    assert segment.wrote == 6
    assert segment.flushed == 3
    assert segment.flush()
    assert segment.flushed == 6
    syncs = files.counts["sync"]
    assert not segment.flush()
    assert files.counts["sync"] == syncs


def test_a_failed_sync_moves_nothing(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    store(segment, b"one")
    segment.flush()
    store(segment, b"two")
    files.fail("sync")
    with pytest.raises(OSError):
        segment.flush()
    assert segment.flushed == 3


def test_with_a_buffer_readers_see_what_was_committed(tmp_path: Path) -> None:
    pool = TransientPool(1, SIZE)
    _, segment = make(tmp_path, pool)
    assert pool.available == 0
    store(segment, b"private")
    assert segment.readable == 0
    assert segment.read(0, 10) == b""
    assert not segment.flush()
    assert segment.commit()
    assert not segment.commit()
    assert segment.readable == 7
    assert segment.read(0, 10) == b"private"
    assert segment.flush()
    assert segment.flushed == 7


def test_a_full_and_committed_buffer_goes_back_to_its_pool(tmp_path: Path) -> None:
    pool = TransientPool(1, SIZE)
    _, segment = make(tmp_path, pool)
    store(segment, b"a" * (SIZE - 1))
    segment.commit()
    assert pool.available == 0
    store(segment, b"b")
    assert segment.commit()
    assert pool.available == 1
    assert segment.buffer is None
    assert segment.readable == SIZE
    borrowed = pool.borrow()
    assert borrowed is not None
    borrowed[:] = b"z" * SIZE
    assert segment.read(SIZE - 2, 2) == b"ab"
    segment.seal()
    assert segment.read(SIZE - 2, 2) == b"ab"


def test_a_failed_commit_moves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    files, segment = make(tmp_path, TransientPool(1, SIZE))
    store(segment, b"data")
    files.fail("pwrite", error=errno.ENOSPC, partial=True)
    with pytest.raises(OSError):
        segment.commit()
    assert segment.committed == 0
    assert segment.commit()
    assert segment.read(0, 4) == b"data"


def test_an_empty_pool_means_the_map_is_written(tmp_path: Path) -> None:
    _, segment = make(tmp_path, TransientPool(0, SIZE))
    store(segment, b"mapped")
    assert segment.buffer is None
    assert segment.read(0, 6) == b"mapped"


@pytest.mark.slow
def test_retire_deletes_now_and_lent_views_stay_readable(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    segment.seal()
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    with segment.array_for_scan() as array:
        segment.retire()
        gc.collect()
        assert list(tmp_path.iterdir()) == []
        assert [kind for kind, _ in files.steps[-2:]] == ["remove", "sync_directory"]
        assert bytes(array) == b"x" * SIZE
        assert segment.read(0, 1) == b""
    del array
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
    with segment.array_for_scan() as nothing:
        assert len(nothing) == 0


def is_lent(segment: Segment) -> bool:
    return segment.is_lent


def test_lent_until_the_last_view_is_gone(tmp_path: Path) -> None:
    """Also a map that was lent while it was still written, and is shared by those who come after."""
    _, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    assert not is_lent(segment)
    with segment.array_for_scan() as early:
        segment.seal()
        assert is_lent(segment)
        with segment.array_for_scan() as late:
            assert np.shares_memory(early, late)
        segment.retire()
        assert is_lent(segment)
    del early
    assert is_lent(segment)
    assert bytes(late[:2]) == b"xx"
    del late
    assert not is_lent(segment)


def test_a_file_that_cannot_be_removed_is_not_retired(tmp_path: Path) -> None:
    files, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    files.fail("remove", error=errno.EROFS)
    with pytest.raises(OSError):
        segment.retire()
    assert segment.read(0, 2) == b"xx"
    segment.retire()
    assert segment.read(0, 2) == b""


def test_a_file_that_somebody_else_removed_is_retired_all_the_same(tmp_path: Path) -> None:
    _, segment = make(tmp_path)
    segment.path.unlink()
    segment.retire()
    assert segment.file is None


def test_readers_survive_a_segment_being_sealed_and_retired(tmp_path: Path) -> None:
    """A reader gets the right bytes or none, and never those of another file with the same descriptor."""
    _, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    started, answers = threading.Event(), set[bytes]()

    def read() -> None:
        while True:
            answer = segment.read(0, SIZE)
            started.set()
            answers.add(answer)
            if not answer:
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    started.wait()
    segment.seal()
    segment.retire()
    others = [RealFiles().create(tmp_path / str(number), SIZE, fallocate=True) for number in range(20)]
    for reader in readers:
        reader.join()
    assert answers == {b"x" * SIZE, b""}
    assert len(others) == 20


def test_zero_from_leaves_the_front(tmp_path: Path) -> None:
    _, segment = make(tmp_path)
    store(segment, b"x" * SIZE)
    assert segment.zero_from(10) > 0
    assert bytes(segment.target) == b"x" * 10 + bytes(SIZE - 10)


def test_a_short_file_is_opened_as_it_is_and_can_be_extended(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"short")
    segment = Segment.open(RealFiles(), tmp_path / "f", 0, writable=True)
    assert (segment.size, segment.wrote, segment.flushed) == (5, 5, 5)
    assert segment.read(0, 100) == b"short"
    segment.extend(SIZE)
    assert segment.wrote == 5
    segment.activate()
    store(segment, b"er")
    assert segment.read(0, 100) == b"shorter"
    assert (tmp_path / "f").stat().st_size == SIZE


def test_an_empty_file_can_be_opened_and_scanned(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    segment = Segment.open(RealFiles(), tmp_path / "f", 0, writable=False)
    assert segment.read(0, 10) == b""
    with segment.array_for_scan() as array:
        assert len(array) == 0


def test_flushed_bytes_survive_a_crash_and_the_name_too() -> None:
    files = LossyFiles()
    files.make_directory(Path("/log"))
    segment = Segment.create(files, Path("/log/f"), 0, SIZE)
    store(segment, b"flushed")
    segment.flush()
    store(segment, b" not")
    content = files.crash().read_all(Path("/log/f"))
    assert len(content) == SIZE
    assert content.rstrip(b"\0") == b"flushed"
