"""A store as lines of JSON (format.message_json), in the order of the log.

What is not wanted is left out before it is decoded: filters look at columns of numbers, and at names as raw bytes.
Lines are written by a kernel into one buffer that is used again and again, so memory stays flat over any length of
log; rows the kernel declines are written the plain way, and so is everything of a small store, where loading
numba would take longer. Reads only. One thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_SIZE,
    C_STORE_TIME,
    C_TAGS_AT,
    C_TOPIC_AT,
    LineStop,
    RecordColumns,
    Rows,
    compiled_write_lines,
    encode_line,
    pays,
)
from embermq.format.message_json import BodyForm
from embermq.inspect.snapshot import Survey
from embermq.store.log import MISSING, DamagedRange

# A store's clock may have been set back: messages are looked for this much around the times asked for.
CLOCK_SLACK_MS = 3_600_000
_OUT_BYTES = 4 << 20
_PLAIN_LINES = 256  # Lines joined to one piece, the plain way.


@dataclass(frozen=True, slots=True)
class DumpFilter:
    """Which records; the default is all. Times are store times, `until_ms` excluded."""

    topic: str | None = None
    queue_id: int | None = None
    tags: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    start: int | None = None  # Physical offset; begins with the first record at or after it.
    limit: int | None = None

    def rows_of(self, records: RecordColumns) -> Rows:
        """The rows of the wanted records, in order."""
        keep: NDArray[np.bool_] | None = None
        for mask in self._masks(records):
            keep = mask if keep is None else keep & mask
        if keep is None or keep.all():
            return records.rows
        return records.rows[keep]

    def _masks(self, records: RecordColumns) -> Iterator[NDArray[np.bool_]]:
        if self.topic is not None:
            yield text_is(records, C_TOPIC_AT, self.topic.encode())
        if self.queue_id is not None:
            yield records.column(C_QUEUE_ID) == self.queue_id
        if self.tags is not None:
            found = np.zeros(len(records), np.bool_)
            for tag in self.tags:
                found |= text_is(records, C_TAGS_AT, tag.encode())
            yield found
        if self.since_ms is not None:
            yield records.column(C_STORE_TIME) >= self.since_ms
        if self.until_ms is not None:
            yield records.column(C_STORE_TIME) < self.until_ms

    def bounds(self, survey: Survey) -> tuple[int, int]:
        """The part of the log that can hold wanted records; it begins at a record."""
        start, end = survey.log_min, survey.log_end
        if self.start is not None:
            start = max(start, self.start)
        if self.since_ms is not None:
            start = max(start, survey.physical_at(self.since_ms - CLOCK_SLACK_MS))
        if self.until_ms is not None:
            end = min(end, survey.physical_at(self.until_ms + CLOCK_SLACK_MS))
        return survey.record_start(start) if start > survey.log_min else start, end


def text_is(records: RecordColumns, at_column: int, text: bytes) -> NDArray[np.bool_]:
    """Rows whose text behind a position column is exactly this one."""
    same: NDArray[np.bool_] = records.column(at_column + 1) == len(text)
    rows = np.flatnonzero(same)
    if len(rows) and text:
        places = records.rows[rows, at_column][:, None] + np.arange(len(text))
        same[rows] = (records.data[places] == np.frombuffer(text, np.uint8)).all(axis=1)
    return same


@dataclass(slots=True)
class Dump:
    """One dump under way: iterate `pieces`, then look at the rest."""

    survey: Survey
    wanted: DumpFilter = field(default_factory=DumpFilter)
    form: BodyForm = BodyForm.BASE64
    messages: int = 0
    broken_bodies: int = 0  # Given as they are stored, because they do not decompress.
    position: int = 0  # How far the log has been read.
    start: int = 0
    end: int = 0
    _out: NDArray[np.uint8] = field(init=False, default_factory=lambda: np.empty(0, np.uint8))

    def pieces(self) -> Iterator[memoryview | bytes | DamagedRange]:
        """Lines, many at a time, and damage where it lies. A piece is valid until the next one is asked for."""
        self.start, self.end = self.wanted.bounds(self.survey)
        self.position = self.start
        is_to_the_end = self.end == self.survey.log_end
        if self.wanted.limit == 0:
            return
        for scanned in self.survey.scan(self.start, self.end):
            if isinstance(scanned, DamagedRange):
                self.position = scanned.end
                yield from self._without_expired(scanned)
                continue
            rows = self.wanted.rows_of(scanned)
            if self.wanted.limit is not None:
                rows = rows[: self.wanted.limit - self.messages]
            yield from self._lines(scanned, rows)
            self.messages += len(rows)
            self.position = int(scanned.rows[-1, C_PHYSICAL] + scanned.rows[-1, C_SIZE])
            if self.messages == self.wanted.limit:
                return
        if is_to_the_end:
            yield from self._lost_end()

    def _without_expired(self, damage: DamagedRange) -> Iterator[DamagedRange]:
        """The store's retention may have taken files that were there when this began: that is no
        damage."""
        if damage.reason == MISSING:
            self.survey.refresh()
            damage = DamagedRange(max(damage.start, self.survey.log_min), damage.end, damage.reason)
        if damage.start < damage.end:
            yield damage

    def _lost_end(self) -> Iterator[DamagedRange]:
        """What the log does not have any more though it once had: nothing is left there to be read as damaged."""
        start, end, missing = self.survey.log_end, self.survey.lost_end(), self.survey.missing_directories()
        if missing:
            yield DamagedRange(start, end, f"there is no log: no such directory as {', '.join(map(str, missing))}")
        elif end > start:
            yield DamagedRange(start, end, "the log ends here, and once went further")

    def _lines(self, records: RecordColumns, rows: Rows) -> Iterator[memoryview | bytes]:
        at = 0
        while at < len(rows):
            if not self._prefers_kernel():
                yield self._plain(records, rows[at : at + _PLAIN_LINES])
                at += _PLAIN_LINES
                continue
            if not len(self._out):
                self._out = np.empty(_OUT_BYTES, np.uint8)
            write_lines = compiled_write_lines()
            at, used, stop = write_lines(records.data, records.base, rows, at, self._out, self.form)
            if used:
                yield self._out[:used].data
            if stop is LineStop.PLAIN:
                yield self._plain(records, rows[at : at + 1])
                at += 1

    def _plain(self, records: RecordColumns, rows: Rows) -> bytes:
        lines = []
        data = records.data.data
        for row in rows.tolist():
            line, is_whole = encode_line(data, records.base, row, self.form)
            self.broken_bodies += not is_whole
            lines.append(line)
        return b"".join(lines)

    def _prefers_kernel(self) -> bool:
        if pays("json_lines", 0):
            return True
        few = self.wanted.limit is not None and self.wanted.limit < 10 * _PLAIN_LINES
        return not few and pays("json_lines", self.end - self.start)
