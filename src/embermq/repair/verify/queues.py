"""Log against queues: every record has its entry where it says, and every entry has its record.

The pieces of the log (store/compare/entries.py) are put together in order. What does not agree is a suspect: of a store
that is being written the entry may only be on its way, so suspects are looked at again before they are reported
(`finish`). Entries that no record claimed are looked at one by one: they may stand for a record of another topic (light
queues), fill the place of a lost one, or be wrong.

`check_structure` is the fast form: the entries alone, without the log. One thread. Reads only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import QueueName
from embermq.files import Files
from embermq.format.frame import Frame
from embermq.format.names import segment_name
from embermq.format.queue_entry import BLANK_SIZE, ENTRY_BYTES
from embermq.format.queue_extension import is_address
from embermq.model.properties import MULTI_DISPATCH, PARKING_TOPICS, decode_properties
from embermq.repair.verify.extension import ExtensionCheck
from embermq.repair.verify.findings import Flaw, Remedies, Severity
from embermq.repair.verify.seen_queue import SeenQueue
from embermq.store import Finding
from embermq.store.compare import OffsetRun, QueuePieceCheck, Suspects, VerifiedQueueFiles, joined
from embermq.store.log import DamagedRange
from embermq.store.queues import QUEUE_FAMILY, ConsumeQueue, is_directory_name, is_possible

_UNCLAIMED_MAX = 10_000
_DUE_MS_MAX = 1000 * 24 * 3_600_000  # No level of delayed messages is longer.
_STEP_ENTRIES = 100_000

FrameAt = Callable[[int], Frame | None]
Entry = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known about the log and the queues beforehand."""

    log_min: int
    log_end: int
    believed: int  # A start believes that entries of all records below this place are there.
    is_live: bool


