"""Scanning log files: every record once, whatever windows, slices and damage there are; all of it as values."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.columns.rows import C_PHYSICAL
from embermq.format import frame
from embermq.inspect.snapshot import DamagedRange, LogSegment, Survey, scan_segments
from embermq.store.log import file_scan as survey_scan
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.support.kernels import force_compiled, force_plain
from tests.support.surveys import Seen, frames_of, places_of, seen_by

SEGMENT_BYTES = 8192


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four log files of all kinds of records, closed."""
    builder = StoreBuilder(tmp_path_factory.mktemp("scan") / "store", **numbered.TINY)
    with builder.open() as opened:
        n = 0
        while opened.max_physical < 3 * SEGMENT_BYTES + 2000:
            n += len(numbered.append(opened, n))
    return builder.root


@pytest.fixture(params=["kernel", "twin"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to scan: compiled, and plain."""
    if request.param == "kernel":
        force_compiled(monkeypatch)
    else:
        force_plain(monkeypatch)
    return str(request.param)


@pytest.fixture
def change(store: Path, tmp_path: Path) -> Callable[..., Survey]:
    """`change(place, data, ...)`: a survey of a copy of the store with other bytes at these places of its log.

    The bounds are those of the undamaged store.
    """
    whole = Survey.open(store)
    segments = []
    (tmp_path / "commitlog").mkdir()
    for segment in whole.segments:
        path = tmp_path / "commitlog" / segment.path.name
        path.write_bytes(segment.path.read_bytes())
        segments.append(LogSegment(path, segment.start, segment.size))

    def apply(*changes: Any) -> Survey:
        for place, data in zip(changes[::2], changes[1::2], strict=True):
            segment = survey_scan.segment_at(segments, place)
            assert segment is not None
            with segment.path.open("r+b") as file:
                file.seek(place - segment.start)
                file.write(data)
        return Survey.open(tmp_path)

    return apply


def scan(segments: tuple[LogSegment, ...], start: int, end: int, **how: Any) -> Seen:
    places, damages = [], []
    for one in scan_segments(segments, start, end, **how):
        if isinstance(one, DamagedRange):
            damages.append((one.start, one.end))
        else:
            assert len(one)
            places += one.column(C_PHYSICAL).tolist()
    return Seen(places, damages)


@pytest.mark.parametrize("rows_max", [1, 2, 7, 100, 16384])
@pytest.mark.parametrize("window", [(64, 64), (100, 1000), (64, 1 << 20), (1 << 20, 1 << 20)])
def test_windows_and_rows_change_nothing(
    store: Path, way: str, rows_max: int, window: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_scan, "FIRST_WINDOW_BYTES", window[0])
    monkeypatch.setattr(survey_scan, "WINDOW_BYTES", window[1])
    survey = Survey.open(store)
    assert scan(survey.segments, 0, survey.log_end, rows_max=rows_max) == Seen(places_of(store), [])
    assert scan(survey.segments, 0, survey.log_end, rows_max=rows_max, check_crc=False) == Seen(places_of(store), [])


def test_columns_hold_the_record(store: Path, way: str) -> None:
    frames = iter(frames_of(store))
    survey = Survey.open(store)
    for columns in survey.scan(0, survey.log_end, rows_max=5):
        assert not isinstance(columns, DamagedRange)
        for i in range(len(columns)):
            one = next(frames)
            assert (columns.topic(i), columns.body(i), columns.properties(i)) == (one.topic, one.body, one.properties)
    assert next(frames, None) is None


def test_slices_together_are_the_whole(store: Path, way: str) -> None:
    """A record is in the slice in which it begins, wherever the cuts are."""
    survey, source = Survey.open(store), random.Random(5)
    for _ in range(20):
        cuts = sorted(source.sample(range(1, survey.log_end), 5))
        edges = [0, *cuts, survey.log_end]
        found: list[int] = []
        for start, end in pairwise(edges):
            seen = scan(survey.segments, survey.record_start(start), end)
            assert not seen.damages
            assert all(start <= place < end for place in seen.places)
            found += seen.places
        assert found == places_of(store)


def test_an_empty_range_has_nothing(store: Path) -> None:
    survey = Survey.open(store)
    assert scan(survey.segments, 500, 500) == scan(survey.segments, 500, 400) == Seen([], [])
    assert scan((), 0, 0) == Seen([], [])


def test_a_record_larger_than_any_window(tmp_path: Path, way: str) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=12 << 20, message_bytes_max=9 << 20)
    with builder.open() as opened:
        opened.append_many([Message("t", b"a"), Message("t", random.Random(1).randbytes(9 << 20)), Message("t", b"b")])
    survey = Survey.open(builder.root)
    assert seen_by(survey) == Seen(places_of(builder.root), [])
    assert len(seen_by(survey).places) == 3


# -- damage --------------------------------------------------------------------------------------------------


def damaged_frames(store: Path) -> Iterator[tuple[int, int, int]]:
    """Number, place and size of a record in the middle, one at a file's start, the first, and the last of a file."""
    frames = frames_of(store)
    second_file = next(i for i, one in enumerate(frames) if one.physical_offset == SEGMENT_BYTES)
    for number in (0, 5, 14, second_file - 1, second_file, second_file + 3):
        yield number, frames[number].physical_offset, frames[number].size


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("kind", ["zeros", "noise", "head", "flipped body", "flipped size", "magic"])
def test_damage_in_the_middle_is_a_value(
    store: Path, way: str, which: int, kind: str, change: Callable[..., Survey]
) -> None:
    number, place, size = list(damaged_frames(store))[which]
    whole = frames_of(store)[number]
    if kind == "flipped body" and not len(whole.body):
        pytest.skip("no body")
    noise = random.Random(number).randbytes(size)
    body_at = place + 88
    changes = {
        "zeros": (place, bytes(size)),
        "noise": (place, noise),
        "head": (place, bytes(20)),
        "flipped body": (body_at, bytes([whole.body[0] ^ 4])),
        "flipped size": (place, b"\x01"),
        "magic": (place + 4, b"\xda\xa3\x20\xa8"),
    }[kind]
    survey = change(*changes)
    places = places_of(store)
    seen = seen_by(survey)
    end = next((later for later in places if later > place), survey.log_end)
    assert seen.places == [one for one in places if one != place]
    if place // SEGMENT_BYTES == end // SEGMENT_BYTES:
        assert seen.damages == [(place, end)]
    else:  # The last of a file: nothing of that file can be read from there on.
        assert seen.damages == [(place, SEGMENT_BYTES * (place // SEGMENT_BYTES + 1))]


def test_damage_without_sums_is_what_lengths_show(store: Path, change: Callable[..., Survey]) -> None:
    whole = next(one for one in frames_of(store) if len(one.body))
    survey = change(whole.physical_offset + 88, bytes([whole.body[0] ^ 4]))
    assert seen_by(survey, check_crc=False) == Seen(places_of(store), [])
    assert seen_by(survey).damages == [(whole.physical_offset, whole.end)]


def test_a_body_that_looks_like_a_record_is_none(tmp_path: Path, way: str) -> None:
    """The size of a damaged record is believed before a search is begun, and places are compared."""
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        first = opened.append(Message("t", b"first"))
        inner = frames_of(builder.root)[0]
        record = frame.encode(
            physical_offset=first.size + 88,
            queue_id=0,
            queue_offset=9,
            topic="t",
            body=b"fake",
            properties=b"",
            born_timestamp=1,
            born_host=inner.born_host,
            store_timestamp=1,
            store_host=inner.store_host,
        )
        outer = opened.append(Message("t", record + b"tail"))
        opened.append(Message("t", b"last"))
    path = builder.root / "commitlog" / "0".zfill(20)
    with path.open("r+b") as file:
        file.seek(outer.physical_offset + 88 + len(record))
        file.write(b"TAIL")
    seen = seen_by(Survey.open(builder.root))
    assert seen.places == [0, outer.physical_offset + outer.size]
    assert seen.damages == [(outer.physical_offset, outer.physical_offset + outer.size)]


def test_several_damages(store: Path, way: str, change: Callable[..., Survey]) -> None:
    frames = frames_of(store)
    broken = [frames[i] for i in (2, 3, 9, 20)]
    changes: list[Any] = []
    for one in broken:
        changes += [one.physical_offset, bytes(one.size)]
    seen = seen_by(change(*changes))
    gone = {one.physical_offset for one in broken}
    assert seen.places == [place for place in places_of(store) if place not in gone]
    assert seen.damages == [
        (broken[0].physical_offset, broken[1].end),
        (broken[2].physical_offset, broken[2].end),
        (broken[3].physical_offset, broken[3].end),
    ]


def test_slices_agree_on_damage(store: Path, way: str, change: Callable[..., Survey]) -> None:
    """Cut anywhere, the slices of a damaged log have its records once each."""
    frames = frames_of(store)
    survey = change(frames[4].physical_offset, bytes(frames[4].size + frames[5].size), SEGMENT_BYTES, bytes(30))
    whole = seen_by(survey)
    for cut in range(frames[3].physical_offset, frames[7].end, 7):
        middle = survey.record_start(cut)
        first, second = seen_by(survey, 0, middle), seen_by(survey, middle)
        assert first.places + second.places == whole.places
        assert first.damages + second.damages == whole.damages


@pytest.mark.parametrize("gone", [[1], [1, 2], [0], [3]])
def test_missing_files_are_damage_or_no_part_of_the_log(
    store: Path, way: str, gone: list[int], change: Callable[..., Survey]
) -> None:
    paths = sorted(change().segments, key=lambda segment: segment.start)
    for number in gone:
        paths[number].path.unlink()
    survey = change()
    left = [place for place in places_of(store) if place // SEGMENT_BYTES not in gone]
    assert survey.log_min == (SEGMENT_BYTES if gone == [0] else 0)
    expected = [(SEGMENT_BYTES, SEGMENT_BYTES * (gone[-1] + 1))] if gone[0] in (1, 2) else []
    assert seen_by(survey) == Seen(left, expected)


def test_a_file_that_goes_between_looking_and_scanning(store: Path, change: Callable[..., Survey]) -> None:
    survey = change()
    survey.segments[1].path.unlink()
    left = [place for place in places_of(store) if place // SEGMENT_BYTES != 1]
    assert seen_by(survey) == Seen(left, [(SEGMENT_BYTES, 2 * SEGMENT_BYTES)])


def test_a_short_file_ends_where_it_ends(store: Path, way: str, change: Callable[..., Survey]) -> None:
    frames = [one for one in frames_of(store) if one.physical_offset // SEGMENT_BYTES == 1]
    cut = frames[3]
    path = change().segments[1].path
    path.write_bytes(path.read_bytes()[: cut.physical_offset + 50 - SEGMENT_BYTES])
    survey = change()
    left = [place for place in places_of(store) if not cut.physical_offset <= place < 2 * SEGMENT_BYTES]
    seen = seen_by(survey)
    assert seen.places == left
    assert (seen.damages[0][0], seen.damages[-1][1]) == (cut.physical_offset, 2 * SEGMENT_BYTES)


def test_noise_is_no_records(tmp_path: Path, way: str) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "0".zfill(20)).write_bytes(random.Random(2).randbytes(50_000))
    survey = Survey.open(tmp_path)
    assert survey.log_end == 0
    assert scan(survey.segments, 0, 50_000) == Seen([], [(0, 50_000)])
