"""The set of segments: loading reports and changes nothing, finding, rolling, cutting, deleting."""

import errno
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from embermq.files import Files, OpenFile, RealFiles
from embermq.files.segment_listing import found_size, misfits, size_of_files
from embermq.files.segments import Segments
from embermq.format.names import segment_name
from embermq.testing.faulty_files import FaultyFiles, Killed
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import random_fates

SIZE = 8192


def lay(root: Path, sizes: Sequence[int], *, spacing: int = SIZE, first: int = 0) -> None:
    """Files of these sizes, each full of its own number."""
    root.mkdir(exist_ok=True)
    for number, size in enumerate(sizes):
        (root / segment_name(first + number * spacing)).write_bytes(bytes([number + 1]) * size)


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def grown(root: Path, count: int, files: Files | None = None) -> Segments:
    """A log of `count` full segments."""
    files = files or RealFiles()
    files.make_directory(root)
    segments = Segments([root], files, SIZE)
    for number in range(count):
        segment = segments.roll()
        segment.target[:] = bytes([number + 1]) * SIZE
        segment.wrote = SIZE
        segment.flush()
    return segments


def test_an_absent_directory_is_an_empty_log(tmp_path: Path) -> None:
    segments = Segments([tmp_path / "none"], RealFiles(), SIZE)
    assert segments.load() == []
    assert (segments.min_offset, segments.max_offset, segments.wrote_offset) == (-1, 0, 0)
    assert segments.first is None
    assert segments.last is None
    assert segments.find(0) is None
    assert not segments.flush()
    assert segments.flushed_offset == 0


def test_load_finds_files_in_order(tmp_path: Path) -> None:
    lay(tmp_path, [SIZE] * 3, first=5 * SIZE)
    segments = Segments([tmp_path], RealFiles(), SIZE)
    assert segments.load() == []
    assert [segment.start for segment in segments] == [5 * SIZE, 6 * SIZE, 7 * SIZE]
    assert (segments.min_offset, segments.max_offset, segments.flushed_offset) == (
        5 * SIZE,
        8 * SIZE,
        8 * SIZE,
    )
    assert segments.find(5 * SIZE - 1) is None
    assert segments.find(8 * SIZE) is None
    for offset, index in ((5 * SIZE, 0), (6 * SIZE - 1, 0), (6 * SIZE, 1), (8 * SIZE - 1, 2)):
        assert segments.find(offset) is segments.all[index]
    assert segments.after(segments.all[0]) is segments.all[1]
    assert segments.after(segments.all[2]) is None
    assert segments.all[1].read(0, 2) == b"\2\2"


def test_load_changes_nothing_whatever_it_finds(tmp_path: Path) -> None:
    lay(tmp_path, [SIZE, SIZE, 100])
    lay(tmp_path, [0], first=3 * SIZE)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "123").write_text("too few digits")
    (tmp_path / segment_name(9 * SIZE)).mkdir()
    before = snapshot(tmp_path)
    for read_only in (True, False):
        segments = Segments([tmp_path], RealFiles(), SIZE, read_only=read_only)
        findings = segments.load()
        assert {path.name for path in segments.foreign} == {"notes.txt", "123", segment_name(9 * SIZE)}
        faults = {finding.path.name: finding.fault for finding in findings}
        assert faults[segment_name(2 * SIZE)] == f"100 bytes instead of {SIZE}"
        assert faults[segment_name(3 * SIZE)] == "empty file"
        assert [segment.size for segment in segments] == [SIZE, SIZE, 100, 0]
        segments.close()
    assert snapshot(tmp_path) == before


def test_a_short_last_file_is_extended_on_request(tmp_path: Path) -> None:
    lay(tmp_path, [SIZE, 100])
    segments = Segments([tmp_path], RealFiles(), SIZE)
    assert len(segments.load()) == 1
    last = segments.all[-1]
    segments.extend_short(last)
    assert last.size == SIZE
    assert (tmp_path / segment_name(SIZE)).read_bytes() == b"\2" * 100 + bytes(SIZE - 100)
    assert Segments([tmp_path], RealFiles(), SIZE).load() == []


@pytest.mark.parametrize("sizes", [[4096], [4096, 4096], [4096, 4096, 10], [4096, 4096, 0]])
def test_the_size_on_disk_wins_over_the_setting(tmp_path: Path, sizes: list[int]) -> None:
    lay(tmp_path, sizes, spacing=4096)
    segments = Segments([tmp_path], RealFiles(), SIZE)
    findings = segments.load()
    assert segments.segment_bytes == 4096
    assert findings[0].path == tmp_path
    assert "4096" in findings[0].fault


