"""What a survey should see, found the slow and obvious way: record by record with the plain decoder."""

from dataclasses import dataclass
from pathlib import Path

from embermq.columns.rows import C_PHYSICAL
from embermq.format.frame import Frame, Padding, decode
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.model.flags import has_queue_entry


def frames_of(root: Path) -> list[Frame]:
    """Every record of an undamaged log, up to the first place without one."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data, start, at = path.read_bytes(), int(path.name), 0
        while isinstance(one := decode(data, at, len(data), physical_offset=start + at, check_crc=True), Frame):
            found.append(one)
            at += one.size
        if not isinstance(one, Padding):
            break
    return found


@dataclass(frozen=True)
class Seen:
    """What a scan gave: places of records, and ranges without one."""

    places: list[int]
    damages: list[tuple[int, int]]


def seen_by(survey: Survey, start: int | None = None, end: int | None = None, **how: object) -> Seen:
    places, damages = [], []
    first = survey.log_min if start is None else start
    for one in survey.scan(first, survey.log_end if end is None else end, **how):  # type: ignore[arg-type]
        if isinstance(one, DamagedRange):
            damages.append((one.start, one.end))
        else:
            places += one.column(C_PHYSICAL).tolist()
    return Seen(places, damages)


def places_of(root: Path) -> list[int]:
    return [frame.physical_offset for frame in frames_of(root)]


def bounds_of(survey: Survey) -> dict[tuple[str, int], tuple[int, int]]:
    return {key: (span.min_offset, span.max_offset) for key, span in survey.queues().items()}


def expected_bounds(frames: list[Frame]) -> dict[tuple[str, int], tuple[int, int]]:
    """Minimum and maximum of every queue, from the records alone."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for frame in frames:
        if has_queue_entry(frame.sys_flag):
            key = frame.topic, frame.queue_id
            low = found[key][0] if key in found else frame.queue_offset
            found[key] = low, frame.queue_offset + 1
    return found


def check_against_log(survey: Survey, frames: list[Frame]) -> None:
    """Everything the survey says of log and queues is what the records say."""
    assert seen_by(survey) == Seen([frame.physical_offset for frame in frames], [])
    assert survey.log_end >= (frames[-1].end if frames else survey.log_min)
    assert bounds_of(survey) == expected_bounds(frames)
    for key, span in survey.queues().items():
        mine = [frame for frame in frames if (frame.topic, frame.queue_id) == key and has_queue_entry(frame.sys_flag)]
        entries = survey.entries(*key, span.min_offset, span.max_offset)
        assert entries["physical_offset"].tolist() == [frame.physical_offset for frame in mine]
        assert entries["size"].tolist() == [frame.size for frame in mine]
        assert span.first_physical <= mine[0].physical_offset
        assert mine[-1].end <= span.end_physical
