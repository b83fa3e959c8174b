"""Which half messages are not decided, and how far the half queue and the op queue are counted. The loop's thread.

Half messages are added in the order of their queue offsets, so that the first entry is always the oldest.
"""

from collections.abc import Iterator

import msgspec


class UndecidedHalf(msgspec.Struct, gc=False):
    """An undecided half message."""

    physical_offset: int
    op_floor: int  # op records of later half messages lie at this offset of the op queue or behind it
    checks: int = 0  # how often its producer was asked since it was stored


class Undecided:
    """The undecided half messages by their queue offset."""

    def __init__(self, half_end: int = 0, op_end: int = 0) -> None:
        self._entries: dict[int, UndecidedHalf] = {}
        self.half_end, self.op_end = half_end, op_end  # everything below is counted

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, half_offset: int) -> bool:
        return half_offset in self._entries

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def entry(self, half_offset: int) -> UndecidedHalf | None:
        return self._entries.get(half_offset)

    def add(self, half_offset: int, entry: UndecidedHalf) -> None:
        """A half message was stored, or was found when the store was opened."""
        assert half_offset >= self.half_end, (half_offset, self.half_end)
        self._entries[half_offset] = entry
        self.half_end = half_offset + 1

    def stored(self, half_offset: int, physical_offset: int) -> None:
        self.add(half_offset, UndecidedHalf(physical_offset, self.op_end))

    def decided(self, half_offset: int, op_offset: int) -> None:
        """The decision on a half message was stored at this offset of the op queue."""
        self._entries.pop(half_offset, None)
        self.op_end = max(self.op_end, op_offset + 1)

    def forget(self, half_offset: int) -> None:
        """The record of a half message is gone."""
        self._entries.pop(half_offset, None)

    @property
    def progress(self) -> tuple[int, int]:
        """Where a broker has to begin to read the half queue and the op queue to know what is undecided."""
        for half_offset, entry in self._entries.items():
            return half_offset, entry.op_floor
        return self.half_end, self.op_end

    def items(self) -> list[tuple[int, UndecidedHalf]]:
        return list(self._entries.items())