@pytest.mark.parametrize("size", [0, 1, 100, 4097, SIZE - 1])
def test_a_lone_file_of_an_odd_length_was_cut(tmp_path: Path, size: int) -> None:
    lay(tmp_path, [size])
    segments = Segments([tmp_path], RealFiles(), SIZE)
    assert len(segments.load()) == 1
    assert segments.segment_bytes == SIZE


@pytest.mark.parametrize(
    ("found", "configured", "size"),
    [
        ([], 50, 50),
        ([(0, 4096)], 50, 4096),
        ([(0, 4097)], 50, 50),
        ([(0, 100), (100, 100), (200, 7)], 50, 100),
        ([(0, 101), (100, 100), (200, 100)], 5000, 100),  # grown
        ([(0, 101), (100, 100)], 5000, 100),
        ([(0, 33), (100, 100), (200, 100)], 5000, 100),  # cut
        ([(0, 33), (100, 1)], 5000, 100),
        ([(0, 50), (100, 100), (200, 100)], 100, 100),  # cut, to a length that might be one
        ([(0, 50), (100, 100), (200, 100)], 5000, 100),
        ([(0, 0), (100, 0), (200, 0)], 100, 100),
        ([(300, 100), (700, 100), (900, 3)], 5000, 100),  # with files missing in between
        ([(0, 101), (100, 100), (200, 100)], 1, 100),
        ([(0, 4096), (65536, 65536)], 5000, 65536),  # cut, to a length that would fit
        ([(0, 4096), (8192, 4096)], 8192, 8192),  # all of them cut, as the settings tell
        ([(0, 30001), (65536, 4096)], 5000, 65536),
        ([(0, 30001), (65536, 30001)], 5000, 65536),
        ([(0, 65536), (32768, 100)], 5000, 65536),  # with a stray one
        ([(0, 65536), (32768, 100)], 65536, 65536),
        ([(0, 65536), (123, 100), (777, 5)], 5000, 65536),
        ([(0, 65536), (400000, 65536)], 5000, 65536),
        ([(0, 100), (50, 10), (100, 100), (200, 7)], 5000, 100),
        ([(0, 65536), (32768, 100), (65536, 65536), (131072, 0)], 5000, 65536),
        ([(8192, 16384), (16384, 8192), (24576, 1)], 5000, 8192),
    ],
    ids=str,
)
def test_size_of_files(found: list[tuple[int, int]], configured: int, size: int) -> None:
    assert size_of_files(found, configured) == size


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.slow
def test_a_few_files_that_are_wrong_do_not_hide_the_size(seed: int) -> None:
    """Most files are whole. The others were cut, grew, or are none of the log, and some are missing."""
    chance = random.Random(seed)
    size = chance.choice([1000, 4096, 5000, 65536, 1 << 20])
    first = chance.randrange(5)
    numbers = sorted(chance.sample(range(first, first + 12), chance.randint(5, 12)))
    lengths = {number * size: size for number in numbers}
    for start in chance.sample(sorted(lengths), chance.randint(0, len(lengths) // 3)):
        lengths[start] = chance.choice([0, 1, size // 2, size - 1, size + 1, 2 * size, chance.randrange(2 * size)])
    stray = {start for start in (chance.randrange(1, 17 * size) for _ in range(chance.randint(0, 2))) if start % size}
    lengths |= {start: chance.choice([0, 1, 100, size, chance.randrange(2 * size)]) for start in stray}
    found = sorted(lengths.items())
    for configured in (0, size, 1 << 30, 77):
        assert found_size(found, configured) == size, found
        assert misfits(found, configured) == stray


def test_nothing_is_known_about_the_size() -> None:
    assert found_size([]) == found_size([(0, 0)]) == found_size([(0, 4097)]) == 0
    assert misfits([]) == misfits([(3, 4097)]) == set()
    assert misfits([(3, 4097)], 1000) == set()  # The whole log would be gone.
    assert misfits([(0, 30001), (20000, 5)], 65536) == {20000}


@pytest.mark.parametrize("configured", [SIZE, 4096, 1 << 30])
@pytest.mark.parametrize(
    ("start", "content"),
    [(SIZE // 2, bytes(100)), (123, b"mine"), (3 * SIZE + 1, b"x" * SIZE), (99, b""), (40 * SIZE + 9, b"y" * 4096)],
)
def test_a_file_that_fits_nowhere_is_never_touched(tmp_path: Path, start: int, content: bytes, configured: int) -> None:
    lay(tmp_path, [SIZE] * 4)
    stray = tmp_path / segment_name(start)
    stray.write_bytes(content)
    before = snapshot(tmp_path)
    segments = Segments([tmp_path], RealFiles(), configured)
    findings = [finding for finding in segments.load() if finding.path != tmp_path]
    assert [(finding.path, finding.remedy) for finding in findings] == [(stray, "left alone")]
    assert segments.foreign == [stray]
    assert segments.segment_bytes == SIZE
    assert [segment.start for segment in segments] == [number * SIZE for number in range(4)]
    assert snapshot(tmp_path) == before
    segments.roll()
    segments.truncate_to(SIZE + 10)
    segments.delete_before(SIZE)
    while segments.delete_first() is not None:
        pass
    left = snapshot(tmp_path)
    assert left.pop(stray.name) == before[stray.name]
    assert len(left) <= 1, "the newest file stays"


def test_gaps_and_long_files_are_reported(tmp_path: Path) -> None:
    lay(tmp_path, [SIZE, SIZE + 5])
    lay(tmp_path, [SIZE], first=5 * SIZE)
    segments = Segments([tmp_path], RealFiles(), SIZE)
    faults = [finding.fault for finding in segments.load()]
    assert faults == [f"{SIZE + 5} bytes instead of {SIZE}", f"gap after {segment_name(SIZE)}"]
    assert [segment.size for segment in segments] == [SIZE] * 3
    assert segments.find(3 * SIZE) is None


def test_read_only_opens_nothing_for_writing(tmp_path: Path) -> None:
    lay(tmp_path, [SIZE])
    segments = Segments([tmp_path], RealFiles(), SIZE, read_only=True)
    segments.load()
    (segment,) = segments
    assert segment.file is not None
    assert not segment.file.writable
    with segment.array_for_scan() as array:
        assert not array.flags.writeable
    with pytest.raises(AssertionError):
        segments.roll()


def test_several_directories_are_one_log_and_take_turns(tmp_path: Path) -> None:
    roots = [tmp_path / "b", tmp_path / "a"]
    files = RealFiles()
    for root in roots:
        files.make_directory(root)
    segments = Segments(roots, files, SIZE)
    for _ in range(4):
        segments.roll().wrote = SIZE
    assert [segment.path.parent.name for segment in segments] == ["a", "b", "a", "b"]
    segments.close()
    lay(tmp_path / "old", [SIZE], first=4 * SIZE)
    lay(tmp_path / "a", [SIZE], first=4 * SIZE)
    again = Segments(roots, files, SIZE, read_only_directories=[tmp_path / "old"])
    findings = again.load()
    assert [finding.fault.split(" of ")[0] for finding in findings] == ["second copy"]
    assert [segment.start for segment in again] == [number * SIZE for number in range(5)]


def test_a_full_directory_is_skipped_unless_all_are(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    full = {roots[1]}
    segments = Segments(roots, RealFiles(), SIZE, is_too_full=lambda path: path in full)
    assert [segments.path_for(n * SIZE).parent.name for n in range(4)] == ["a", "c", "a", "c"]
    full.update(roots)
    assert [segments.path_for(n * SIZE).parent.name for n in range(4)] == ["a", "b", "c", "a"]


def test_the_first_file_starts_at_a_whole_multiple(tmp_path: Path) -> None:
    segments = Segments([tmp_path], RealFiles(), SIZE)
    assert segments.roll(3 * SIZE + 17).start == 3 * SIZE


def test_roll_seals_the_segment_left_behind(tmp_path: Path) -> None:
    segments = grown(tmp_path, 3)
    assert [segment.is_active for segment in segments] == [False, False, True]
    assert segments.wrote_offset == segments.max_offset == 3 * SIZE


def test_a_roll_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = grown(tmp_path, 1, files)
    files.fail("create", error=errno.ENOSPC)
    with pytest.raises(OSError):
        segments.roll()
    assert len(segments) == 1
    assert segments.all[0].is_active
    assert segments.roll().start == SIZE


def test_flush_covers_every_segment_and_stops_at_an_error(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = grown(tmp_path, 1, files)
    for _ in range(2):
        segments.roll().wrote = SIZE
    segments.roll().wrote = 10
    assert segments.flushed_offset == SIZE
    files.fail("sync", nth=2)
    with pytest.raises(OSError):
        segments.flush()
    assert segments.flushed_offset == 2 * SIZE
    assert segments.flush()
    assert segments.flushed_offset == 3 * SIZE + 10
    assert not segments.flush()


def test_truncate_cuts_inside_a_file_and_zeroes_the_rest(tmp_path: Path) -> None:
    segments = grown(tmp_path, 4)
    deleted = segments.truncate_to(SIZE + 100)
    assert [path.name for path in deleted] == [segment_name(3 * SIZE), segment_name(2 * SIZE)]
    assert segments.wrote_offset == segments.flushed_offset == SIZE + 100
    assert (tmp_path / segment_name(SIZE)).read_bytes() == b"\2" * 100 + bytes(SIZE - 100)
    assert segments.truncate_to(SIZE + 100) == []


def test_truncate_at_a_boundary_keeps_an_empty_file_and_beyond_the_end_nothing_happens(
    tmp_path: Path,
) -> None:
    segments = grown(tmp_path, 3)
    assert segments.truncate_to(99 * SIZE) == []
    assert segments.wrote_offset == 3 * SIZE
    segments.truncate_to(2 * SIZE)
    assert [segment.wrote for segment in segments] == [SIZE, SIZE, 0]
    segments.truncate_to(0)
    assert [segment.wrote for segment in segments] == [0]
    assert segments.min_offset == 0


def test_truncate_stopped_at_any_step_leaves_a_log_without_a_hole() -> None:
    root = Path("/log")
    for seed in range(3):
        for step in range(1, 20):
            lossy = LossyFiles()
            files = FaultyFiles(lossy)
            segments = grown(root, 4, files)

            def kill() -> None:
                raise Killed

            files.before(step=len(files.steps) + step, call=kill)
            try:
                segments.truncate_to(SIZE + 5)
            except Killed:
                pass
            else:
                assert step > 5
                break
            after = Segments([root], lossy.crash(random_fates(seed)), SIZE)
            after.load()
            names = [segment.start // SIZE for segment in after]
            # A removal that was not synced may be undone, in any combination; what stays is never lost.
            assert names[:2] == [0, 1]
            assert after.all[0].read(0, SIZE) == b"\1" * SIZE
            assert after.all[1].read(0, 5) == b"\2" * 5


def test_delete_before_takes_whole_files_and_never_the_last(tmp_path: Path) -> None:
    segments = grown(tmp_path, 4)
    assert segments.delete_before(SIZE - 1) == []
    assert len(segments.delete_before(2 * SIZE + 1)) == 2
    assert segments.min_offset == 2 * SIZE
    assert len(segments.delete_before(10**9)) == 1
    assert [segment.start for segment in segments] == [3 * SIZE]
    assert segments.delete_first() is None
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(3 * SIZE)]


def test_a_file_that_cannot_be_deleted_stays_in_the_set(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = grown(tmp_path, 3, files)
    files.fail("remove", error=errno.EACCES)
    with pytest.raises(OSError):
        segments.delete_first()
    assert [segment.start for segment in segments] == [0, SIZE, 2 * SIZE]
    assert segments.all[0].read(0, 1) == b"\1"
    files.fail("sync_directory")
    with pytest.raises(OSError):
        segments.delete_first()  # It is gone, only not for sure.
    assert [segment.start for segment in segments] == [SIZE, 2 * SIZE]


def test_a_roll_does_not_wait_for_a_deletion(tmp_path: Path) -> None:
    files = FaultyFiles(RealFiles())
    segments = grown(tmp_path, 2, files)
    rolled: list[int] = []
    files.before(step=len(files.steps) + 1, call=lambda: rolled.append(segments.roll().start))
    segments.delete_first()
    assert rolled == [2 * SIZE]
    assert [segment.start for segment in segments] == [SIZE, 2 * SIZE]


def test_a_file_deleted_while_it_is_scanned_stays_readable(tmp_path: Path) -> None:
    segments = grown(tmp_path, 2)
    first = segments.all[0]
    with first.array_for_scan() as array:
        assert segments.delete_first() is first
        assert segments.find(0) is None
        assert bytes(array) == b"\1" * SIZE


def test_when_a_file_was_changed(tmp_path: Path) -> None:
    [segment] = grown(tmp_path, 1)
    RealFiles().set_mtime(segment.path, 1000 * 10**9)
    assert segment.mtime_ms() == 1_000_000


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_goes_while_the_log_is_opened(tmp_path: Path, read_only: bool) -> None:
    for number in range(3):
        (tmp_path / f"{number * 4096:020d}").write_bytes(bytes(4096))

    class Retained(RealFiles):
        def open(self, path: Path, writable: bool) -> OpenFile:
            (tmp_path / f"{0:020d}").unlink(missing_ok=True)
            return super().open(path, writable)

    segments = Segments([tmp_path], Retained(), 4096, read_only=read_only)
    if not read_only:
        with pytest.raises(FileNotFoundError):
            segments.load()
        return
    assert segments.load() == []
    assert [segment.start for segment in segments] == [4096, 8192]
