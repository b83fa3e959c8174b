"""Next queue offsets, from the log alone: for a store without consume queues (`dispatch="none"`).

A sink of recovery only: it remembers, for each queue it meets, the offset after the newest record. No checksum covers a
record's queue offset, and a topic that was deleted began again, so not simply the largest counts:

    one that no queue can have there     is passed over
    a jump, and then on as before        the jump was damage
    0, and then 1                        the queue began anew; so did one whose last record is a 0
    records of an ended incarnation      do not count (deleted_topics.py)
"""

from collections.abc import Iterable, Mapping

from embermq.columns import C_PHYSICAL, C_QUEUE_ID, C_QUEUE_OFFSET, C_SYS_FLAG, RecordColumns
from embermq.model.flags import has_queue_entry
from embermq.store.queues.entry_intake import RECORD_BYTES_MIN, is_possible, is_too_far
from embermq.store.queues.multi_dispatch import MultiDispatch

_NO_JUMP, _FROM_ANYWHERE = -1, -2


class _Tail:
    """One queue: the next offset, where it was before a jump, and whether a 0 came last."""

    __slots__ = ("before_jump", "may_restart", "next")

    def __init__(self, next_offset: int, before_jump: int = _NO_JUMP) -> None:
        self.next, self.before_jump, self.may_restart = next_offset, before_jump, False

    def meet(self, queue_offset: int) -> None:
        """The next record of the queue; its offset is one that can be."""
        restarts = self.may_restart and queue_offset == 1
        self.may_restart = queue_offset == 0 and self.next > 0
        if self.may_restart:
            return
        goes_on = queue_offset in (self.next, self.before_jump)
        if goes_on or restarts or (self.before_jump == _FROM_ANYWHERE and queue_offset < self.next):
            self.next, self.before_jump = queue_offset + 1, _NO_JUMP
        elif queue_offset > self.next:
            self.next, self.before_jump = queue_offset + 1, self.next

    @property
    def settled(self) -> int:
        return 1 if self.may_restart else self.next


class NextOffsets:
    """Topic and queue -> offset of the next message."""

    name = "next offsets"

    def __init__(self, deleted: Mapping[str, int] | None = None, multi_dispatch: MultiDispatch | None = None) -> None:
        self.position = 0
        self._deleted, self._multi = dict(deleted or {}), multi_dispatch
        self._tails: dict[tuple[str, int], _Tail] = {}
        self._newer: dict[tuple[str, int], _Tail] = {}  # Of deleted topics: only what came since.

    def take(self, batch: RecordColumns, end: int) -> None:
        for i, row in enumerate(batch.rows.tolist()):
            if has_queue_entry(row[C_SYS_FLAG]):
                self._meet(batch.topic(i), row[C_QUEUE_ID], row[C_QUEUE_OFFSET], row[C_PHYSICAL])
        if self._multi is not None and len(batch):
            for i in self._multi.rows_with_targets(batch):
                for topic, queue_id, queue_offset in self._multi.targets(batch, i):
                    self._meet(topic.decode("utf-8", "replace"), queue_id, queue_offset, int(batch.rows[i, C_PHYSICAL]))
        self.position = end

    def _meet(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        key = topic, queue_id
        _meet(self._tails, key, queue_offset, physical_offset)
        if physical_offset >= self._deleted.get(topic, 1 << 63):
            _meet(self._newer, key, queue_offset, physical_offset)

    def adopt(self, known: Iterable[tuple[str, int, int]]) -> None:
        """What a clean close knew, in place of all that a walk has seen."""
        self._deleted = {}
        self._tails = {(topic, queue_id): _Tail(next_offset) for topic, queue_id, next_offset in known}

    def all(self) -> list[tuple[str, int, int]]:
        """Topic, queue id, next offset."""
        tails = self._tails | {key: self._newer.get(key, _Tail(0)) for key in self._tails if key[0] in self._deleted}
        return [(*key, tail.settled) for key, tail in sorted(tails.items())]

    def flush(self) -> None:
        """Nothing is kept on disk."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        """Nothing to close."""


def _meet(tails: dict[tuple[str, int], _Tail], key: tuple[str, int], queue_offset: int, physical_offset: int) -> None:
    tail = tails.get(key)
    if not is_possible(queue_offset):
        return
    if tail is None:  # Retention may have taken those before it.
        if queue_offset <= physical_offset // RECORD_BYTES_MIN:
            tails[key] = _Tail(queue_offset + 1, _FROM_ANYWHERE)
    elif not is_too_far(tail.next, queue_offset, physical_offset):
        tail.meet(queue_offset)
