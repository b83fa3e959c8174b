"""Everything of a store but records, queues and keys: log files by name and length, checkpoint, config, proofs.

Small files, read whole. One thread. Reads only.
"""

from collections.abc import Iterator
from pathlib import Path

from embermq.files import LEFT_ALONE, REST_IGNORED, Files, SegmentFinding, Segments
from embermq.format.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from embermq.format.frame import BLANK_BYTES, MESSAGE_MAGIC
from embermq.format.names import parse_segment_name
from embermq.model.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from embermq.repair.verify.findings import Flaw, Remedies, Severity
from embermq.store.index import load_index_proof
from embermq.store.layout import (
    ABORT,
    CHECKPOINT,
    CHECKPOINT_BYTES_MAX,
    COMMIT_LOG,
    CONFIG,
    IS_DIRECTORY,
    QUARANTINE,
    QUARANTINE_REPORT,
    load_inventory,
    load_kept_offsets,
    load_state_page,
    log_places,
    misplaced_files,
)
from embermq.store.layout import INDEX_PROOF_FILE as INDEX_PROOF
from embermq.store.layout import INVENTORY_FILE as INVENTORY
from embermq.store.layout import KEPT_OFFSETS_FILE as KEPT_OFFSETS
from embermq.store.layout import STATE_FILE as STATE_PAGE
from embermq.store.services import load_done_bits
from embermq.store.tables import DELAY_OFFSETS, TIMER_OFFSETS, config_files, consumer_progress, load_entries

_EMPTY_BYTES = 60  # More than a file of kept offsets has that keeps none.
_MISLEADS = "reset the offset: `embermq` and RocketMQ take the queue's end for it"


_MOVE_AWAY = "move it to another directory; Apache RocketMQ may not start with it"
_SAY_SIZE = "say how long log files are with `--set mappedFileSizeCommitLog=BYTES`, if not 1 GiB"
_ANY_BYTES = 1 << 62  # No file is longer.
_STEP_BYTES = 1 << 20
_MAGIC_STEM = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)[:3]  # What both magics begin with.


