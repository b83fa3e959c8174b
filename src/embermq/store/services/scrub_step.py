"""One step of the scrub: a stretch of the log compared with the queues and the index of a running store.

The comparing is that of `verify` (store/compare/log_pieces.py), on one thread. What it finds is looked at again here,
because the store goes on meanwhile: entries may have been written out since, files deleted by retention, topics
deleted. What is left is repaired if it is derived: a queue entry is written again, an index file is marked as damaged
and made again by repair.py. A damaged range of the log is copied to the quarantine and reported; its bytes stay, for
readers use them. One thread at a time.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from embermq.columns import QueueName
from embermq.files import FileDamaged, Files
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.format.queue_extension import is_address
from embermq.model.properties import PARKING_TOPICS
from embermq.store.compare.entries import Suspects, VerifiedQueueFiles
from embermq.store.compare.keys import IndexStream, KeyFlaw
from embermq.store.compare.log_pieces import CheckedPiece, LogPieces
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.links import CheckedIndexFile, link_flaws
from embermq.store.index.log_search import KeySearch
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.damage import Quarantine
from embermq.store.log.file_scan import DamagedRange, scan_segments
from embermq.store.log.records import Records
from embermq.store.queues.consume_queue import ConsumeQueue, Entry
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.damaged_entries import belongs

log = logging.getLogger(__name__)

LEFT_IN_PLACE = "found by the scrub; left in place"


@dataclass(slots=True)
class StepReport:
    """What a step did: up to where it came, what it found, how much of that it repaired."""

    end: int
    findings: list[str] = field(default_factory=list)
    healed: int = 0
    damages: list[tuple[int, int]] = field(default_factory=list)
    read_bytes: int = 0


class ScrubStep:
    """Compares stretches of one running store."""

    def __init__(
        self,
        root: Path,
        files: Files,
        commit_log: CommitLog,
        queues: ConsumeQueues | None,
        index: IndexFiles | None,
        quarantine: Quarantine,
    ) -> None:
        self._root, self._files, self._log = root, files, commit_log
        self._queues, self._index, self._quarantine = queues, index, quarantine
        self._records = Records(commit_log)
        self._search = KeySearch(files, commit_log)

    def compare(self, start: int, end: int, known: list[tuple[int, int]]) -> StepReport:
        """Compare the records that begin in [start, end), where queues and index have all of them. Damaged ranges that
        are `known` are not reported again."""
        report = StepReport(end)
        # While a file is damaged the stream of entries has a gap, and nothing can be said about those behind it.
        is_whole = self._queues is not None and self._index is not None and not self._index.damaged
        stream = IndexStream(self._parts() if is_whole else [])
        for piece in self._pieces(start, end, stream):
            report.end = max(piece.end, start)
            self._take_damages(piece.damages, known, report)
            self._take_suspects(piece, report)
            self._take_keys(piece, stream, report)
        report.read_bytes = report.end - start
        return report

    def _pieces(self, start: int, end: int, stream: IndexStream) -> Iterator[CheckedPiece]:
        if self._queues is None:
            yield from self._log_alone(start, end, stream)
            return
        self._queues.write_out()
        files = VerifiedQueueFiles.of_open_store(self._queues, self._files, self._root)
        pieces = LogPieces(self._search.segments(), start, end, self._files, files, stream)
        yield from pieces.chained((cut, partial(pieces.read_cut, cut)) for cut in pieces.cuts())

    def _log_alone(self, start: int, end: int, stream: IndexStream) -> Iterator[CheckedPiece]:
        """Of a store that derives nothing only the records themselves are compared with their checksums."""
        found = scan_segments(self._search.segments(), start, end, files=self._files)
        damages = [one for one in found if isinstance(one, DamagedRange)]
        nothing = VerifiedQueueFiles.of_open_store(None, self._files, self._root)
        piece = LogPieces([], start, end, self._files, nothing, stream).nothing(start, end, stream.end)
        yield piece._replace(damages=damages)

    # -- the log ---------------------------------------------------------------------------------------------

    def _take_damages(self, damages: list[DamagedRange], known: list[tuple[int, int]], report: StepReport) -> None:
        for damage in damages:
            if damage.start < self._log.min_offset or any(a <= damage.start and damage.end <= b for a, b in known):
                continue  # Retention was faster, or it was reported before.
            segment = self._log.segments.find(damage.start)
            if segment is None:
                self._quarantine.note(damage.start, damage.end - damage.start, damage.reason, LEFT_IN_PLACE)
            else:
                end = min(damage.end, segment.end) - segment.start
                self._quarantine.keep(segment, damage.start - segment.start, end, damage.reason, LEFT_IN_PLACE)
            report.damages.append((damage.start, damage.end))
            report.findings.append(f"commitlog: {damage.reason} at {damage.start}, {damage.end - damage.start} bytes")

    # -- queues ----------------------------------------------------------------------------------------------

    def _take_suspects(self, piece: CheckedPiece, report: StepReport) -> None:
        for number, suspects in piece.queues.suspects.items():
            wrong, healed = 0, 0
            for some in suspects:
                more = self._heal(piece.names[number], some)
                wrong, healed = wrong + more[0], healed + more[1]
            if wrong:
                topic, queue_id = piece.names[number]
                report.findings.append(f"consumequeue/{topic}/{queue_id}: {wrong} entries are wrong, {healed} repaired")
                report.healed += int(healed == wrong)

    def _heal(self, name: QueueName, suspects: Suspects) -> tuple[int, int]:
        """How many entries are wrong indeed, and how many of them were written again."""
        queue = self._queues.find(*name) if self._queues is not None else None
        if queue is None or self._queues is None:
            return 0, 0  # Its topic was deleted.
        wrong = healed = 0
        for offset, *entry in zip(*(column.tolist() for column in suspects[:4]), strict=True):
            if self._is_wrong(queue, offset, (entry[0], entry[1], entry[2])):
                wrong += 1
                healed += self._queues.mend(queue, offset, np.array([tuple(entry)], ENTRY_DTYPE))
        return wrong, healed

    def _is_wrong(self, queue: ConsumeQueue, offset: int, right: Entry) -> bool:
        found = queue.entry(offset) if queue.min_offset <= offset < queue.max_offset else None
        if found is None or found == right or right[0] < self._log.min_offset:
            return False
        if found[:2] == right[:2]:
            # The tag code alone: it may be the address of an extension entry, or a time by other delay levels.
            extension = queue.extension
            is_extended = extension is not None and is_address(found[2]) and extension.find(found[2]) is not None
            return not is_extended and queue.topic not in PARKING_TOPICS
        there = self._records.at(found[0], found[1]) if found[1] > 0 else None
        return there is None or not belongs(there, queue, offset)  # Otherwise two records claim this place.

    # -- index -----------------------------------------------------------------------------------------------

    def _parts(self) -> list[CheckedIndexFile]:
        """The index files as `verify` sees them."""
        return [] if self._index is None else self._index.parts()

    def _take_keys(self, piece: CheckedPiece, stream: IndexStream, report: StepReport) -> None:
        if self._index is None:
            return
        for name in sorted({self._file_of(flaw, stream) for flaw in piece.keys.flaws if self._counts(flaw, piece)}):
            self._condemn(name, f"index/{name}: its entries are not those of the log", report)
        if piece.keys.missing_count and stream.parts:
            place = int(piece.keys.missing[0][1])
            report.findings.append(f"index: keys of the record at {place} and later ones have no entry")

    def _counts(self, flaw: KeyFlaw, piece: CheckedPiece) -> bool:
        ends = (flaw.physical, max(flaw.physical, flaw.last_physical))
        is_lost = all(any(damage.start <= end < damage.end for damage in piece.damages) for end in ends)
        return flaw.kind != "twice" and not is_lost and flaw.physical >= self._log.min_offset

    def _file_of(self, flaw: KeyFlaw, stream: IndexStream) -> str:
        return stream.parts[min(flaw.place.file, len(stream.parts) - 1)].name

    def _condemn(self, name: str, text: str, report: StepReport) -> None:
        assert self._index is not None
        file = self._index.find_file(name)
        if file is not None and file.damage is None:
            self._index.note_damage(file, FileDamaged(name, 0))
            report.findings.append(text)

    def check_index_files(self, start: int, end: int, compared_from: int) -> StepReport:
        """Links, slots and checksums of the index files that end in [start, end). Files all of whose entries were
        compared since `compared_from`, and are right, get checksums."""
        report = StepReport(end)
        for part in self._parts():
            file = self._index.find_file(part.name) if self._index is not None else None
            if file is None or file.damage is not None or not start <= part.header.end_physical < end:
                continue
            report.read_bytes += 20 * part.header.count + 4 * part.slots_max
            file.blocks.forget()
            try:
                file.blocks.confirm(0, file.file_bytes)
            except FileDamaged:
                self._condemn(part.name, f"index/{part.name}: it is not what was written", report)
                continue
            if link_flaws(part):
                self._condemn(part.name, f"index/{part.name}: its links or slots are wrong", report)
            elif compared_from <= part.header.begin_physical:
                file.is_trusted = True
        return report
