"""The undecided half messages on the disk: config/emberTransactions.json, and the offsets of RocketMQ's own group.

    {"transactions": {"positions": {"half": 40, "op": 37}, "checks": {"38": 2}, "opFloors": {"38": 35, "39": 36}}}

Read with the two queues from these positions on, it says what is undecided. It must never be ahead of the log: a
decision that a power cut takes back would then count as made. So a state is kept aside until the log is durable as far
as it was then, and only after that goes to the file. Without the file, RocketMQ's offsets say where to begin.

The loop's thread; the file is written by another (tables/saving.py).
"""

from collections.abc import Mapping
from typing import Any

from embermq.broker.tables import ConsumerOffsets
from embermq.broker.transactions.half_messages import CHECK_GROUP
from embermq.broker.transactions.undecided import Undecided
from embermq.files import Decoded
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.store import MessageStore
from embermq.store.tables import ConfigTable, TableFormat

Numbers = Mapping[str, int]
POSITIONS, CHECKS, OP_FLOORS = "positions", "checks", "opFloors"


def _decode(table: dict[Any, Any]) -> Decoded[dict[str, Numbers]]:
    """All or nothing: the parts belong together."""
    found: dict[str, Numbers] = {}
    for part in (POSITIONS, CHECKS, OP_FLOORS):
        numbers = table.get(part)
        if not isinstance(numbers, dict) or not all(type(one) is int and one >= 0 for one in numbers.values()):
            raise ValueError(f"has no numbers under {part}")
        found[part] = {str(name): number for name, number in numbers.items()}
    if found[POSITIONS].keys() != {"half", "op"} or not all(name.isdigit() for name in found[OP_FLOORS]):
        raise ValueError("has no positions of both queues")
    return Decoded(found)


TRANSACTIONS: TableFormat[str, Numbers] = TableFormat("emberTransactions.json", "transactions", _decode, dict)


class SavedState:
    """Makes states of `Undecided` durable, each after the log that it tells of."""

    def __init__(self, table: ConfigTable[str, Numbers], offsets: ConsumerOffsets, store: MessageStore) -> None:
        self._table, self._offsets, self._store = table, offsets, store
        self._kept: tuple[int, dict[str, Numbers], tuple[int, int]] | None = None  # with the end of the log then

    @property
    def saved(self) -> Mapping[str, Numbers]:
        return self._table.entries()

    def keep(self, undecided: Undecided) -> bool:
        """Take a state, unless the last one still waits for the log; whether one may be written to its file now."""
        is_due = self._publish()
        if self._kept is None:
            self._kept = self._store.max_physical, _numbers(undecided), undecided.progress
            is_due |= self._publish()
        return is_due

    def _publish(self) -> bool:
        if self._kept is None or self._store.flushed_offset < self._kept[0]:
            return False
        _end, numbers, (half, op) = self._kept
        self._kept = None
        self._table.put_all(numbers)
        if half or op:
            self._offsets.commit(CHECK_GROUP, HALF_TOPIC, 0, half)
            self._offsets.commit(CHECK_GROUP, OP_TOPIC, 0, op)
        return True


def _numbers(undecided: Undecided) -> dict[str, Numbers]:
    entries = undecided.items()
    return {
        POSITIONS: {"half": undecided.half_end, "op": undecided.op_end},
        CHECKS: {str(offset): entry.checks for offset, entry in entries if entry.checks},
        OP_FLOORS: {str(offset): entry.op_floor for offset, entry in entries},
    }
