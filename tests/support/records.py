"""Log records for tests of what is derived from them: made by hand, or read from a golden store."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import RecordColumns, new_rows
from embermq.format.frame import encode
from embermq.model.hosts import Host
from embermq.model.properties import encode_properties
from embermq.settings.values import parse_delay_levels
from embermq.store.sink import Sink
from tests.support.golden import segments

HOST = Host("10.0.0.1", 10911)
START_MS = 1_700_000_000_000
NO_DELAYS = np.empty(0, np.int64)


class LogOfRecords:
    """A log in memory: `append` adds a record, `columns` lends rows of what was appended."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._data = bytearray()
        self.offsets: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self._data)

    def append(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        tags: str = "",
        keys: str = "",
        unique_key: str = "",
        store_ms: int = START_MS,
        sys_flag: int = 0,
        body: bytes = b"x",
        properties: dict[str, str] | None = None,
    ) -> int:
        """Answers the record's physical offset."""
        given = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": unique_key, **(properties or {})}
        at = self.end
        self._data += encode(
            physical_offset=at,
            queue_id=queue_id,
            queue_offset=queue_offset,
            topic=topic,
            body=body,
            properties=encode_properties({name: value for name, value in given.items() if value}),
            born_timestamp=store_ms,
            born_host=HOST,
            store_timestamp=store_ms,
            store_host=HOST,
            sys_flag=sys_flag,
        )
        self.offsets.append(at)
        return at

    def cut(self, count: int) -> "LogOfRecords":
        """A log with the first `count` records only; appending goes on from there."""
        shorter = LogOfRecords(self.start)
        end = self.offsets[count] if count < len(self.offsets) else self.end
        shorter._data = self._data[: end - self.start]
        shorter.offsets = self.offsets[:count]
        return shorter

    def columns(self, first: int = 0, last: int | None = None) -> RecordColumns:
        """Records number first..last (half-open)."""
        chosen = self.offsets[first:last]
        if not chosen:
            return RecordColumns(b"", self.start, new_rows(0))
        parts = []
        for at in chosen:
            rows = new_rows(1)
            count, _, _ = scan_rows(
                self._data, self.start, at - self.start, len(self._data), rows, NO_DELAYS, True, True
            )
            assert count == 1
            parts.append(rows)
        return RecordColumns(bytes(self._data), self.start, np.concatenate(parts))

    def feed(self, sink: Sink, first: int = 0, last: int | None = None, batch: int = 10_000) -> None:
        """Offer records first..last in batches."""
        last = len(self.offsets) if last is None else last
        for at in range(first, last, batch):
            upto = min(at + batch, last)
            sink.take(self.columns(at, upto), self.offsets[upto] if upto < len(self.offsets) else self.end)


def feed_golden(store: Path, delay_levels: str, *sinks: Sink, batch: int = 10_000) -> None:
    """Everything in a golden store's log."""
    delay_ms = np.array(parse_delay_levels(delay_levels), np.int64)
    for base, data in segments(store):
        for columns, end in _batches(data, base, delay_ms, batch):
            for sink in sinks:
                sink.take(columns, end)


def _batches(data: bytes, base: int, delay_ms: np.ndarray, batch: int) -> Iterator[tuple[RecordColumns, int]]:
    at = 0
    while True:
        rows = new_rows(batch)
        count, stop, _ = scan_rows(data, base, at, len(data), rows, delay_ms, True, True)
        yield RecordColumns(data, base, rows[:count]), base + stop
        if count < batch:
            return
        at = stop
