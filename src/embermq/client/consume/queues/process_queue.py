"""ProcessQueue: the messages of one queue that were pulled and are not consumed yet. Pure; the loop's thread only.

Messages come in ascending queue offsets and may be finished in any order; what may be committed is the smallest offset
that is still here, or the one after the last when nothing is:

    cached 5 6 7 8, finished 6 and 8        commit 5
    then finished 5                         commit 7
    then finished 7                         commit 9

For orderly consumption `take` hands out the next messages from the front and remembers them until `finish` or
`give_back`. A queue that was dropped (given to another member, or its offset was reset) hands out nothing more and
commits nothing more: what its handlers still finish may be consumed again by the next owner.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embermq.client.received import ReceivedMessage


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How much of one queue may be held. Reaching a limit stops its pulls until half of it is free again."""

    messages: int = 1000
    body_bytes: int = 100 << 20
    span: int = 2000

    def __post_init__(self) -> None:
        assert min(self.messages, self.body_bytes, self.span) > 0, self


class ProcessQueue:
    """What was pulled of one queue."""

    def __init__(self, limits: CacheLimits, *, is_orderly: bool = False) -> None:
        self._limits, self._is_orderly = limits, is_orderly
        self._sizes: dict[int, int] = {}  # of every message here, by queue offset
        self._offsets: deque[int] = deque()  # ascending; those that are finished leave when they are in front
        self._waiting: deque[ReceivedMessage] = deque()  # orderly: not taken yet
        self._bytes = 0
        self._end: int | None = None  # one after the last offset that was ever here
        self.is_dropped = False

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def body_bytes(self) -> int:
        return self._bytes

    @property
    def first_offset(self) -> int | None:
        """The smallest offset that is not finished."""
        offsets, sizes = self._offsets, self._sizes
        while offsets and offsets[0] not in sizes:
            offsets.popleft()
        return offsets[0] if offsets else None

    @property
    def last_offset(self) -> int | None:
        """The largest offset that is here."""
        offsets, sizes = self._offsets, self._sizes
        while offsets and offsets[-1] not in sizes:
            offsets.pop()
        return offsets[-1] if offsets else None

    @property
    def span(self) -> int:
        """From the smallest to the largest offset here; one stuck message makes it grow."""
        first, last = self.first_offset, self.last_offset
        return 0 if first is None or last is None else last - first

    @property
    def committable(self) -> int | None:
        """The offset from which consumption would go on; None before the first message came."""
        first = self.first_offset
        return first if first is not None else self._end

    def full_because(self) -> str | None:
        """Which limit is reached; None while more may be pulled."""
        limits = self._limits
        if len(self._sizes) >= limits.messages:
            return f"{len(self._sizes)} messages are waiting, at most {limits.messages} may"
        if self._bytes >= limits.body_bytes:
            return f"{self._bytes:,} bytes are waiting, at most {limits.body_bytes:,} may"
        if not self._is_orderly and self.span >= limits.span:
            return f"offset {self.first_offset} is not finished, and {self.last_offset} was pulled already"
        return None

    def has_room(self) -> bool:
        """Whether pulls that stopped at a limit may go on."""
        limits = self._limits
        return (
            2 * len(self._sizes) <= limits.messages
            and 2 * self._bytes <= limits.body_bytes
            and (self._is_orderly or 2 * self.span <= limits.span)
        )

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages of one pull, ascending."""
        for message in messages:
            offset, size = message.queue_offset, len(message.stored_body)
            assert self._end is None or offset >= self._end, f"offset {offset} came after {self._end}"
            self._sizes[offset] = size
            self._bytes += size
            self._end = offset + 1
        self._offsets.extend(message.queue_offset for message in messages)
        if self._is_orderly:
            self._waiting.extend(messages)

    def passed(self, next_offset: int) -> None:
        """Everything below `next_offset` was pulled, and what is not here matched no subscription."""
        if self._end is None or next_offset > self._end:
            self._end = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        """These are consumed, or stored elsewhere. Offsets that are not here are ignored."""
        for offset in offsets:
            size = self._sizes.pop(offset, None)
            if size is not None:
                self._bytes -= size

    def take(self, most: int) -> list[ReceivedMessage]:
        """Orderly: the next messages from the front."""
        assert self._is_orderly
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Orderly: messages that were taken and are to be taken again, first."""
        self._waiting.extendleft(reversed(messages))

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def drop(self) -> None:
        """Hand out nothing more."""
        self.is_dropped = True
        self._waiting.clear()

    def restart(self, offset: int) -> None:
        """Forget every message; the next one has this offset or a later one."""
        self._sizes.clear()
        self._offsets.clear()
        self._waiting.clear()
        self._bytes = 0
        self._end = offset