class StateCheck:
    """Looks at the small files of the store at `root`."""

    def __init__(
        self, root: Path, files: Files, remedies: Remedies, *, is_clean: bool, is_live: bool, segment_bytes: int = 0
    ) -> None:
        """`segment_bytes`: how long log files are, as far as they tell; else 0."""
        self._root, self._files, self._remedies, self._segment_bytes = root, files, remedies, segment_bytes
        self._is_clean, self._is_live = is_clean, is_live

    def flaws(self, log_end: int, newest_ms: int | None, queue_ends: dict[tuple[str, int], int]) -> Iterator[Flaw]:
        """What is wrong; `newest_ms` is the newest store time there is, if that is known."""
        yield from self._log_files(log_end)
        yield from self._checkpoint(newest_ms)
        yield from self._config(queue_ends)
        yield from self._proofs(log_end)
        yield from self._misplaced()
        if not self._is_clean and not self._is_live:
            yield self._note("abort", ABORT, "the store was not closed", self._remedies.start)

    def _note(self, family: str, file: str, fault: str, remedy: str, count: int = 1) -> Flaw:
        return Flaw(severity=Severity.NOTE, family=family, file=file, fault=fault, remedy=remedy, count=count)

    def _fault(self, family: str, file: str, fault: str, remedy: str, place: int | None = None) -> Flaw:
        return Flaw(
            severity=Severity.FAULT, family=family, file=file, fault=fault, remedy=remedy, physical_offset=place
        )

    def _log_files(self, log_end: int) -> Iterator[Flaw]:
        """Names and lengths. What is missing between two files is found when the log is read."""
        places = list(log_places(self._files, self._root))
        segments = Segments(places, self._files, self._segment_bytes or _ANY_BYTES, read_only=True)
        findings = segments.load()
        paths = [segment.path for segment in segments]
        segments.close()
        yield from (self._foreign(finding) for finding in findings if finding.path in segments.foreign)
        if self._is_live:
            return  # A file that is being made may be of any length.
        if not self._segment_bytes:
            yield from (self._unknown_length(path, log_end) for path in paths)
            return
        for finding in findings:
            is_told = finding.path in (*places, *segments.foreign) or "gap" in finding.fault
            if not is_told:  # The size that was assumed here, and gaps, see above, are no fault.
                yield self._odd_length(finding, segments.segment_bytes)

    def _file_name(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _foreign(self, finding: SegmentFinding) -> Flaw:
        file, start = self._file_name(finding.path), parse_segment_name(finding.path.name)
        if start is None:
            return self._note(COMMIT_LOG, file, "this is no log file", self._remedies.nothing)
        if not self._files.stat(finding.path).is_file:
            fault = "has the name of a log file, and is no file: records that were in it are lost"
            return self._fault(COMMIT_LOG, file, fault, _MOVE_AWAY, start)
        size = f" ({self._segment_bytes})" if self._segment_bytes else ""
        fault = f"its start offset is not a multiple of the log file size{size}: it is no part of the log, and ignored"
        return self._fault(COMMIT_LOG, file, fault, _MOVE_AWAY, start)

    def _odd_length(self, finding: SegmentFinding, segment_bytes: int) -> Flaw:
        remedy = "opening the store gives the file its length, and looks at what was in it"
        if finding.remedy == REST_IGNORED and self._may_be_cut(finding.path, segment_bytes):
            remedy = (
                f"`truncate -s {segment_bytes} {finding.path}` while the store is closed; what is too"
                " much is never read here, but Apache RocketMQ does not start with it"
            )
        elif finding.remedy == LEFT_ALONE:
            remedy = _MOVE_AWAY
        elif finding.remedy == REST_IGNORED:
            remedy = f"keep a copy, and look at what is behind byte {segment_bytes}: it is never read here"
        start = parse_segment_name(finding.path.name)
        return self._fault(COMMIT_LOG, self._file_name(finding.path), finding.fault, remedy, start)

    def _unknown_length(self, path: Path, log_end: int) -> Flaw:
        """Of a file that is the only one, and tells nothing itself: was it cut?"""
        file, start = self._file_name(path), parse_segment_name(path.name) or 0
        content = self._files.open(path, False)
        try:
            size, behind = content.size, content.pread(BLANK_BYTES, max(log_end - start, 0))
        finally:
            content.close()
        if behind == bytes(BLANK_BYTES):
            fault = f"{size} bytes: if log files have another length here, it was cut, and nothing is lost"
            return self._note(COMMIT_LOG, file, fault, _SAY_SIZE)
        fault = f"{size} bytes: it was cut, and no other file shows how long it was"
        return self._fault(COMMIT_LOG, file, fault, f"{self._remedies.salvage}; {_SAY_SIZE}", start)

    def _may_be_cut(self, path: Path, segment_bytes: int) -> bool:
        """Is that surely too much, what lies behind? Other files have this length, and no record begins there."""
        sizes = [
            entry.size
            for entry in self._files.list_directory(path.parent)
            if entry.is_file and parse_segment_name(entry.name) is not None
        ]
        if 2 * sizes.count(segment_bytes) < len(sizes):
            return False
        file = self._files.open(path, False)
        try:
            parts = range(segment_bytes, file.data_end(segment_bytes), _STEP_BYTES)  # A hole holds no record.
            return not any(_MAGIC_STEM in file.pread(_STEP_BYTES + len(_MAGIC_STEM), at) for at in parts)
        finally:
            file.close()

    def _checkpoint(self, newest_ms: int | None) -> Iterator[Flaw]:
        path = self._root / CHECKPOINT
        family = CHECKPOINT
        if not self._files.exists(path):
            if self._is_clean:
                yield self._note(family, family, "is missing", self._remedies.start)
            return
        try:
            content = self._files.read_all(path, CHECKPOINT_BYTES_MAX)
        except OSError as problem:
            yield self._fault(family, family, _unreadable(problem), self._remedies.delete)
            return
        found = decode_checkpoint(content)
        if found is None or len(content) != CHECKPOINT_BYTES:
            fault = f"{len(content)} bytes long, not {CHECKPOINT_BYTES}"
            yield self._fault(family, family, fault, self._remedies.delete)
        if found is None or newest_ms is None:
            return
        for name, time_ms in (("log", found.log_ms), ("queues", found.queues_ms), ("index", found.index_ms)):
            if time_ms > newest_ms and not self._is_live:
                fault = f"proves the {name} up to {time_ms} ms; the newest record was stored at {newest_ms} ms"
                if self._is_clean:
                    yield self._fault(family, family, fault, self._remedies.delete)
                else:
                    yield self._note(family, family, fault, self._remedies.start)

    def _config(self, queue_ends: dict[tuple[str, int], int]) -> Iterator[Flaw]:
        for one in config_files(self._files, self._root):
            if one.fault is not None:
                yield self._fault("config", f"{CONFIG}/{one.name}", one.fault, self._remedies.restore)
        if self._is_live:
            return  # Consumers go on while we look.
        queue_ends = dict(queue_ends)
        for topic, queue_id, next_offset in load_kept_offsets(self._files, self._root):
            queue_ends[topic, queue_id] = max(queue_ends.get((topic, queue_id), 0), next_offset)
        for progress in consumer_progress(self._files, self._root):
            end = queue_ends.get((progress.topic, progress.queue_id))
            if end is not None and progress.offset > end:
                queue = f"{progress.topic}/{progress.queue_id}"
                fault = f"group {progress.group} is at offset {progress.offset} of {queue}, which ends at {end}"
                yield self._fault("config", f"{CONFIG}/consumerOffset.json", fault, _MISLEADS)
        yield from self._delayed(queue_ends)

    def _delayed(self, queue_ends: dict[tuple[str, int], int]) -> Iterator[Flaw]:
        for level, offset in sorted(load_entries(self._files, self._root, DELAY_OFFSETS).items()):
            end = queue_ends.get((SCHEDULE_TOPIC, level - 1), 0)
            if offset > end:
                fault = f"delivery of level {level} is at offset {offset}, its queue ends at {end}"
                yield self._fault("config", f"{CONFIG}/{DELAY_OFFSETS.file}", fault, self._remedies.start)
        low, end = load_done_bits(self._files, self._root).low, queue_ends.get((TIMER_TOPIC, 0), 0)
        if low > end:
            fault = f"delivery of timers is at offset {low}, their queue ends at {end}"
            yield self._fault("config", f"{CONFIG}/{TIMER_OFFSETS.file}", fault, self._remedies.start)

    def _misplaced(self) -> Iterator[Flaw]:
        for path in misplaced_files(self._files, self._root):
            name = self._file_name(path)
            remedy = "nothing: the next start puts it aside and makes the file again"
            yield self._note(name.split("/")[0], name, IS_DIRECTORY, remedy)

    def _proofs(self, log_end: int) -> Iterator[Flaw]:
        page = load_state_page(self._files, self._root, writable=False)
        remedy = self._remedies.start
        if page is None and self._files.exists(self._root / STATE_PAGE):
            fault = "proves nothing: damaged, or the directory is a copy; the next start reads the whole log"
            yield self._note("state", STATE_PAGE, fault, remedy)
        if page is not None and page.flushed > log_end and not self._is_live:
            yield self._fault(
                "state",
                STATE_PAGE,
                f"the log once was durable up to {page.flushed}, and ends at {log_end}",
                "restore the missing log files from a backup",
                place=log_end,
            )
        readable = {
            INDEX_PROOF: load_index_proof(self._files, self._root) is not None,
            INVENTORY: load_inventory(self._files, self._root) is not None,
        }
        for name, is_good in readable.items():
            if self._files.exists(self._root / name) and not is_good:
                yield self._note("state", name, "cannot be read; the next start reads the whole log", remedy)
        kept = self._root / KEPT_OFFSETS
        is_filled = self._files.exists(kept) and self._files.stat(kept).size > _EMPTY_BYTES
        if is_filled and not load_kept_offsets(self._files, self._root):
            yield self._note("state", KEPT_OFFSETS, "cannot be read; queue files know the same", self._remedies.nothing)
        report = self._root / QUARANTINE / QUARANTINE_REPORT
        name = f"{QUARANTINE}/{QUARANTINE_REPORT}"
        try:
            count = len(self._files.read_all(report).splitlines())
        except FileNotFoundError:
            return
        except OSError as problem:
            yield self._note(QUARANTINE, name, _unreadable(problem), _MOVE_AWAY)
            return
        fault = "damaged ranges of the log were put aside earlier"
        yield self._note(QUARANTINE, name, fault, self._remedies.nothing, count)


def _unreadable(problem: OSError) -> str:
    return f"cannot be read ({problem.strerror or problem})"
