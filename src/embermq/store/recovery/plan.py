"""Where recovery starts to walk, from the proofs that earlier runs left behind. Pure.

    closed cleanly, everything as the inventory says     the tail only; queues and index are believed
    closed cleanly, otherwise                            the whole log; queues and index are made again
    not closed, state page believable                    the oldest of its proofs, and at least the tail; the index
                                                         is cut to its proof. If the machine did not stop meanwhile,
                                                         what was written counts as proven, synced or not
    not closed, otherwise                                the whole log; queues and index are made again
    opened read-only, otherwise                          what the queues and the index do not have (derived_trust.py)

"Otherwise" covers stores RocketMQ wrote, deleted or changed files, and proofs that contradict what
lies on the disk. Walking the whole log and deriving everything anew costs a second or two per GiB, once.
"""

from dataclasses import dataclass
from enum import Enum, auto

from embermq.store.layout.inventory import Inventory
from embermq.store.recovery.replay import Plan


class IndexPlan(Enum):
    KEEP = auto()
    RESTORE = auto()  # Cut the newest file to what its proof says.
    REBUILD = auto()


@dataclass(frozen=True, slots=True)
class Proofs:
    """What the state page vouches for: positions in the log, and how many files there were."""

    flushed: int
    written: int  # Bytes below were written, and are there: all of them if the machine did not stop meanwhile.
    queues: int
    index: int
    queue_files: int
    index_files: int
    tail_mark: int  # Read at least from here: what was proven durable may have been damaged since.


@dataclass(frozen=True, slots=True)
class FilesSeen:
    """What lies on the disk."""

    clean: bool
    log_min: int
    log_capacity_end: int  # End of the last log file, written or not.
    log_files_sound: bool  # No short, missing or foreign-sized file.
    queue_files: int
    index_files: int
    derived_findings: int
    inventory_findings: int  # Differences from the inventory; counts only if there is one.
    read_only: bool
    derived_position: int = 0  # For a reader: queue entries and keys of all records below this are in files.


def make_plan(seen: FilesSeen, inventory: Inventory | None, proofs: Proofs | None) -> tuple[Plan, IndexPlan]:
    """The plan for what was seen."""
    whole_log = seen.log_min
    if proofs is not None and not seen.log_min <= proofs.flushed <= seen.log_capacity_end:
        proofs = None  # The log is not the one these proofs were about.
    proven = proofs.flushed if proofs is not None else None
    if seen.clean:
        believable = (
            inventory is not None
            and proofs is not None
            and seen.log_files_sound
            and inventory.log_max == proofs.flushed
            and seen.inventory_findings == seen.derived_findings == 0
        )
        if believable:
            assert inventory is not None
            tail = min(max(inventory.tail_mark, seen.log_min), inventory.log_max)
            return Plan(tail, proven, inventory.log_max, "closed cleanly"), IndexPlan.KEEP
        if seen.read_only:
            return _read_only_plan(seen, proven)
        return Plan(whole_log, proven, None, "closed cleanly, but not as our inventory says"), IndexPlan.REBUILD
    if seen.read_only:
        return _read_only_plan(seen, proven)
    if proofs is None:
        return Plan(whole_log, None, None, "not closed cleanly, and no part is proven"), IndexPlan.REBUILD
    if seen.derived_findings or seen.queue_files < proofs.queue_files or seen.index_files < proofs.index_files:
        return Plan(whole_log, proven, None, "not closed cleanly, and derived files are missing"), IndexPlan.REBUILD
    walk_from = max(min(proofs.written, proofs.queues, proofs.index, proofs.tail_mark), seen.log_min)
    return Plan(walk_from, proven, None, "not closed cleanly"), IndexPlan.RESTORE


def _read_only_plan(seen: FilesSeen, proven: int | None) -> tuple[Plan, IndexPlan]:
    """A reader believes files as far as they are known to be complete, and derives the rest in memory."""
    walk_from = min(max(seen.derived_position, seen.log_min), seen.log_capacity_end)
    return Plan(walk_from, proven, None, "read-only"), IndexPlan.KEEP
