"""Files are made ahead of the writer, pages too, and a failure reaches the one who waits."""

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.files import Files, OpenFile, RealFiles, memory
from embermq.files.allocation import MIB, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES, GrowthPace, SegmentAllocator
from embermq.files.pool import TransientPool
from embermq.files.segment import Segment
from embermq.files.segments import Segments
from embermq.format.names import segment_name
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles

SIZE = 64 * 1024


def make(root: Path, files: Files | None = None, *, size: int = SIZE, clock: ManualClock | None = None) -> Segments:
    segments = Segments([root], files or RealFiles(), size)
    segments.load()
    segments.make_ahead_with(SegmentAllocator(segments, clock=clock))
    return segments


def allocator_of(segments: Segments) -> SegmentAllocator:
    assert isinstance(segments._allocator, SegmentAllocator)
    return segments._allocator


def test_pace_rises_at_once_and_falls_slowly() -> None:
    pace = GrowthPace()
    pace.observe(0, 0.0)
    assert pace.window_bytes == WINDOW_MIN_BYTES
    assert pace.poll_s == pytest.approx(0.05)
    pace.observe(50 * MIB, 0.1)
    assert pace.bytes_per_s == pytest.approx(500 * MIB)
    assert pace.window_bytes == 25 * MIB
    assert pace.poll_s == pytest.approx(0.025)
    pace.observe(50 * MIB, 0.15)
    assert pace.bytes_per_s == pytest.approx(450 * MIB)
    pace.observe(50 * MIB, 10.0)
    assert pace.window_bytes == WINDOW_MIN_BYTES
    pace.observe(5000 * MIB, 10.1)
    assert pace.window_bytes == WINDOW_MAX_BYTES
    assert pace.poll_s >= 0.001


def test_pace_begins_again_when_the_log_is_cut_and_ignores_a_clock_that_stands() -> None:
    pace = GrowthPace()
    pace.observe(1000, 1.0)
    pace.observe(10, 2.0)
    assert pace.bytes_per_s == 0
    pace.observe(10**9, 2.0)
    assert pace.bytes_per_s == 0


def test_an_idle_log_has_no_file_ahead(tmp_path: Path) -> None:
    segments = make(tmp_path)
    segments.roll()
    allocator_of(segments).step()
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(0)]


def test_the_next_file_is_made_at_half_and_deleted_at_close(tmp_path: Path) -> None:
    segments = make(tmp_path)
    segments.roll().wrote = SIZE // 2 + 1
    allocator = allocator_of(segments)
    allocator.step()
    assert allocator.ready == [SIZE]
    assert (tmp_path / segment_name(SIZE)).stat().st_size == SIZE
    assert len(segments) == 1
    allocator.close()
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(0)]


def test_a_fast_log_has_two_files_ahead(tmp_path: Path) -> None:
    clock = ManualClock()
    segments = make(tmp_path, clock=clock)
    segment = segments.roll()
    allocator = allocator_of(segments)
    allocator.step()
    segment.wrote = SIZE // 4
    clock.advance(ms=10)
    allocator.step()
    assert allocator.ready == [SIZE, 2 * SIZE]


def test_files_ahead_that_will_not_be_wanted_are_deleted(tmp_path: Path) -> None:
    segments = make(tmp_path)
    for _ in range(3):
        segments.roll().wrote = SIZE
    allocator = allocator_of(segments)
    allocator.step()
    assert allocator.ready == [3 * SIZE]
    segments.truncate_to(10)
    last = segments.last
    assert last is not None
    last.activate()
    last.wrote = SIZE
    allocator.step()
    assert allocator.ready == [SIZE]
    assert not (tmp_path / segment_name(3 * SIZE)).exists()


def test_a_failure_ahead_is_quiet_and_tried_again_later(tmp_path: Path) -> None:
    files, clock = FaultyFiles(RealFiles()), ManualClock()
    segments = make(tmp_path, files, clock=clock)
    segments.roll().wrote = SIZE
    allocator = allocator_of(segments)
    files.fail("create", error=errno.ENOSPC)
    allocator.step()
    allocator.step()
    assert allocator.ready == []
    assert files.counts["create"] == 2
    clock.advance(s=2)
    allocator.step()
    assert allocator.ready == [SIZE]


