"""A store at a glance: what `embermq store info` shows. Values only; nothing is written, no lock is taken.

Everything comes from a Survey and from the small files beside the log; one thread.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from embermq.clock import SystemClock
from embermq.files import Files, RealFiles, entries_of
from embermq.format.checkpoint import Checkpoint, decode_checkpoint
from embermq.format.index import HEADER_BYTES, IndexHeader, decode_header
from embermq.format.names import parse_index_name
from embermq.inspect.lookup import message_at
from embermq.inspect.snapshot import QueueSpan, Survey
from embermq.settings import StoreSettings
from embermq.store.layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES_MAX,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    QUARANTINE,
    QUARANTINE_REPORT,
    lock_holder,
    log_places,
)
from embermq.store.log import LogSegment
from embermq.store.recovery import IndexPlan, decide_opening


@dataclass(frozen=True, slots=True)
class SegmentFact:
    """A log file: the bytes that hold records, and when the first of them was stored."""

    name: str
    start: int
    size: int
    used: int
    allocated: int
    first_store_ms: int | None


@dataclass(frozen=True, slots=True)
class QueueFact:
    """A queue, and when its first and last message were stored."""

    span: QueueSpan
    first_store_ms: int | None
    last_store_ms: int | None


@dataclass(frozen=True, slots=True)
class IndexFact:
    name: str
    size: int
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class Space:
    """Files of one directory of the store: bytes as listed, and bytes they take on the disk."""

    name: str
    files: int
    bytes: int
    allocated: int


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What opening the store for writing would do."""

    reason: str
    walk_from: int
    walk_bytes: int
    index: IndexPlan
    findings: list[str]


def segment_facts(survey: Survey) -> list[SegmentFact]:
    return [_segment_fact(survey, segment) for segment in survey.segments]


def _segment_fact(survey: Survey, segment: LogSegment) -> SegmentFact:
    used = min(max(survey.log_end - segment.start, 0), segment.size)
    first = message_at(survey, survey.record_start(segment.start)) if used else None
    inside = first is not None and first.physical_offset < segment.end
    return SegmentFact(
        segment.path.name,
        segment.start,
        segment.size,
        used,
        _allocated(segment.path),
        first.store_timestamp if first is not None and inside else None,
    )


def _allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0  # Retention has just taken it.


def queue_facts(survey: Survey) -> list[QueueFact]:
    """Every queue by name and number."""
    spans = [span for _, span in sorted(survey.queues().items())]
    with survey.holding_log_files():
        return [_queue_fact(survey, span) for span in spans]


def _queue_fact(survey: Survey, span: QueueSpan) -> QueueFact:
    first = _store_ms(survey, span, span.min_offset)
    has_one = span.max_offset - span.min_offset == 1
    return QueueFact(span, first, first if has_one else _store_ms(survey, span, span.max_offset - 1))


def _store_ms(survey: Survey, span: QueueSpan, queue_offset: int) -> int | None:
    if not span.min_offset <= queue_offset < span.max_offset:
        return None
    entries = survey.entries(span.topic, span.queue_id, queue_offset, queue_offset + 1)
    return survey.store_time_at(int(entries[0]["physical_offset"])) if len(entries) else None


def index_facts(root: Path, files: Files | None = None) -> list[IndexFact]:
    """Every index file, oldest first; one that is too short for a header is left to `verify`."""
    disk = files or RealFiles()
    path = root / INDEX
    found = []
    for entry in entries_of(disk, path):
        if entry.is_file and parse_index_name(entry.name) is not None and entry.size >= HEADER_BYTES:
            try:
                file = disk.open(path / entry.name, False)
            except FileNotFoundError:
                continue  # Retention took it.
            try:
                found.append(IndexFact(entry.name, entry.size, decode_header(file.pread(HEADER_BYTES, 0))))
            finally:
                file.close()
    return found


def spaces(root: Path, files: Files | None = None) -> list[Space]:
    """What the store's directories take, in the order of their importance."""
    names = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CONFIG, QUARANTINE)
    places = (*log_places(files or RealFiles(), root), *(root / name for name in names))
    return [_space(place) for place in places if place.is_dir()]


def _space(path: Path) -> Space:
    count = size = allocated = 0
    for place, _, names in os.walk(path):  # Passes over directories that are removed meanwhile.
        for name in names:
            try:
                found = os.lstat(os.path.join(place, name))
            except OSError:  # Deleted just now.
                continue
            if stat.S_ISREG(found.st_mode):
                count += 1
                size += found.st_size
                allocated += found.st_blocks * 512
    return Space(path.name, count, size, allocated)


def checkpoint_of(root: Path, files: Files | None = None) -> Checkpoint | None:
    """The checkpoint, if there is one that can be read."""
    try:
        content = (files or RealFiles()).read_all(root / CHECKPOINT, CHECKPOINT_BYTES_MAX)
    except OSError:
        return None
    return decode_checkpoint(content)


def quarantine_reports(root: Path) -> int:
    """How many damaged ranges were ever put aside here."""
    try:
        return len(RealFiles().read_all(root / QUARANTINE / QUARANTINE_REPORT).splitlines())
    except OSError:
        return 0


def writer_process(root: Path) -> int | None:
    """The process that has the store open for writing, ours or a Java broker."""
    return lock_holder(root)


def plan_start(root: Path, settings: StoreSettings, files: Files | None = None) -> StartPlan:
    """What opening the store at `root` with these settings would do. StorePathInvalid if there is none."""
    disk = files or RealFiles()
    decided = decide_opening(root, settings, disk, SystemClock())
    end = Survey.open(root, files=disk).log_end
    plan = decided.plan
    return StartPlan(plan.reason, plan.walk_from, max(0, end - plan.walk_from), decided.index_plan, decided.findings)
