"""What the dispatcher feeds, and how derived files say that something is wrong with them.

A sink turns log records into something that can be looked up. It can always be made again from the log,
so it never refuses to start: it reports `Finding`s, and the walk over the log repairs them.
`take`, `flush` and `truncate_to` are called by one thread at a time, the dispatcher's or recovery's.
"""

from dataclasses import dataclass
from typing import Protocol

from embermq.columns import RecordColumns


class Sink(Protocol):
    """Takes the records of the log, in log order."""

    name: str
    position: int  # everything below this physical offset was taken

    def take(self, batch: RecordColumns, end: int) -> None:
        """Take the records of `batch`; `end` is the physical offset after the last one, and the new position.

        What is already there is ignored, so a batch may be offered again after an OSError.
        """
        ...

    def flush(self) -> None:
        """Make all that was taken durable. A failed sync raises, and raises again on every later call."""
        ...

    def truncate_to(self, physical_offset: int) -> None:
        """Forget every record at or past `physical_offset`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a derived file is missing or wrong; walking the log from `replay_from` repairs it."""

    family: str  # the directory below the store's root: consumequeue, consumequeue_ext, index
    where: str  # path below that directory
    reason: str
    replay_from: int
