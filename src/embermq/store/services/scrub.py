"""The scrub: a thread that compares a running store with itself, slowly, and repairs what is derived.

A round walks the log from its begin to where it ended when the round began, a stretch at a time (scrub_step.py), and
pauses after each so that a round takes most of emberScrubIntervalHours, never faster than emberScrubBytesPerSecond.
Where it is, it writes down (scrub_state.py), so a round goes on after a restart.

First of all it compares full queue files with their checksums (checksums_file.py); where one differs, the stretch of
log that the file is of is compared at once.

It is also woken by look-ups that find an index file damaged (checksums.py): the file is made again at once
(repair.py), however long the next stretch is away. With an interval of 0 that is all it does.

`run_round` does a whole round now, on the thread that asks. `stop` ends everything at the stretch it is at.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from embermq.clock import Clock
from embermq.files import Bell, Files, WorkThread
from embermq.settings import StoreSettings
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.log_search import KeySearch
from embermq.store.index.repair import repair_index
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.damage import Quarantine
from embermq.store.queues.checksums_file import FullFile, QueueChecksums
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.recovery.replay import stands_at_record
from embermq.store.services.housekeeping import Housekeeping
from embermq.store.services.scrub_state import ScrubState, load_scrub_state, save_scrub_state
from embermq.store.services.scrub_step import ScrubStep, StepReport

log = logging.getLogger(__name__)

STRETCH_BYTES = 16 << 20
FIRST_SECONDS = 60.0  # After opening there is enough else to do.
SAVE_SECONDS = 60.0
# A round is to be through well before the next one is due.
ROUND_SHARE = 0.8
BYTES_PER_SECOND_MIN = 256 << 10
_FINDINGS_MAX = 1_000

T = TypeVar("T")


class ScrubReport(msgspec.Struct, frozen=True):
    """What a round found: in words, and how much of it was repaired."""

    compared_bytes: int
    findings: list[str]
    healed: int
    is_complete: bool  # False: the store was closed meanwhile.
    seconds: float


@dataclass(frozen=True, slots=True)
class ScrubParts:
    """What of a store the scrub compares; `visible_end` is how far its log may be read."""

    root: Path
    files: Files
    clock: Clock
    log: CommitLog
    queues: ConsumeQueues | None
    index: IndexFiles | None
    housekeeping: Housekeeping
    visible_end: Callable[[], int]


class Scrub:
    """The thread, and what it does. `repair` and `run_round` may be called by any thread."""

    def __init__(self, parts: ScrubParts, settings: StoreSettings) -> None:
        self._parts = parts
        self._interval_ms = settings.scrub_interval_hours * 3_600_000
        self._bytes_per_second_max = settings.scrub_bytes_per_second
        self._search = KeySearch(parts.files, parts.log)
        quarantine = Quarantine(parts.files, parts.root, parts.clock, read_only=False)
        self._step = ScrubStep(parts.root, parts.files, parts.log, parts.queues, parts.index, quarantine)
        self._state = load_scrub_state(parts.files, parts.root)
        queues = parts.queues
        self._checksums = QueueChecksums(parts.files, parts.root, queues) if queues is not None else None
        self._unchecked = self._checksums.kept_files() if self._checksums is not None else []
        self._round_end = 0
        self._compared_from = -1  # Where this process began to compare in the round that is under way; -1: it did not.
        self._saved_at = 0.0
        self._stopping = False
        self._wake = Bell()
        self._one_at_a_time = threading.Lock()
        self._thread = WorkThread(self._run, "embermq-scrub")
        if parts.index is not None:
            parts.index.on_damage = self._note_damage
            if parts.index.damaged:
                self._wake.ring()

    # -- the thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.ring()
        self._thread.join()
        with self._one_at_a_time:  # A round that was asked for may be under way on another thread.
            self._try(self._save)

    def _note_damage(self, name: str) -> None:
        self._wake.ring()

    def _run(self) -> None:
        due = time.monotonic() + FIRST_SECONDS
        while not self._paused(due - time.monotonic() if self._interval_ms else None):
            self._try(self.repair)
            if self._interval_ms and time.monotonic() >= due:
                due = time.monotonic() + FIRST_SECONDS
                pause = self._try(self._background_step)
                due = time.monotonic() + (FIRST_SECONDS if pause is None else pause)

    def _paused(self, seconds: float | None) -> bool:
        """Wait until there is something to do; True if the store is being closed."""
        self._wake.wait(seconds)
        return self._stopping

    def _try(self, job: Callable[[], T]) -> T | None:
        """Do one of the jobs; what fails is tried again later."""
        try:
            return job()
        except OSError as problem:
            log.error("scrub failed error=%s", problem)
        except Exception:  # A mistake of ours must not end the thread.
            log.exception("scrub failed")
        return None

    def _background_step(self) -> float:
        """Do a stretch if one is due; how many seconds to wait before the next."""
        with self._one_at_a_time:
            if self._unchecked:
                return self.check_queue_files(STRETCH_BYTES).read_bytes / self._bytes_per_second_max
            now = self._parts.clock.now_ms()
            state = self._state
            if not state.round_began_ms:
                left_ms = state.finished_ms + int((1 - ROUND_SHARE) * self._interval_ms) - now
                if state.finished_ms and 0 < left_ms <= self._interval_ms:
                    return left_ms / 1000
                self._begin_round()
            rate = self.bytes_per_second
            self._state = msgspec.structs.replace(self._state, bytes_per_second=rate)
            report = self._advance()
            if time.monotonic() - self._saved_at >= SAVE_SECONDS or report.findings:
                self._save()
                self._take_checksums()
            return report.read_bytes / rate

    @property
    def bytes_per_second(self) -> int:
        """How fast a round goes, so that it takes most of the interval."""
        log_bytes = self._parts.visible_end() - self._parts.log.min_offset
        wanted = int(log_bytes / (ROUND_SHARE * max(self._interval_ms, 1) / 1000))
        return max(min(max(wanted, BYTES_PER_SECOND_MIN), self._bytes_per_second_max), 1)

    # -- a round ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> ScrubState:
        """How far it is, and what it found."""
        return self._state

    def runtime_info(self) -> dict[str, str]:
        """The same as text, under names of our own."""
        state = self._state
        figures = {
            "Position": state.position,
            "RoundBegan": state.round_began_ms,
            "RoundFinished": state.finished_ms,
            "Rounds": state.rounds,
            "Findings": state.findings,
            "Healed": state.healed,
            "BytesPerSecond": self.bytes_per_second if self._interval_ms else 0,
        }
        return {f"emberScrub{name}": str(value) for name, value in figures.items()}

    def run_round(self) -> ScrubReport:
        """Compare everything now, as fast as the disk allows, and repair it."""
        began = time.monotonic()
        with self._one_at_a_time:
            self._begin_round()
            findings: list[str] = []
            healed = compared = 0
            while self._state.round_began_ms and not self._stopping:
                report = self._advance()
                findings += report.findings[: _FINDINGS_MAX - len(findings)]
                healed += report.healed
                compared += report.read_bytes
            self._save()
            self._take_checksums()
            is_complete = not self._state.round_began_ms
            return ScrubReport(compared, findings, healed, is_complete, time.monotonic() - began)

    def _begin_round(self) -> None:
        parts = self._parts
        self._state = msgspec.structs.replace(
            self._state,
            position=parts.log.min_offset,
            round_began_ms=max(parts.clock.now_ms(), 1),
            findings=0,
            healed=0,
        )
        self._compared_from = parts.log.min_offset
        self._round_end = self._comparable_end()

    def _comparable_end(self) -> int:
        """Queues and index have all records below this."""
        parts = self._parts
        sinks = [sink.position for sink in (parts.queues, parts.index) if sink is not None]
        return min([parts.visible_end(), *sinks])

    def _advance(self) -> StepReport:
        """Compare the next stretch; the last one ends the round."""
        start = self._next_place()
        end = min(start + STRETCH_BYTES, self._round_end)
        segment = self._parts.log.segments.find(start)
        if segment is not None:
            end = min(end, segment.end)
        repaired = len(self._repair_index())
        report = self._step.compare(start, end, self._state.damages) if start < end else StepReport(max(start, end))
        is_last = report.end >= self._round_end
        files = self._step.check_index_files(start, 1 << 62 if is_last else report.end, self._compared_from)
        report.findings += files.findings
        report.read_bytes += files.read_bytes
        report.healed += repaired + len(self._repair_index())
        self._note(report, is_last)
        return report

    def _next_place(self) -> int:
        """Where to go on; after a restart that must still be where a record begins."""
        log_min, position = self._parts.log.min_offset, max(self._state.position, self._parts.log.min_offset)
        if self._compared_from < 0:
            self._round_end = self._comparable_end()
            if position > self._round_end or not stands_at_record(self._parts.log, position, self._round_end):
                segment = self._parts.log.segments.find(position)
                position = segment.start if segment is not None else log_min
            self._compared_from = position
        return position

    def check_queue_files(self, bytes_max: int) -> StepReport:
        """Compare full queue files with their checksums, up to so many bytes; repair what differs."""
        report = StepReport(self._state.position)
        while self._unchecked and report.read_bytes < bytes_max and self._checksums is not None:
            file = self._unchecked.pop()
            report.read_bytes += self._parts.queues.file_bytes if self._parts.queues is not None else 0
            if not self._checksums.is_right(file):
                self._heal_queue_file(file, report)
        for finding in report.findings:
            log.warning("scrub found %s", finding)
        state = self._state
        findings, healed = state.findings + len(report.findings), state.healed + report.healed
        self._state = msgspec.structs.replace(state, findings=findings, healed=healed)
        return report

    def _heal_queue_file(self, file: FullFile, report: StepReport) -> None:
        """Compare the part of the log that a queue file is of."""
        queue, commit_log = file.queue, self._parts.log
        per_file = queue.roll_next_file(file.start) - file.start
        before, after = queue.peek(file.start - 1), queue.peek(file.start + per_file)
        at = max(before[0] if before is not None else 0, commit_log.min_offset)
        last = min(after[0] if after is not None and after[1] > 0 else 1 << 62, self._comparable_end())
        while at < last and not self._stopping:
            segment = commit_log.segments.find(at)
            end = min(at + STRETCH_BYTES, last, segment.end if segment is not None else last)
            step = self._step.compare(at, end, self._state.damages)
            report.findings += step.findings
            report.healed += step.healed
            report.read_bytes += step.read_bytes
            at = max(step.end, at + 1)
        if self._checksums is not None and not self._checksums.is_right(file):
            report.findings.append(f"consumequeue/{file.name}: it is not what was written")

    def _take_checksums(self, *, all_compared: bool = False) -> None:
        if self._checksums is not None:
            self._checksums.take(all_compared=all_compared)

    def settle(self) -> None:
        """The store is being closed, and all is synced: take the last checksums. After `stop`."""
        self._take_checksums()

    def _note(self, report: StepReport, is_last: bool) -> None:
        state, now = self._state, self._parts.clock.now_ms()
        log_min = self._parts.log.min_offset
        for finding in report.findings:
            log.warning("scrub found %s", finding)
        self._state = msgspec.structs.replace(
            state,
            position=report.end,
            findings=state.findings + len(report.findings),
            healed=state.healed + report.healed,
            damages=[one for one in state.damages if one[1] > log_min] + report.damages,
            round_began_ms=0 if is_last else state.round_began_ms,
            finished_ms=now if is_last else state.finished_ms,
            rounds=state.rounds + is_last,
        )
        if is_last:
            is_whole = self._compared_from <= log_min and not self._state.findings
            self._compared_from = -1
            self._take_checksums(all_compared=is_whole)
            log.info("scrub finished findings=%d healed=%d", self._state.findings, self._state.healed)

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        if self._state != load_scrub_state(self._parts.files, self._parts.root) and self._state != ScrubState():
            save_scrub_state(self._parts.files, self._parts.root, self._state)

    # -- repairs ---------------------------------------------------------------------------------------------

    def repair(self) -> list[str]:
        """Make index files again that are known to be damaged; their names."""
        with self._one_at_a_time:
            return self._repair_index()

    def _repair_index(self) -> list[str]:
        index = self._parts.index
        repaired = repair_index(index, self._search) if index is not None and index.damaged else []
        if repaired:
            self._parts.housekeeping.make_durable()
        return repaired
