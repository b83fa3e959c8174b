"""Keys looked for in the log itself, in the place of an index file that is not believed.

Records are scanned at the speed of memory, and only those in which the bytes of the key occur are looked at.
Reads through the files of the log, not through its maps: what is asked for lies before its end. Any thread.
"""

import re
from collections.abc import Iterator

import numpy as np

from embermq.columns import C_PHYSICAL, C_PROPS_AT, C_SYS_FLAG, RecordColumns
from embermq.files import Files
from embermq.model.flags import has_index_entry
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.file_scan import DamagedRange, LogSegment, scan_segments


class KeySearch:
    """Looks for keys in the log of an open store."""

    def __init__(self, files: Files, log: CommitLog) -> None:
        self._files, self._log = files, log

    def places(self, topic: str, key: str, start: int, end: int) -> list[int]:
        """Places of records of a topic that have a key, from `start` to `end`, both included, ascending."""
        found: list[int] = []
        for batch in self.records(start, end):
            found += places_with(batch, topic, key)
        return found

    def records(self, start: int, end: int, *, check_crc: bool = False) -> Iterator[RecordColumns]:
        """Records that begin between two places, both included. `start` is where one begins, or before the log."""
        start, end = max(start, self._log.min_offset), min(end + 1, self._log.readable_offset)
        for scanned in scan_segments(self.segments(), start, end, check_crc=check_crc, files=self._files):
            if not isinstance(scanned, DamagedRange):
                yield scanned

    def segments(self) -> list[LogSegment]:
        """The files of the log."""
        return [LogSegment(one.path, one.start, one.size) for one in self._log.segments.all]


def places_with(batch: RecordColumns, topic: str, key: str) -> Iterator[int]:
    """Places of the records of a topic that have a key, ascending; rolled-back ones left out, as in index files."""
    starts = batch.column(C_PROPS_AT)
    hits = [hit.start() for hit in re.finditer(re.escape(key.encode()), batch.data.data)]
    rows = np.unique(np.searchsorted(starts, np.array(hits, np.int64), "right") - 1)
    for row in rows.tolist():
        if row < 0 or not has_index_entry(int(batch.rows[row, C_SYS_FLAG])):
            continue
        if key in batch.keys(row) and batch.topic(row) == topic:
            yield int(batch.rows[row, C_PHYSICAL])
