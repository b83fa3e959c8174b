"""A warmed file: every page there before the first record, and under SYNC_FLUSH on the disk, portion by portion."""

import errno
import mmap
from pathlib import Path

import pytest

from embermq import FlushDisk, Message, MessageStore, StoreSettings
from embermq.errors import SegmentUnavailable
from embermq.files import Files, RealFiles, memory
from embermq.files.allocation import SegmentAllocator
from embermq.files.segment import Segment
from embermq.files.segments import Segments
from embermq.files.warming import STEP_BYTES, warm
from embermq.testing import FaultyFiles
from tests.unit.files.test_memory import resident_kb

PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE


class Events:
    """What was done to pages and to the disk, in order."""

    def __init__(self, segment: Segment, monkeypatch: pytest.MonkeyPatch, *, can_populate: bool = True) -> None:
        self.seen: list[tuple[object, ...]] = []
        self._can_populate = can_populate
        monkeypatch.setattr(memory, "populate", self._populate)
        monkeypatch.setattr(memory, "touch", self._touch)
        monkeypatch.setattr(type(segment.file), "sync", lambda _file: self.seen.append(("sync",)))

    def _populate(self, view: memoryview, start: int, end: int) -> bool:
        if self._can_populate:
            self.seen.append(("populate", start // PAGE, end // PAGE))
        return self._can_populate

    def _touch(self, view: memoryview, start: int, end: int) -> None:
        self.seen.append(("touch", start // PAGE, end // PAGE))


def new_segment(root: Path, size: int = SIZE, files: Files | None = None) -> Segment:
    return Segment.create(files or RealFiles(), root / "f", 0, size)


def goes_on() -> bool:
    return False


def test_under_sync_flush_portions_are_synced_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path)
    events = Events(segment, monkeypatch)
    warm(segment, 24 * PAGE, goes_on)
    assert events.seen == [
        ("populate", 0, 24),
        ("sync",),
        ("populate", 24, 48),
        ("sync",),
        ("populate", 48, 64),
        ("sync",),
    ]
    assert segment.populated == SIZE


def test_without_sync_flush_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path)
    events = Events(segment, monkeypatch)
    warm(segment, 0, goes_on)
    assert events.seen == [("populate", 0, 64)]


def test_a_large_portion_is_populated_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path, 2 * STEP_BYTES + PAGE)
    events = Events(segment, monkeypatch)
    warm(segment, 1 << 30, goes_on)
    assert [kind for kind, *_ in events.seen] == ["populate", "populate", "populate", "sync"]


def test_a_kernel_that_cannot_populate_has_its_pages_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path)
    events = Events(segment, monkeypatch, can_populate=False)
    warm(segment, 32 * PAGE, goes_on)
    assert events.seen == [("touch", 0, 32), ("sync",), ("touch", 32, 64), ("sync",)]


def test_touched_pages_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path)
    monkeypatch.setattr(memory, "populate", lambda *_range: False)
    assert resident_kb(tmp_path / "f") == 0
    warm(segment, 32 * PAGE, goes_on)
    assert resident_kb(tmp_path / "f") == SIZE // 1024
    assert segment.view is not None
    assert not any(segment.view)


def test_warming_ends_when_no_one_will_use_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path)
    events = Events(segment, monkeypatch)
    warm(segment, 16 * PAGE, lambda: len(events.seen) == 2)
    assert events.seen == [("populate", 0, 16), ("sync",)]


def test_a_file_that_cannot_be_synced_is_not_used(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = Segments([tmp_path], files, SIZE)
    segments.make_ahead_with(SegmentAllocator(segments, warm_whole_file=True, warm_sync_bytes=16 * PAGE))
    files.fail("sync", nth=3, error=errno.ENOSPC)  # The first is of the empty file, the second of a portion.
    with pytest.raises(OSError) as caught:
        segments.roll()
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
    assert segments.last is None
    assert segments.roll().populated == SIZE


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_store_warms_its_files_by_its_settings(tmp_path: Path, flush: FlushDisk) -> None:
    files = FaultyFiles(RealFiles())
    settings = StoreSettings(
        flush=flush,
        segment_bytes=SIZE,
        queue_file_bytes=200,
        index_slots_max=100,
        index_entries_max=400,
        disk_full_percent=100,
        warm_segments=True,
        warm_flush_pages=16,
    )
    with MessageStore.open(tmp_path / "s", settings, files=files) as store:
        assert store.append(Message("t", b"x")).ok
        done = files.steps
        first = next(n for n, (kind, path) in enumerate(done) if kind == "create" and path.parent.name == "commitlog")
        log_file = done[first][1]
        syncs = [kind for kind, path in done[first:] if path == log_file and kind == "sync"]
        # One of the empty file, those of the warming, and under SYNC_FLUSH one for the message.
        assert len(syncs) == (1 + SIZE // (16 * PAGE) + 1 if flush is FlushDisk.SYNC else 1)


def test_a_store_whose_new_file_cannot_be_synced_refuses_the_append(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    settings = StoreSettings(
        flush=FlushDisk.SYNC, segment_bytes=SIZE, disk_full_percent=100, warm_segments=True, warm_flush_pages=16
    )
    with MessageStore.open(tmp_path / "s", settings, files=files) as store:
        files.fail("sync", nth=2, path_contains="commitlog")
        with pytest.raises(SegmentUnavailable):
            store.append(Message("t", b"x"))
        assert store.append(Message("t", b"x")).ok
