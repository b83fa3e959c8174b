"""Recovery: from whatever lies on the disk to a log whose end is known, and derived files that agree with it.

A clean and an unclean start are the same walk with another starting point:

    plan     where to start, from the proofs earlier runs left (state page, inventory)
    walk     every record from there on, checksums verified, feeding the queues and the index again
    decide   where the walk stops: the table below
    settle   cut the log, cut what claims more than the log has, make all of it durable

What a stop means (`decide`); "proven" is below the flushed position an earlier run vouched for, or
anywhere when nothing is proven:

    bytes there   proven   good record later     decision
    zeros         -        no                    END     nothing was written here
    garbage       -        no                    CUT     a torn tail
    any           no       yes                   CUT     the tail was never confirmed: keep a prefix of it
    any           yes      in this segment       FILL    damage: quarantine it, go on after it
    any           yes      in a later segment    BLANK   damage: quarantine it, go on in the next segment

Derived files are never a reason to refuse to start: whatever is wrong with them, they are derived again.
Recovery's thread only; nothing else has the store yet.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from embermq.clock import Clock
from embermq.columns import C_PHYSICAL, C_STORE_TIME, RecordColumns, resync_for
from embermq.files import Segment
from embermq.format.frame import BLANK_BYTES, End, Frame, ScanStop, Torn, TornReason, decode
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.damage import FILLER_BYTES_MIN, Damage, Quarantine, fill_with_blank, fill_with_record
from embermq.store.log.tail_mark import TailMark
from embermq.store.log.walk import Walker, WalkStep
from embermq.store.sink import Sink

log = logging.getLogger(__name__)

_ZEROS = "zeros where records should be"
_MISSING = "log file missing"
_BLANK_FILES_MAX = 1000


class StopDecision(Enum):
    END = auto()
    CUT = auto()
    FILL = auto()
    BLANK = auto()


@dataclass(frozen=True, slots=True)
class StopFacts:
    """What is known about the place where a walk stopped."""

    zeros: bool
    proven: bool
    good_here: bool
    good_later: bool


def decide(facts: StopFacts) -> StopDecision:
    """The table at the head of this file; every combination of facts has exactly one answer."""
    if not (facts.good_here or facts.good_later):
        return StopDecision.END if facts.zeros else StopDecision.CUT
    if not facts.proven:
        return StopDecision.CUT
    return StopDecision.FILL if facts.good_here else StopDecision.BLANK


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a walk begins, and why."""

    walk_from: int
    proven: int | None  # Bytes below are known to have been durable; None: not proven.
    expected_end: int | None  # Where a clean close left the end.
    reason: str
    limit: int | None = None  # A reader stops here: under SYNC_FLUSH nothing beyond may be shown yet.