class QueueCheck:
    """Compares the queues below `root` with the log."""

    def __init__(
        self,
        root: Path,
        files: Files,
        file_bytes: int,
        bounds: Bounds,
        frame_at: FrameAt,
        remedies: Remedies,
        *,
        store: Path | None = None,
    ) -> None:
        self._bounds, self._frame_at, self._remedies = bounds, frame_at, remedies
        self.files = VerifiedQueueFiles(root, files, file_bytes, bounds.log_min, store=store)
        self._extension = ExtensionCheck(root, files, remedies)
        self._queues: dict[QueueName, SeenQueue] = {}
        self._attach()
        self._damages: list[DamagedRange] = []
        self.entries = 0
        self.pending = 0  # Records whose entries are not proven yet.

    def _attach(self) -> None:
        """Find the files that are there now."""
        for name, files in self.files.load().items():
            self._queue(name).files = files

    def _queue(self, name: QueueName) -> SeenQueue:
        return self._queues.setdefault(name, SeenQueue(name))

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def ends(self) -> dict[QueueName, int]:
        """Where each queue ends, by its files or by the log, whichever knows more."""
        return {
            name: max(queue.next, queue.files.max_offset if queue.files is not None else 0)
            for name, queue in self._queues.items()
        }

    def close(self) -> None:
        self.files.close()

    # -- taking the log --------------------------------------------------------------------------------------

    def merge(self, part: QueuePieceCheck, names: list[QueueName]) -> None:
        """What the next piece of the log says; `names` are those of the queue numbers."""
        for number, runs in part.runs.items():
            if not is_directory_name(names[number][0]):
                continue  # Such a topic can have no queue.
            queue = self._queue(names[number])
            suspects = part.suspects.get(number, [])
            for run in runs:
                was = queue.next
                queue.follow(run)
                if was > 0 and run.first == 0 and run.place >= 0:
                    suspects = [one.chosen(one.physicals >= run.place) for one in suspects]  # See begin_anew.
            queue.suspect(suspects)

    def look_again(self) -> bool:
        """Read the entries of suspects once more; True if some are still suspect."""
        deleted = self.files.deleted_since()
        self._attach()
        left = False
        for queue in self._queues.values():
            if queue.name[0] in deleted:
                continue
            suspects, queue.suspects, queue.kept = queue.suspects, [], 0
            for some in suspects:
                wrong = some.chosen(~self._right(queue, some))
                if len(wrong.offsets):
                    queue.suspect([wrong])
                    left = True
        return left

    def _right(self, queue: SeenQueue, suspects: Suspects) -> NDArray[np.bool_]:
        """Which suspects have the right entry after all."""
        if not len(suspects.offsets):
            return np.zeros(0, np.bool_)
        found = [self.files.entries(queue.name, offset, 1)[0].item() for offset in suspects.offsets.tolist()]
        physicals, sizes, tags = (np.array(column, np.int64) for column in zip(*found, strict=True))
        right: NDArray[np.bool_] = (physicals == suspects.physicals) & (sizes == suspects.sizes)
        differ = np.flatnonzero(right & (tags != suspects.tag_codes))
        if len(differ):
            right[differ] = self._tags_right(queue, tags[differ], suspects.chosen(differ))
        return right

    def _tags_right(self, queue: SeenQueue, found: NDArray[np.int64], records: Suspects) -> NDArray[np.bool_]:
        """Tag codes that are not the record's own may be addresses, or due times by other delay levels."""
        right = np.zeros(len(found), np.bool_)
        addresses = np.array([is_address(tag) for tag in found.tolist()], np.bool_)
        if addresses.any():
            right[addresses] = self._extension.check(queue.name, found[addresses], records.chosen(addresses))
        if queue.name[0] in PARKING_TOPICS:
            # By levels we do not know, or, of a start after a crash of RocketMQ, the tag's own hash.
            late = found - records.times
            right |= ~addresses & (((late >= 0) & (late <= _DUE_MS_MAX)) | (np.abs(found) <= 1 << 31))
        return right

    # -- after the log ---------------------------------------------------------------------------------------

    def finish(self, log_min: int, damages: list[DamagedRange]) -> Iterator[Flaw]:
        """What is wrong with the queues; `log_min` is where the log begins now, `damages` what is or was wrong with
        it: ranges that hold no record, also those that fillers close."""
        self._damages = damages
        filed = [queue.files for queue in self._queues.values() if queue.files is not None]
        self.entries = sum(files.max_offset - files.low_offset for files in filed)
        yield from self._load_flaws()
        deleted = self.files.deleted_since()
        for _, queue in sorted(self._queues.items()):
            if queue.name[0] in deleted:
                continue  # Part of what was read is of an ended incarnation.
            queue.finish()
            yield from self._flaws_of_records(queue, log_min)
            yield from self._flaws_of_entries(queue, log_min)

    def _load_flaws(self, more: Sequence[Finding] = ()) -> Iterator[Flaw]:
        for finding in (*self.files.findings, *more):
            severity = Severity.FAULT if finding.replay_from < self._bounds.believed else Severity.NOTE
            if self._bounds.is_live:
                continue  # A file may be seen between its making and its first entry; its entries are compared.
            yield Flaw(
                severity=severity,
                family=finding.family,
                file=f"{finding.family}/{finding.where}",
                remedy=self._remedies.queues if severity is Severity.FAULT else self._remedies.start,
                fault=finding.reason,
                physical_offset=finding.replay_from,
            )

    def _flaws_of_records(self, queue: SeenQueue, log_min: int) -> Iterator[Flaw]:
        """Records whose entries are missing or wrong, and offsets that were given twice."""
        if queue.suspects:
            every = joined(queue.suspects)
            wrong = every.chosen(~self._right(queue, every) & (every.physicals >= log_min))  # Retention may be faster.
            for run in (*queue.repeats, *queue.strays):
                wrong = wrong.chosen((wrong.offsets < run.first) | (wrong.offsets >= run.next))
            wrong = self._without_impossible(queue, wrong)
            certain = wrong.physicals < self._bounds.believed
            self.pending += int((~certain).sum())
            if certain.any():
                yield self._record_flaw(queue, wrong.chosen(certain))
        for run in queue.repeats[:1]:
            yield self._flaw(
                queue,
                run.first,
                run.place if run.place >= 0 else None,
                "this queue offset was given twice: two records of the log claim it",
                sum(one.next - one.first for one in queue.repeats),
                remedy=self._remedies.nothing,
            )
        for run in queue.strays[:1]:
            yield Flaw(
                severity=Severity.FAULT,
                family=QUEUE_FAMILY,
                file=f"{QUEUE_FAMILY}/{queue.name[0]}/{queue.name[1]}",
                fault=f"a record says queue offset {run.first}, which its queue had not reached",
                remedy=self._remedies.nothing,
                physical_offset=run.place if run.place >= 0 else None,
                count=sum(one.next - one.first for one in queue.strays),
            )

    def _without_impossible(self, queue: SeenQueue, wrong: Suspects) -> Suspects:
        """Negative offsets make no run, so they are met here."""
        impossible = np.array([not is_possible(offset) for offset in wrong.offsets.tolist()], np.bool_)
        for offset, place in zip(wrong.offsets[impossible].tolist(), wrong.physicals[impossible].tolist(), strict=True):
            queue.strays.append(OffsetRun(offset, offset + 1, place))
        return wrong.chosen(~impossible)

    def _record_flaw(self, queue: SeenQueue, wrong: Suspects) -> Flaw:
        first = wrong.chosen(slice(0, 1))
        offset, place, size = (int(column[0]) for column in first[:3])
        found = self.files.entries(queue.name, offset, 1)[0].item()
        if found[1] == 0:
            fault = f"the record of queue offset {offset} has no entry"
        elif found[:2] == (place, size) and is_address(found[2]):
            return self._extension.flaw(queue.name, found[2], first, len(wrong.offsets))
        elif found[:2] == (place, size):
            fault = f"the entry of queue offset {offset} has tag code {found[2]}, its record {int(first.tag_codes[0])}"
        else:
            fault = (
                f"the entry of queue offset {offset} leads to {found[0]} (size {found[1]}), its record is at {place}"
                f" (size {size})"
            )
        return self._flaw(queue, offset, place, fault, len(wrong.offsets))

    def _flaw(
        self,
        queue: SeenQueue,
        queue_offset: int,
        place: int | None,
        fault: str,
        count: int = 1,
        *,
        severity: Severity = Severity.FAULT,
        remedy: str | None = None,
    ) -> Flaw:
        start = queue_offset - queue_offset % self.files.entries_per_file
        file = f"{QUEUE_FAMILY}/{queue.name[0]}/{queue.name[1]}/{segment_name(start * ENTRY_BYTES)}"
        return Flaw(
            severity=severity,
            family=QUEUE_FAMILY,
            file=file,
            fault=fault,
            remedy=remedy or self._remedies.queues,
            physical_offset=place,
            queue_offset=queue_offset,
            byte_offset=(queue_offset - start) * ENTRY_BYTES,
            count=count,
        )

    # -- entries without a record ------------------------------------------------------------------------------

    def _flaws_of_entries(self, queue: SeenQueue, log_min: int) -> Iterator[Flaw]:
        files = queue.files
        if files is None:
            yield from (self._lost(queue, start, end, end - start) for start, end in queue.holes)
            return
        low, end = files.low_offset, files.max_offset
        if queue.first < 0:
            yield from self._unclaimed(queue, low, end, log_min)
            return
        yield from self._unclaimed(queue, low, min(queue.first, end), log_min)
        for start, after in queue.holes:
            yield from self._hole(queue, start, after, log_min)
        yield from self._unclaimed(queue, max(queue.next, low), end, log_min)

    def _hole(self, queue: SeenQueue, start: int, end: int, log_min: int) -> Iterator[Flaw]:
        """Queue offsets that no record has: lost to damage, or a light queue between its own records. Retention may
        have taken a file of the log between the reading of the one before it and its own."""
        behind = self.files.entries(queue.name, end, 1)[0].item()
        lost = max(end - start - _UNCLAIMED_MAX, 0)
        entries = self.files.entries(queue.name, start, min(end - start, _UNCLAIMED_MAX)).tolist()
        for offset, entry in enumerate(entries, start):
            said = self._queue_offset_behind(queue, entry)
            if said == offset:
                continue  # Its record came after one that said more than it should.
            if entry == behind or entry[1] == 0 or self._is_damaged(entry[0]) or (said is not None and said > offset):
                lost += 1  # It stands for a record further up in the queue, which made the hole by its own account.
            elif entry[0] >= log_min and not self._is_of_other_topic(queue, entry):
                yield self._flaw(
                    queue, offset, entry[0], f"the entry of queue offset {offset} leads to no record of it"
                )
                return
        if lost:
            yield self._lost(queue, start, end, lost)

    def _lost(self, queue: SeenQueue, start: int, end: int, count: int) -> Flaw:
        return self._flaw(
            queue,
            start,
            None,
            f"messages {start} to {end - 1} of the queue are lost: the log does not have them",
            count,
            severity=Severity.NOTE,
            remedy=self._remedies.nothing,
        )

    def _unclaimed(self, queue: SeenQueue, start: int, end: int, log_min: int) -> Iterator[Flaw]:
        """Entries before the first and after the last record of the log: expired, in flight, of others, or wrong."""
        bounds = self._bounds
        for at in range(start, end, _STEP_ENTRIES):
            entries = self.files.entries(queue.name, at, min(end - at, _STEP_ENTRIES))
            physicals = entries["physical_offset"].astype(np.int64)
            inside = (physicals >= log_min) & (physicals < bounds.log_end) & (entries["size"] != BLANK_SIZE)
            beyond = (physicals >= bounds.log_end) & (entries["size"] > 0)
            if beyond.any() and not bounds.is_live:
                number = int(np.argmax(beyond))
                yield self._beyond(queue, at + number, int(physicals[number]), int(beyond.sum()))
            for number in np.flatnonzero(inside)[:_UNCLAIMED_MAX].tolist():
                entry = entries[number].item()
                if self._is_damaged(entry[0]) or self._is_of_other_topic(queue, entry):
                    continue
                said = self._queue_offset_behind(queue, entry)
                if self._damages and said is not None and said > at + number:
                    continue  # It fills the place of a record that was lost to damage, before all that are left.
                yield self._flaw(
                    queue,
                    at + number,
                    entry[0],
                    f"the entry of queue offset {at + number} leads to {entry[0]}, where no record of it is",
                    int(inside.sum()),
                    severity=Severity.FAULT if entry[0] < bounds.believed else Severity.NOTE,
                )
                break

    def _is_damaged(self, place: int) -> bool:
        """Does the log have no record here because it is damaged? That is reported of the log, not of the queue."""
        return any(damage.start <= place < damage.end for damage in self._damages)

    def _beyond(self, queue: SeenQueue, queue_offset: int, place: int, count: int) -> Flaw:
        """A start cuts these, unless it believes what the last close wrote down."""
        is_believed = self._bounds.believed > self._bounds.log_end
        return self._flaw(
            queue,
            queue_offset,
            place,
            f"the entry leads past the end of the log ({self._bounds.log_end})",
            count,
            severity=Severity.FAULT if is_believed else Severity.NOTE,
            remedy=self._remedies.queues if is_believed else self._remedies.start,
        )

    def _queue_offset_behind(self, queue: SeenQueue, entry: Entry) -> int | None:
        """The queue offset that the record of an entry says it has; None if it is no record of this queue."""
        frame = self._frame_at(entry[0])
        if frame is None or frame.size != entry[1] or (frame.topic, frame.queue_id) != queue.name:
            return None
        return frame.queue_offset

    def _is_of_other_topic(self, queue: SeenQueue, entry: Entry) -> bool:
        """Does the entry stand for a record of another topic that names this queue (multi dispatch)?"""
        frame = self._frame_at(entry[0])
        if frame is None or frame.size != entry[1]:
            return False
        names = decode_properties(bytes(frame.properties)).get(MULTI_DISPATCH, "").split(",")
        return queue.name[0] in names

    # -- the fast form ---------------------------------------------------------------------------------------

    def check_structure(
        self, log_min: int, closed: dict[str, Any] | None, damages: list[DamagedRange]
    ) -> Iterator[Flaw]:
        """Entries alone: in the order of the log, inside it, and the newest one with its record. `closed` is what the
        last clean close said about the queues, if there was one; `damages` are ranges of the log that were lost."""
        self._damages = damages
        yield from self._load_flaws(self.files.matches(closed) if closed is not None else [])
        for _, queue in sorted(self._queues.items()):
            if queue.files is not None:
                yield from self._check_entries(queue, queue.files, log_min)

    def _check_entries(self, queue: SeenQueue, files: ConsumeQueue, log_min: int) -> Iterator[Flaw]:
        at, end, before = files.low_offset, files.max_offset, -1
        self.entries += end - at
        while at < end:
            entries = files.entries_on_disk(at, min(end - at, _STEP_ENTRIES))
            if not len(entries):
                yield self._flaw(queue, at, None, f"the file with queue offset {at} cannot be read")
                return
            physicals = entries["physical_offset"].astype(np.int64)
            wrong = np.flatnonzero((np.diff(physicals, prepend=before) < 0) | (entries["size"] <= 0))
            if len(wrong):
                offset = at + int(wrong[0])
                fault = f"the entry of queue offset {offset} is out of the order of the log"
                yield self._flaw(queue, offset, int(physicals[wrong[0]]), fault, len(wrong))
                return
            at, before = at + len(entries), int(physicals[-1])
        yield from self._check_newest(queue, files, log_min)

    def _check_newest(self, queue: SeenQueue, files: ConsumeQueue, log_min: int) -> Iterator[Flaw]:
        """The newest entry of records that are surely there leads to its record."""
        bounds, newest = self._bounds, files.peek(files.max_offset - 1)
        if newest is None or newest[0] < log_min:
            return
        offset = files.max_offset - 1
        if newest[0] >= bounds.log_end:
            if not bounds.is_live:
                yield self._beyond(queue, offset, newest[0], 1)
            return
        if newest[0] >= bounds.believed or self._is_damaged(newest[0]):
            return
        frame = self._frame_at(newest[0])
        place = None if frame is None else (frame.topic, frame.queue_id, frame.queue_offset)
        if place != (*queue.name, offset) and not self._is_of_other_topic(queue, newest):
            yield self._flaw(queue, offset, newest[0], f"the entry of queue offset {offset} leads to no record of it")
