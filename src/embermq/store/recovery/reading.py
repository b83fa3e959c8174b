"""What a read-only opening decides: from where to where it walks the log, and whether what it saw fits together.

A reader must give the answers that an opening for writing gives, of the same files, without changing them and beside a
process that does. What vouches for files (state page, index proof) is read before them. Queues and index are believed
as far as they are complete (derived_trust.py), the rest is derived from the log in memory. The walk begins no later
than where damage would end the log for an opening for writing, and ends there too; and under SYNC_FLUSH it ends where
the log is flushed, because a crash can take back the rest.

Where files went or came between two looks, `LookAgain` says so, and the caller begins anew. One thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from embermq.files import Files
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.proof import IndexProof
from embermq.store.layout.inventory import Inventory
from embermq.store.layout.owner import must_be_flushed
from embermq.store.layout.state_view import PageNumbers, PageReader
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.records import Records
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.recovery.derived_trust import DerivedTrust
from embermq.store.recovery.plan import FilesSeen, Proofs
from embermq.store.recovery.replay import Plan, is_inside_record

Decide = Callable[[FilesSeen, Inventory | None, Proofs | None], Plan]
ProofsOf = Callable[[PageNumbers | None], Proofs | None]


class LookAgain(Exception):
    """The store was changed while a reader opened it: what it has seen does not fit together."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Which families of derived files are as they should be, by themselves and by the inventory of a clean close."""

    queues: bool
    index: bool


class Reading:
    """One read-only opening: made first of all, asked for the plan when files are loaded, and again after the walk."""

    def __init__(self, files: Files, root: Path, commit_log: CommitLog, page: PageNumbers | None) -> None:
        self._files, self._root, self._log, self._page = files, root, commit_log, page

    def plan(
        self,
        seen: FilesSeen,
        sound: Sound,
        inventory: Inventory | None,
        queues: ConsumeQueues | None,
        index: IndexFiles | None,
        index_proof: IndexProof | None,
        decide: Decide,
        proofs_of: ProofsOf,
        *,
        believe_queues: bool,
    ) -> Plan:
        """Where to walk from and to. LookAgain if queue files are not complete and a running store may be the reason,
        unless they are not to be believed anyway."""
        page = self._page if self._page is not None and self._is_of_this_log(self._page, seen) else None
        proofs = proofs_of(page)
        proven = _proven_for_a_writer(decide(replace(seen, read_only=False), inventory, proofs))
        trust = DerivedTrust(self._files, self._root, page)
        places = [seen.log_capacity_end if proven is None else proven]
        # Our own clean close leaves an inventory: without one nothing tells where each queue ended.
        is_listed = inventory is not None or not seen.clean or page is None
        if queues is not None:
            believed = believe_queues and is_listed
            places.append(self._queues_complete(queues, trust, seen, sound.queues) if believed else 0)
        if index is not None:
            places.append(trust.index(index, index_proof, is_sound=sound.index))
        plan = replace(decide(replace(seen, derived_position=min(places)), inventory, proofs), proven=proven)
        if page is None or not must_be_flushed(self._files, self._root, page):
            return plan
        return replace(plan, walk_from=min(plan.walk_from, page.flushed), limit=page.flushed)

    def check_unchanged(self, queues: ConsumeQueues | None) -> None:
        """LookAgain if queue files lacked records that the page vouched for, or if another writer has begun."""
        if queues is not None and queues.lacking:
            raise LookAgain(f"queue files lack records of {queues.lacking[0]}")
        before, now = self._page, PageReader(self._root, self._files).read()
        if before is None:
            return
        same_run = now is not None and (now.epoch, now.boot) == (before.epoch, before.boot)
        if now is None or not same_run or now.queues_written < before.queues_written:
            raise LookAgain("another writer has begun")

    def _is_of_this_log(self, page: PageNumbers, seen: FilesSeen) -> bool:
        in_log = seen.log_min <= page.flushed <= seen.log_capacity_end
        return in_log and not is_inside_record(self._log, page.flushed)

    def _queues_complete(self, queues: ConsumeQueues, trust: DerivedTrust, seen: FilesSeen, is_sound: bool) -> int:
        """Entries of all records below this place are in queue files."""
        place, file_count = trust.queues(lambda: newest_entry_end(self._log, queues))
        if is_sound and seen.queue_files >= file_count and (seen.log_files_sound or not seen.clean):
            return place
        if not seen.clean and seen.log_files_sound:
            raise LookAgain("queue files are not as the state page says")
        return 0


def _proven_for_a_writer(plan: Plan) -> int | None:
    """Below this place an opening for writing does not end the log, whatever lies there; None: nowhere before its end.

    It passes damage below what was flushed, and what lies before its walk it does not look at.
    """
    return None if plan.proven is None else max(plan.proven, plan.walk_from)


def newest_entry_end(commit_log: CommitLog, queues: ConsumeQueues) -> int:
    """The end of the newest record that queues know, if the log has it: after a crash it may not."""
    newest = max(queues.all(), key=lambda queue: queue.max_physical, default=None)
    entry = newest.entry(newest.max_offset - 1) if newest is not None else None
    if entry is None or Records(commit_log).frame_at(entry[0], entry[1]) is None:
        return 0
    return entry[0] + entry[1]
