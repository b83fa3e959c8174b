"""Queue entries that name extension entries: is there one at the address, and is it the record's own?

Called with many addresses of one queue at a time. One thread. Reads only.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.columns import QueueName
from embermq.files import Files, NotRegular, OpenFile, entries_of
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_extension import ENTRY_HEAD_BYTES
from embermq.repair.verify.findings import Flaw, Remedies, Severity
from embermq.store.compare import Suspects
from embermq.store.queues import EXTENSION_FAMILY

_HEAD = np.dtype([("size", ">i2"), ("tag_code", ">i8"), ("store_time", ">i8"), ("bitmap_len", ">i2")])
assert _HEAD.itemsize == ENTRY_HEAD_BYTES
_OPEN_MAX = 64


def offsets_of(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in the extension the entries at these addresses begin."""
    return addresses - np.int64(-(1 << 63))


class ExtensionCheck:
    """Looks at extension entries below `root`."""

    def __init__(self, root: Path, files: Files, remedies: Remedies) -> None:
        self._root, self._files, self._remedies = root / EXTENSION_FAMILY, files, remedies
        self._file_bytes = self._found_file_bytes()
        self._open: dict[Path, OpenFile] = {}

    def check(self, queue: QueueName, addresses: NDArray[np.int64], records: Suspects) -> NDArray[np.bool_]:
        """For each address: does it lead to the entry of its record?"""
        heads = self._heads(queue, offsets_of(addresses))
        right: NDArray[np.bool_] = heads["size"] == ENTRY_HEAD_BYTES + heads["bitmap_len"]
        right &= heads["store_time"] == records.times
        right &= (heads["tag_code"] == records.tag_codes) & (heads["bitmap_len"] >= 0)
        return right

    def flaw(self, queue: QueueName, address: int, record: Suspects, count: int) -> Flaw:
        """What is wrong behind the address of one record's queue entry."""
        offset = int(offsets_of(np.array([address], np.int64))[0])
        start = offset - offset % self._file_bytes
        head = self._heads(queue, np.array([offset], np.int64))[0]
        fault = "there is no entry here" if int(head["size"]) <= 0 else "this entry is not that of the record"
        return Flaw(
            severity=Severity.FAULT,
            family=EXTENSION_FAMILY,
            file=f"{EXTENSION_FAMILY}/{queue[0]}/{queue[1]}/{segment_name(start)}",
            fault=f"{fault} which queue offset {int(record.offsets[0])} names it for",
            remedy=self._remedies.queues,
            physical_offset=int(record.physicals[0]),
            queue_offset=int(record.offsets[0]),
            byte_offset=offset - start,
            count=count,
        )

    def _heads(self, queue: QueueName, offsets: NDArray[np.int64]) -> NDArray[np.void]:
        """The fixed parts of the entries; zeros where there is nothing."""
        out = np.zeros(len(offsets), _HEAD)
        starts = offsets - offsets % self._file_bytes
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start)
            file = self._find(self._root / queue[0] / str(queue[1]) / segment_name(start))
            if file is None:
                continue
            places = offsets[rows] - start
            low, high = int(places.min()), int(places.max()) + ENTRY_HEAD_BYTES
            data = np.frombuffer(file.pread(high - low, low), np.uint8)
            whole = places + ENTRY_HEAD_BYTES - low <= len(data)
            at = (places[whole] - low)[:, None] + np.arange(ENTRY_HEAD_BYTES)
            out[rows[whole]] = data[at].copy().view(_HEAD)[:, 0]
        return out

    def _find(self, path: Path) -> OpenFile | None:
        file = self._open.get(path)
        if file is None:
            try:
                file = self._files.open(path, False)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError, NotRegular):
                return None
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open)))
            self._open[path] = file
        return file

    def _found_file_bytes(self) -> int:
        """The length that extension files have."""
        sizes = Counter(self._sizes())
        return sizes.most_common(1)[0][0] if sizes else 48 << 20

    def _sizes(self) -> Iterator[int]:
        for topic in entries_of(self._files, self._root):
            for queue in entries_of(self._files, self._root / topic.name):
                for entry in entries_of(self._files, self._root / topic.name / queue.name):
                    if entry.is_file and entry.size and parse_segment_name(entry.name) is not None:
                        yield entry.size