def test_a_failure_reaches_the_writer_and_the_next_try_works(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = make(tmp_path, files)
    allocator = allocator_of(segments)
    allocator.start()
    files.fail("create", error=errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        segments.roll()
    assert caught.value.errno == errno.ENOSPC
    assert segments.roll().start == 0
    allocator.close()


class SlowFiles(RealFiles):
    """Creates nothing before `go` is set."""

    __slots__ = ("go",)

    def __init__(self) -> None:
        self.go = threading.Event()

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        self.go.wait()
        return super().create(path, size, fallocate=fallocate)


def test_a_slow_disk_is_not_waited_for_beyond_the_limit(tmp_path: Path) -> None:
    files = SlowFiles()
    segments = Segments([tmp_path], files, SIZE)
    allocator = SegmentAllocator(segments, wait_s=0.05)
    segments.make_ahead_with(allocator)
    allocator.start()
    with pytest.raises(TimeoutError):
        segments.roll()
    files.go.set()
    assert segments.roll().start == 0
    allocator.close()


def test_a_fast_writer_finds_every_file_and_its_bytes(tmp_path: Path) -> None:
    segments = make(tmp_path)
    allocator = allocator_of(segments)
    allocator.start()
    for number in range(60):
        segment = segments.roll()
        segment.target[:] = bytes([number]) * SIZE
        segment.wrote = SIZE
    allocator.close()
    assert [segment.start for segment in segments] == [number * SIZE for number in range(60)]
    assert all(segment.read(0, SIZE) == bytes([number]) * SIZE for number, segment in enumerate(segments))
    assert len(list(tmp_path.iterdir())) == 60
    assert sum(segment.is_active for segment in segments) == 1


def test_pages_ahead_of_the_writer_are_faulted_in(tmp_path: Path) -> None:
    size = 8 * MIB
    segments = make(tmp_path, size=size, clock=ManualClock())
    segment = segments.roll()
    allocator = allocator_of(segments)
    allocator.step()
    assert segment.view is not None
    if not memory.populate(segment.view, 0, 1):
        pytest.skip("this kernel cannot populate")
    assert segment.populated == WINDOW_MIN_BYTES
    segment.wrote = 6 * MIB
    allocator.step()
    assert segment.populated == size
    ahead = allocator.take(size)
    assert ahead.populated == 2 * MIB
    ahead.retire()


def test_a_kernel_that_cannot_populate_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(view: memoryview, start: int, end: int) -> bool:
        asked.append(start)
        return False

    monkeypatch.setattr(memory, "populate", refuse)
    segments = make(tmp_path)
    segment = segments.roll()
    allocator_of(segments).step()
    allocator_of(segments).step()
    assert asked == [0]
    assert segment.populated == 0


@pytest.mark.parametrize("found_on_disk", [True, False])
def test_small_pages_when_every_append_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_on_disk: bool
) -> None:
    """Otherwise the kernel writes a large folio for every small store."""
    asked: list[str] = []

    def answer(name: str) -> Callable[..., bool]:
        def note(view: memoryview, *range_: int) -> bool:
            asked.append(name)
            return True

        return note

    for name in ("advise_small_pages", "populate", "populate_for_reading"):
        monkeypatch.setattr(memory, name, answer(name))
    segments = Segments([tmp_path], RealFiles(), SIZE)
    if found_on_disk:
        segments.roll()
    allocator = SegmentAllocator(segments, synced_often=True)
    segments.make_ahead_with(allocator)
    if not found_on_disk:
        segments.roll()
    allocator.step()
    allocator.step()
    assert set(asked) == {"advise_small_pages", "populate_for_reading"}
    assert asked[0] == "advise_small_pages", "before any page is there"


def test_populating_never_undoes_a_store(tmp_path: Path) -> None:
    size = 32 * MIB
    segments = make(tmp_path, size=size)
    segment = segments.roll()
    allocator = allocator_of(segments)
    allocator.start()
    block = b"\7" * 4096
    for at in range(0, size, 4096):
        segment.target[at : at + 4096] = block
        segment.wrote = at + 4096
    allocator.close()
    assert bytes(segment.target) == b"\7" * size


def test_a_warmed_and_locked_file(tmp_path: Path) -> None:
    segments = Segments([tmp_path], RealFiles(), MIB)
    segments.make_ahead_with(SegmentAllocator(segments, warm_whole_file=True, lock_in_memory=True))
    first = segments.roll()
    assert first.populated == MIB
    first.wrote = MIB
    segments.roll()
    allocator_of(segments).step()
    assert not first.is_active
    assert first.read(0, 5) == bytes(5)


def test_buffers_are_attached_when_a_segment_is_taken(tmp_path: Path) -> None:
    pool = TransientPool(1, SIZE)
    segments = Segments([tmp_path], RealFiles(), SIZE)
    allocator = SegmentAllocator(segments, pool=pool, needs_buffer=True)
    segments.make_ahead_with(allocator)
    segment = segments.roll()
    assert segment.buffer is not None
    segment.target[:] = b"b" * SIZE
    segment.wrote = SIZE
    with pytest.raises(OSError) as caught:
        segments.roll()
    assert caught.value.errno == errno.ENOBUFS
    assert segments.max_offset == 0
    assert segments.commit()
    following = segments.roll()
    assert following.buffer is not None
    assert segments.max_offset == SIZE
    allocator.step()
    assert not segment.is_active
    assert segment.read(0, 3) == b"bbb"


def test_a_segment_with_an_uncommitted_buffer_is_sealed_later(tmp_path: Path) -> None:
    pool = TransientPool(2, SIZE)
    segments = Segments([tmp_path], RealFiles(), SIZE)
    allocator = SegmentAllocator(segments, pool=pool)
    segments.make_ahead_with(allocator)
    first = segments.roll()
    first.target[:] = b"c" * SIZE
    first.wrote = SIZE
    segments.roll()
    allocator.step()
    assert [segment.is_active for segment in segments] == [True, True]
    assert segments.max_offset == 0, "nothing after an uncommitted byte is readable"
    segments.commit()
    allocator.step()
    assert [segment.is_active for segment in segments] == [False, True]
    assert segments.max_offset == SIZE


def test_close_wakes_a_waiting_writer(tmp_path: Path) -> None:
    files = SlowFiles()
    segments = Segments([tmp_path], files, SIZE)
    allocator = SegmentAllocator(segments)
    segments.make_ahead_with(allocator)
    allocator.start()
    outcome: list[Segment | OSError] = []

    def roll() -> None:
        try:
            outcome.append(segments.roll())
        except OSError as error:
            outcome.append(error)

    writer = threading.Thread(target=roll)
    writer.start()
    closer = threading.Thread(target=allocator.close)
    time.sleep(0.05)  # let the writer wait; if it has not begun to, it still gets an answer
    closer.start()
    writer.join(2)
    assert not writer.is_alive()
    files.go.set()
    closer.join()
    assert isinstance(outcome[0], OSError)
    assert list(tmp_path.iterdir()) == []
