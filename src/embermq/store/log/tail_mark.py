"""The tail mark: a place near the end of the log where a record begins.

A clean start reads from there on. A walk of the log notes where records end; the mark follows at a
distance of one to two TAIL_BYTES. One thread at a time.
"""

TAIL_BYTES = 64 << 20


class TailMark:
    """Two places where records begin, about TAIL_BYTES apart; the older one is the mark."""

    __slots__ = ("_newer", "position")

    def __init__(self, position: int) -> None:
        self.position = self._newer = position

    def note(self, end: int) -> None:
        """A record ends, and so the next one begins, at `end`."""
        if end - self._newer >= TAIL_BYTES:
            self.position, self._newer = self._newer, end
