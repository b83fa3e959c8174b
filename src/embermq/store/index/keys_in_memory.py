"""Index keys that a store opened read-only has taken from the log and must not write. Who takes may look as well."""

from embermq.columns import C_PHYSICAL, C_STORE_TIME, C_SYS_FLAG, RecordColumns
from embermq.format.index import IndexHeader
from embermq.format.java import index_key_hash
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK


class KeysInMemory:
    """Keys taken by a store that must not write: hash -> (store time, physical offset), oldest first.

    It answers as a file of the same keys would: times count in whole seconds from where the file begins.
    """

    def __init__(self) -> None:
        self._begin_ms = 0
        self.newest: tuple[int, int] | None = None
        self._entries: dict[int, list[tuple[int, int]]] = {}
        self._newest_count = 0

    def take(self, batch: RecordColumns, row: int, key: int, begin_ms: int | None) -> None:
        """`begin_ms` is when the file begins that the keys would go to; None: with the first of them."""
        if self.newest is None and row < len(batch):
            self._begin_ms = int(batch.rows[row, C_STORE_TIME]) if begin_ms is None else begin_ms
        for i in range(row, len(batch)):
            numbers = batch.rows[i]
            if int(numbers[C_SYS_FLAG]) & TRANSACTION_MASK == ROLLBACK:
                continue
            topic = batch.topic(i)
            entry = int(numbers[C_STORE_TIME]), int(numbers[C_PHYSICAL])
            for text in batch.keys(i)[key if i == row else 0 :]:
                self._entries.setdefault(index_key_hash(topic, text), []).append(entry)
                self._newest_count = self._newest_count + 1 if entry == self.newest else 1
                self.newest = entry

    def entries_of(self, physical_offset: int) -> int:
        return self._newest_count if self.newest is not None and self.newest[1] == physical_offset else 0

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        entries = list(self._entries.get(key_hash, ()))
        if self.newest is None or not overlaps(IndexHeader(self._begin_ms, self.newest[0]), begin_ms, end_ms):
            return []
        start = self._begin_ms
        return [
            physical
            for time_ms, physical in reversed(entries)
            if begin_ms <= start + max(time_ms - start, 0) // 1000 * 1000 <= end_ms
        ]


def overlaps(header: IndexHeader, begin_ms: int, end_ms: int) -> bool:
    """RocketMQ's test whether a file can hold something of a time range."""
    low, high = header.begin_timestamp, header.end_timestamp
    return (begin_ms < low and end_ms > high) or low <= begin_ms <= high or low <= end_ms <= high
