"""Building queues and index aside, from a log that is only read: the walk of recovery, with other sinks' files.

Every gigabyte what was built is synced and the journal says so; a build that was killed goes on from there, as a
store recovers from its proofs. One thread; the walker scans ahead on a second one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embermq.clock import Clock
from embermq.files.files import Files
from embermq.files.segments import Segments
from embermq.files.trees import copy_file, remove_tree
from embermq.format.columns import RecordColumns
from embermq.settings import StoreSettings
from embermq.store import directory
from embermq.store.commit_log import CommitLog
from embermq.store.consume_queues import ConsumeQueues
from embermq.store.damage import Damage, Quarantine
from embermq.store.opening import DerivedFiles
from embermq.store.rebuild_journal import Family, Journal, load_journal, save_journal
from embermq.store.recovery import Plan, Recovery, RecoveryReport
from embermq.store.sink import Sink
from embermq.store.state_page import load_state_page
from embermq.store.walk import Walker

PORTION_BYTES = 1 << 30
_HEAD_BYTES = 40  # Size, magic, sum, queue, queue offset, place: tells one record from another.

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Built:
    """What building came to."""

    end: int
    records: int
    queues_state: dict[str, Any]
    index_state: dict[str, Any]
    resumed_at: int | None
    damages: list[Damage] = field(default_factory=list)


class Build:
    """Builds below `target` what the log of the store at `root` says."""

    def __init__(
        self, root: Path, target: Path, settings: StoreSettings, families: tuple[Family, ...], files: Files,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._root, self._target, self._settings, self._families = root, target, settings, families
        self._files, self._clock = files, clock
        paths = settings.commit_log_paths or (root / directory.COMMIT_LOG,)
        self._segments = Segments(
            list(paths), files, settings.segment_bytes, read_only=True,
            read_only_directories=settings.commit_log_read_only_paths,
        )  # fmt: skip
        self._segments.load()
        self._log = CommitLog(self._segments)
        self._walker = Walker(self._log, settings.delay_ms, settings.kernels)
        self.fingerprint = {
            "queue_file_bytes": settings.queue_file_bytes,
            "index": [settings.index_slots_max, settings.index_entries_max],
            "extension": [settings.queue_extension, settings.queue_extension_file_bytes],
            "multi_dispatch": [settings.multi_dispatch, settings.light_queues], "delays": list(settings.delay_ms),
        }  # fmt: skip

    def close(self) -> None:
        self._walker.close()
        self._log.close()

    def log_facts(self, position: int) -> dict[str, Any]:
        """What tells this log, up to `position`, from another: where it begins, and its first and last bytes there."""
        first, last = self._raw(self._log.min_offset, _HEAD_BYTES), self._raw(max(position - 16, 0), 16)
        after = self._raw(position, 8).rstrip(b"\0")
        return {"min": self._log.min_offset, "first": first.hex(), "last": last.hex(), "after": after.hex()}

    def _raw(self, physical_offset: int, count: int) -> bytes:
        """Bytes of the log as they lie there, past its end too."""
        segment = self._segments.find(physical_offset)
        return b"" if segment is None or segment.file is None else segment.file.pread(
            count, physical_offset - segment.start
        )

    def run(self, work: Path, progress: Progress) -> Built:
        """Build, or go on where an earlier call was; `work` has the journal."""
        start = self._resume_place(work)
        if start is None:
            remove_tree(self._files, work)
            self._files.make_directory(self._target)
            self._carry_over()
        place = self._log.min_offset if start is None else start.position
        derived = DerivedFiles(self._target, self._settings, self._files, self._clock, read_only=False)
        queues = derived.queues(lambda: self._log.min_offset) if Family.QUEUES in self._families else None
        index = derived.index() if Family.INDEX in self._families else None
        unusable = list(queues.load()) if queues is not None else []
        if index is not None and start is not None:
            unusable += index.restore(start.index)
        if unusable:
            remove_tree(self._files, work)
            return self.run(work, progress)
        sinks: list[Sink] = [sink for sink in (queues, index) if sink is not None]
        portions = _Portions(self, work, sinks, place, progress)
        built = self._walk(queues, [*sinks, portions], place)
        if index is not None:
            index.truncate_to(built.end)
        for sink in sinks:
            sink.flush()
        built.queues_state = queues.state() if queues is not None else {}
        built.index_state = index.state() if index is not None else {}
        built.resumed_at = None if start is None else place
        for sink in sinks:
            sink.close()
        return built

    def _resume_place(self, work: Path) -> Journal | None:
        """The journal of an earlier call that this one can go on with."""
        journal = load_journal(self._files, work)
        if journal is None or journal.ready or journal.families != list(self._families):
            return None
        same = journal.settings == self.fingerprint and journal.log == self._facts_while_building(journal.position)
        return journal if same else None

    def _facts_while_building(self, position: int) -> dict[str, Any]:
        """The log may have grown since."""
        return {**self.log_facts(position), "after": ""}

    def _walk(self, queues: ConsumeQueues | None, sinks: list[Sink], place: int) -> Built:
        quarantine = Quarantine(self._files, self._root, self._clock, read_only=True)
        recovery = Recovery(
            self._log, self._walker, sinks, quarantine, self._clock, check_crc=self._settings.check_crc_on_recovery,
            read_only=True,
        )  # fmt: skip
        if queues is not None:
            queues.begin_replay()
        report = RecoveryReport(directory.was_closed_cleanly(self._files, self._root))
        end = recovery.run(Plan(place, self._proven(), None, "rebuild"), report)
        if queues is not None:
            queues.finish_replay(place, end, keep_ends=quarantine.has_filled)
            queues.correct_min(self._log.min_offset)
        return Built(end, report.records, {}, {}, None, report.damages)

    def _proven(self) -> int | None:
        """Past this place only an unbroken row of records counts, as at a start."""
        page = load_state_page(self._files, self._root, writable=False)
        last = self._segments.last
        if page is None or last is None or not self._log.min_offset <= page.flushed <= last.end:
            return None
        return page.flushed

    def _carry_over(self) -> None:
        """Queues without any record in the log keep their files: nobody else knows where they go on."""
        if Family.QUEUES not in self._families:
            return
        old = DerivedFiles(self._root, self._settings, self._files, self._clock, read_only=True)
        before = old.queues(lambda: self._log.min_offset)
        before.load()
        for queue in before.all():
            if queue.max_physical <= self._log.min_offset:
                target = self._target / directory.CONSUME_QUEUE / queue.topic / str(queue.queue_id)
                self._files.make_directory(target)
                for start in sorted(queue.file_starts):
                    copy_file(self._files, queue.path_of(start), target / queue.path_of(start).name)
                self._files.sync_directory(target)
        before.close()

    def note_portion(self, work: Path, position: int, index_state: dict[str, Any]) -> None:
        """What was taken is durable up to `position`."""
        save_journal(
            self._files, work,
            Journal(
                families=list(self._families), settings=self.fingerprint, position=position,
                log=self._facts_while_building(position), index=index_state,
            ),
        )  # fmt: skip

    @property
    def bounds(self) -> tuple[int, int]:
        last = self._segments.last
        return self._log.min_offset, last.end if last is not None else 0


class _Portions:
    """The last sink: after each portion of the log it has the others synced, and the journal written."""

    name = "portions"

    def __init__(self, build: Build, work: Path, sinks: list[Sink], position: int, progress: Progress) -> None:
        self._build, self._work, self._sinks, self._progress = build, work, sinks, progress
        self.position = self._noted = position

    def take(self, batch: RecordColumns, end: int) -> None:
        self.position = end
        start, log_end = self._build.bounds
        self._progress(end - start, log_end - start)
        if end - self._noted >= PORTION_BYTES:
            self._note(end)

    def _note(self, end: int) -> None:
        index_state: dict[str, Any] = {}
        for sink in self._sinks:
            sink.flush()
            if sink.name == "index":
                index_state = sink.state()  # type: ignore[attr-defined]
        self._build.note_portion(self._work, end, index_state)
        self._noted = end

    def flush(self) -> None:
        """The others are flushed by their owner."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        """Nothing is open."""