@dataclass(slots=True)
class RecoveryReport:
    """What opening a store found and did."""

    clean: bool
    reason: str = ""
    walked_from: int = 0
    log_end: int = 0
    last_record: int = -1  # where the last record that was walked over begins; -1: there was none
    records: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Recovery:
    """One walk over one log."""

    def __init__(
        self,
        commit_log: CommitLog,
        walker: Walker,
        sinks: list[Sink],
        quarantine: Quarantine,
        clock: Clock,
        *,
        check_crc: bool,
        read_only: bool,
        is_replica: bool = False,
        on_damage: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Where nothing says what was durable, damage is kept with what lies behind it; the log of a replica is cut
        there: its master has the same bytes, and a filler would make it another log.

        `on_damage` is called with the place of damage that good records follow, before the walk goes on there:
        what earlier runs derived from there on may lead to records that are gone, and is derived again."""
        self._log, self._walker, self._sinks, self._quarantine = commit_log, walker, sinks, quarantine
        self._on_damage, self._is_replica = on_damage, is_replica
        self._clock, self._check_crc, self._read_only = clock, check_crc, read_only
        self._records = 0
        self.tail_mark = TailMark(0)
        self._closed_cleanly = False
        self._looked_again_at = -1
        self._doubtful: tuple[int, int] | None = None  # Start and end of a record that was not handed on yet.
        self.last_store_timestamp = 0
        self._last_record = -1

    def run(self, plan: Plan, report: RecoveryReport) -> int:
        """Walk and settle the log; the end of the log. The caller settles the derived files."""
        began = self._clock.monotonic()
        self._closed_cleanly = report.clean
        self._complete_short_files()
        walk_from = plan.walk_from
        self.tail_mark = TailMark(walk_from)
        end = self._walk(walk_from, plan)
        report.reason, report.walked_from, report.log_end = plan.reason, walk_from, end
        report.records, report.scanned_bytes, report.last_record = self._records, end - walk_from, self._last_record
        report.truncated_bytes = self._settle_log(end, plan)
        report.damages = self._quarantine.damages
        report.seconds = self._clock.monotonic() - began
        return end

    # -- the walk ----------------------------------------------------------------------------------------

    def _walk(self, start: int, plan: Plan) -> int:
        at = start
        last = self._log.segments.last
        end = last.end if last is not None else 0
        limit = end if plan.limit is None else min(end, plan.limit)
        while at < limit:
            step = self._walker.step(at, limit, self._take, check_crc=self._check_crc)
            if self._doubtful is not None:
                step = self._settle_doubt(*self._doubtful, step, plan)
            if step.stop is None:
                at = self._bridge_missing_segment(at)
            elif step.torn is None and step.stop != ScanStop.NOTHING:
                at = step.at
            else:
                onward = self._pass_obstacle(step, plan)
                if onward is None:
                    return step.at
                at = onward
        return at if plan.limit is None else min(at, plan.limit)

    def _take(self, batch: RecordColumns, end: int) -> None:
        """Hand records on, but for a last one whose properties trail off in a zero byte: no checksum covers them."""
        if batch.properties(len(batch) - 1).endswith(b"\0"):
            start = int(batch.rows[-1, C_PHYSICAL])
            self._doubtful = (start, end)
            batch, end = batch.slice(0, len(batch) - 1), start
        if len(batch):
            self._hand_on(batch, end)

    def _settle_doubt(self, start: int, end: int, step: WalkStep, plan: Plan) -> WalkStep:
        """Was the record at `start` torn? So it was if our own writer was not done with it and only zeros follow.

        Of a log RocketMQ wrote nothing is known but what lies there: it takes such a record, so it is taken.
        """
        self._doubtful = None
        confirmed = self._closed_cleanly or plan.proven is None or end <= plan.proven
        if step == WalkStep(end, ScanStop.NOTHING) and not confirmed:
            return WalkStep(start, TornReason.BAD_PROPERTIES)
        self._walker.step(start, end, self._hand_on, check_crc=False)
        return step

    def _hand_on(self, batch: RecordColumns, end: int) -> None:
        self._records += len(batch)
        self.last_store_timestamp = int(batch.rows[-1, C_STORE_TIME])
        self._last_record = int(batch.rows[-1, C_PHYSICAL])
        self.tail_mark.note(end)
        for sink in self._sinks:
            sink.take(batch, end)

    def _pass_obstacle(self, step: WalkStep, plan: Plan) -> int | None:
        """Where to go on after a place without a record; None if the log ends there."""
        if step.at == plan.expected_end:
            return None
        segment = self._log.segments.find(step.at)
        assert segment is not None
        proven = not self._is_replica if plan.proven is None else step.at < plan.proven
        at = step.at - segment.start
        good_at = self._next_good(segment, at, step.torn) if proven or step.torn else -1
        later = self._good_segment_after(segment) if good_at < 0 else None  # Only asked for without a record here.
        if self._is_finished_now(segment, at, good_at >= 0 or later is not None):
            return step.at
        facts = StopFacts(step.torn is None, proven, good_at >= 0, later is not None)
        reason = _ZEROS if step.torn is None else step.torn.name.lower().replace("_", " ")
        match decide(facts):
            case StopDecision.END:
                if plan.proven is not None and step.at < plan.proven:
                    self._quarantine.note(step.at, plan.proven - step.at, _ZEROS, "the log ends here")
                return None
            case StopDecision.CUT:
                if proven or facts.good_here or facts.good_later:
                    self._keep_tail(segment, at, reason)
                return None
            case StopDecision.FILL:
                self._quarantine.keep(segment, at, good_at, reason, "replaced by a filler record", filled=True)
                if not self._read_only:
                    fill_with_record(segment, at, good_at, self.last_store_timestamp)
                self._on_damage(step.at)
                return segment.start + good_at
            case StopDecision.BLANK:
                assert later is not None
                self._quarantine.keep(segment, at, segment.size, reason, "segment closed by a blank", filled=True)
                if not self._read_only:
                    fill_with_blank(segment, at)
                self._on_damage(step.at)
                return segment.end  # Which may lie in no file.

    def _is_finished_now(self, segment: Segment, at: int, has_more: bool) -> bool:
        """Has a writer beside this reader finished the record at `at` meanwhile, and written more behind it?"""
        if not self._read_only or not has_more or self._looked_again_at == segment.start + at:
            return False
        self._looked_again_at = segment.start + at  # Once: what is still no record then is damage.
        return self._is_good(segment, at)

    def _keep_tail(self, segment: Segment, at: int, reason: str) -> None:
        """Everything from here on goes; keep a copy, because some of it was, or may have been, good."""
        self._quarantine.keep(segment, at, segment.size, reason, "cut from the end of the log")
        for other in self._log.segments.all:
            if other.start > segment.start and self._good_start(other):
                self._quarantine.keep(other, 0, other.size, "after " + reason, "cut from the end of the log")

    # -- looking for good records --------------------------------------------------------------------------

    def _next_good(self, segment: Segment, at: int, torn: TornReason | None) -> int:
        """The next good record in this segment after the bad one at `at`; -1 if there is none.

        The bad record's own size is tried first: a body may hold bytes that look like a record.
        """
        with segment.array_for_scan() as data:
            if torn is not None and torn not in (TornReason.BAD_MAGIC, TornReason.BAD_SIZE):
                size = int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
                here = at + size
                if size >= FILLER_BYTES_MIN and here <= len(data):
                    found = decode(data.data, here, len(data), physical_offset=segment.start + here, check_crc=True)
                    if isinstance(found, Frame):
                        return here
            start = min(at + FILLER_BYTES_MIN, len(data))
            # A log file is mostly hole where it was not written yet: do not read that.
            end = min(segment.file.data_end(start), len(data)) if segment.file is not None else len(data)
            return resync_for(end - start)(data, segment.start, start, end)

    def _good_segment_after(self, segment: Segment) -> Segment | None:
        for other in self._log.segments.all:
            if other.start > segment.start and self._good_start(other):
                return other
        return None

    def _good_start(self, segment: Segment) -> bool:
        return self._is_good(segment, 0)

    def _is_good(self, segment: Segment, at: int) -> bool:
        with segment.array_for_scan() as data:
            found = decode(data.data, at, len(data), physical_offset=segment.start + at, check_crc=True)
        return isinstance(found, Frame)

    # -- files -----------------------------------------------------------------------------------------------

    def _complete_short_files(self) -> None:
        """A file that is shorter than the others gets its length back, for a reader in memory alone; the walk finds
        what is missing."""
        segments = self._log.segments
        for segment in segments.all:
            if segment.size < segments.segment_bytes:
                if self._read_only:
                    segments.pad_short(segment)
                    continue
                segments.extend_short(segment)
                segment.reset(segment.size)  # All of it is to be looked at.

    def _bridge_missing_segment(self, at: int) -> int:
        """`at` lies in no file, but later files exist: close the gap with files that are one blank each."""
        segments = self._log.segments
        later = next(segment for segment in segments.all if segment.start > at)
        size = segments.segment_bytes
        missing = range(at, later.start, size)
        self._on_damage(at)
        if self._read_only or (later.start - at) % size or len(missing) > _BLANK_FILES_MAX:
            self._quarantine.note(at, later.start - at, _MISSING, "passed over", filled=True)
            return later.start
        for start in missing:
            fill_with_blank(segments.insert(start), 0)
        self._quarantine.note(at, later.start - at, _MISSING, f"replaced by {len(missing)} blank files", filled=True)
        return later.start

    def _settle_log(self, end: int, plan: Plan) -> int:
        """Make `end` the end of the log, on disk and in memory; how many written bytes that cut."""
        segments = self._log.segments
        if self._read_only:
            segments.forget_after(end)
            return 0
        if end == plan.expected_end and self._ends_in_last_segment(end):
            for segment in segments.all:
                segment.reset(min(end - segment.start, segment.size))
            self._continue_last()
            return 0
        cut = sum(_written_bytes(segment, end) for segment in segments.all if segment.end > end)
        segments.truncate_to(end)
        proven = plan.walk_from if plan.proven is None else min(plan.proven, end)
        for segment in segments.all:
            segment.reset(min(max(end - segment.start, 0), segment.size))
            if segment.end > proven and segment.file is not None:
                segment.file.sync()  # What was found may be in the page cache only.
        self._continue_last()
        return cut

    def _ends_in_last_segment(self, end: int) -> bool:
        last = self._log.segments.last
        return last is not None and last.start <= end <= last.end

    def _continue_last(self) -> None:
        last = self._log.segments.last
        if last is not None and not last.is_full:
            last.activate()
            last.store_timestamp = self.last_store_timestamp


def _written_bytes(segment: Segment, end: int) -> int:
    """How many bytes of a segment, from physical offset `end` on, were ever written (an upper bound)."""
    start = max(end - segment.start, 0)
    for at in range(start, segment.size, 1 << 20):
        data = segment.read(at, 1 << 20)
        stripped = data.rstrip(b"\0")
        if not stripped:
            return at - start
        if len(stripped) < len(data):
            return at + len(stripped) - start
    return segment.size - start


def is_inside_record(commit_log: CommitLog, physical_offset: int) -> bool:
    """Is something there that neither is nor was the begin of a record? Then who says so speaks of another log."""
    head = commit_log.read(physical_offset, BLANK_BYTES)
    if len(head) < BLANK_BYTES:
        return False
    found = decode(head, 0, BLANK_BYTES, physical_offset=physical_offset, check_crc=False)
    return isinstance(found, Torn) and found.reason is TornReason.BAD_MAGIC


def stands_at_record(commit_log: CommitLog, physical_offset: int, written: int) -> bool:
    """Does a record or a blank begin here, or, past what is known to be written, the end? Otherwise the proof
    that said so is void. Zeros are not good enough elsewhere: they may be the inside of a record."""
    segment = commit_log.segments.find(physical_offset)
    if segment is None:
        return physical_offset == commit_log.segments.max_offset
    with segment.array_for_scan() as data:
        at = physical_offset - segment.start
        found = decode(data.data, at, len(data), physical_offset=physical_offset, check_crc=False)
    return not isinstance(found, Torn | End) or (isinstance(found, End) and physical_offset >= written)
