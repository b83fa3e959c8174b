"""What `verify` finds: each flaw with its file, its place, what is wrong, and what helps.

    FAULT   the next start would not repair it, or a reader may be misled until then
    NOTE    worth knowing: the next start repairs it by itself, or it was repaired before and something is lost

Values; any thread.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

# The remedy of what the log itself says and no file made from it can repair.
NOTHING = "nothing: for information only"


class Severity(StrEnum):
    FAULT = "fault"
    NOTE = "note"


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. Offsets that mean nothing for its kind are None."""

    severity: Severity
    family: str  # commitlog, consumequeue, consumequeue_ext, index, checkpoint, config, or the state files
    file: str
    fault: str
    remedy: str
    physical_offset: int | None = None
    queue_offset: int | None = None
    byte_offset: int | None = None  # in the file
    count: int = 1  # how many such places, of which this is the first

    @property
    def is_fault(self) -> bool:
        return self.severity is Severity.FAULT

    @property
    def place(self) -> tuple[object, ...]:
        """The same for the same flaw found by another look: counts and the newest file may have changed since."""
        if self.physical_offset is None:
            return self.family, self.file, self.fault
        return self.family, self.physical_offset, self.queue_offset

    @property
    def can_be_mended(self) -> bool:
        return self.remedy != NOTHING


class Remedies:
    """What to do about each family, for the store at `root`."""

    def __init__(self, root: Path) -> None:
        self.salvage = (
            f"`embermq store salvage {root} --into NEW` keeps every whole record; opening"
            " the store puts the range into quarantine/ and keeps the rest"
        )
        self.queues = f"with the broker stopped: `embermq store rebuild {root} --queues`"
        self.index = f"with the broker stopped: `embermq store rebuild {root} --index`"
        self.start = "nothing: the next start makes it again"
        self.restore = "restore the file from a backup"
        self.delete = "delete it while the store is closed; it is made again"
        self.nothing = NOTHING
