"""What a salvage saved and what it did not: ranges of the log without a whole record, and messages of queues."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from embermq.files import BadBlock
from embermq.repair.salvage.log_files import Placed, RefusedFile


class LostRange(msgspec.Struct, frozen=True):
    """A part of the log without a whole record."""

    physical_offset: int
    length: int
    reason: str
    kept_in: str | None  # In the new store: the bytes as they were.

    @property
    def end(self) -> int:
        return self.physical_offset + self.length


class LostMessages(msgspec.Struct, frozen=True):
    """Queue offsets first..end of a queue whose records are gone."""

    topic: str
    queue_id: int
    first: int
    end: int


@dataclass(slots=True)
class Salvaged:
    """What was saved, and what was not."""

    path: Path
    target: Path
    segments: int = 0
    segment_bytes: int = 0
    log_min: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    lost_ranges: list[LostRange] = field(default_factory=list)
    lost_messages: list[LostMessages] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)  # Records that are whole and say a wrong queue offset.
    torn: list[LostRange] = field(default_factory=list)  # Rests of appends, never confirmed: no loss.
    bad_blocks: list[BadBlock] = field(default_factory=list)
    moved: list[Placed] = field(default_factory=list)
    refused: list[RefusedFile] = field(default_factory=list)
    config_files: list[str] = field(default_factory=list)
    config_faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Was anything lost that a whole store would have had?"""
        lost = (self.lost_ranges, self.lost_messages, self.strays, self.bad_blocks, self.config_faults)
        return not any(lost)

    @property
    def lost_bytes(self) -> int:
        return sum(lost.length for lost in self.lost_ranges)

    @property
    def lost_count(self) -> int:
        """Messages that queues show to be missing; others are unknown."""
        return sum(lost.end - lost.first for lost in self.lost_messages)


def parts_outside(whole: LostRange, others: list[LostRange]) -> list[LostRange]:
    """What is left of a range if others are reported on their own."""
    parts, at = [], whole.physical_offset
    inside = [one for one in others if one.end > at and one.physical_offset < whole.end]
    if not inside:
        return [whole]
    for one in sorted(inside, key=lambda one: one.physical_offset):
        if at < one.physical_offset:
            parts.append(LostRange(at, one.physical_offset - at, whole.reason, whole.kept_in))
        at = max(at, one.end)
    if at < whole.end:
        parts.append(LostRange(at, whole.end - at, whole.reason, whole.kept_in))
    return parts
