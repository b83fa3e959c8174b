"""Many records at once: one row of int64 numbers per record, pointing into the bytes they came from.

`scan_rows` (plain) and the scan kernel fill such rows; sinks read them. Positions (`*_AT`) are indexes into
`RecordColumns.data`. A property that is absent has length -1 and position -1.
A RecordColumns is valid only during the call that lent it: copy what must live longer.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

C_PHYSICAL = 0  # `base` plus the record's position in the data: of a stretch of log, its physical offset
C_SIZE = 1
C_QUEUE_ID = 2
C_QUEUE_OFFSET = 3
C_TAG_CODE = 4  # tag hash, or due time of a record parked in the schedule topic
C_STORE_TIME = 5
C_SYS_FLAG = 6
C_BODY_AT = 7
C_BODY_LEN = 8
C_TOPIC_AT = 9
C_TOPIC_LEN = 10
C_PROPS_AT = 11
C_PROPS_LEN = 12
C_KEYS_AT = 13
C_KEYS_LEN = 14
C_UNIQ_AT = 15
C_UNIQ_LEN = 16
C_TAGS_AT = 17
C_TAGS_LEN = 18
C_BORN_TIME = 19
C_FLAG = 20  # the user's own flag
C_RECONSUME = 21
C_PREPARED = 22  # prepared transaction offset
C_STORED_PHYSICAL = 23  # physical offset as written inside the record; in records pulled from a broker, the only one
N_COLUMNS = 24

Rows = NDArray[np.int64]


def new_rows(count: int) -> Rows:
    """Room for `count` records; the content is arbitrary until a scan fills it."""
    return np.empty((count, N_COLUMNS), dtype=np.int64)


def as_bytes_array(data: Any) -> NDArray[np.uint8]:
    """`data` (bytes, memoryview, mmap, array) as a uint8 array over the same memory."""
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)


def as_view(data: Any) -> memoryview:
    """`data` (bytes, memoryview, mmap, array) as a view of single bytes."""
    return memoryview(data)


class RecordColumns:
    """Records in log order: `rows[i]` describes one record inside `data`, whose first byte is at `base`."""

    __slots__ = ("_view", "base", "data", "routes", "rows")

    def __init__(self, data: Any, base: int, rows: Rows) -> None:
        assert rows.shape[1:] == (N_COLUMNS,), rows.shape
        self.data = as_bytes_array(data)
        self.base = base
        self.rows = rows
        self.routes: NDArray[np.int32] | None = None  # what was found out about topics and queues, ahead
        self._view = as_view(self.data)

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, end: int) -> "RecordColumns":
        """Rows start..end over the same bytes."""
        return RecordColumns(self.data, self.base, self.rows[start:end])

    def column(self, number: int) -> NDArray[np.int64]:
        """One column of all rows (a view)."""
        column: NDArray[np.int64] = self.rows[:, number]
        return column

    def part(self, i: int, at_column: int) -> bytes | None:
        """The bytes behind a position column (its length is the next column); None when absent."""
        row = self.rows[i]
        length = int(row[at_column + 1])
        at = int(row[at_column])
        return None if length < 0 else bytes(self._view[at : at + length])

    def topic_bytes(self, i: int) -> bytes:
        return self.part(i, C_TOPIC_AT) or b""

    def topic(self, i: int) -> str:
        return self.topic_bytes(i).decode("utf-8", "replace")

    def body(self, i: int) -> bytes:
        return self.part(i, C_BODY_AT) or b""

    def properties(self, i: int) -> bytes:
        return self.part(i, C_PROPS_AT) or b""

    def tags(self, i: int) -> str | None:
        raw = self.part(i, C_TAGS_AT)
        return None if raw is None else raw.decode("utf-8", "replace")

    def unique_key(self, i: int) -> str | None:
        raw = self.part(i, C_UNIQ_AT)
        return None if raw is None else raw.decode("utf-8", "replace")

    def keys(self, i: int) -> list[str]:
        """What the index keeps of a record: UNIQ_KEY, then the words of KEYS, in order, repeats kept."""
        return list(self._iter_keys(i))

    def _iter_keys(self, i: int) -> Iterator[str]:
        unique = self.unique_key(i)
        if unique is not None:
            yield unique
        raw = self.part(i, C_KEYS_AT)
        if raw is not None:
            yield from (word for word in raw.decode("utf-8", "replace").split(" ") if word)
