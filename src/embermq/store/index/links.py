"""One index file as `verify` sees it, and whether its links and slots are right. One thread. Reads only."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import LinkCheck, check_index_links
from embermq.files import OpenFile
from embermq.format.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexHeader, entry_at
from embermq.store.index.index_file import ENTRY_DTYPE

_STEP_SLOTS = 1 << 18
_STEP_ENTRIES = 1 << 15


@dataclass(frozen=True, slots=True)
class CheckedIndexFile:
    """An index file, and its header as it was when first looked at."""

    name: str
    file: OpenFile
    header: IndexHeader
    slots_max: int
    entries_max: int

    def entries(self, start: int, end: int) -> NDArray[np.void]:
        """Entries by number; fewer where the file ends."""
        data = self.file.pread((end - start) * ENTRY_BYTES, entry_at(start, self.slots_max))
        return np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)

    def sampled_places(self, count: int) -> NDArray[np.int64]:
        """Physical offsets of some entries, the first and the last among them, in order."""
        numbers = np.unique(np.linspace(1, self.header.count - 1, count).astype(np.int64))
        found = [self.entries(number, number + 1)["physical_offset"] for number in numbers.tolist()]
        return np.concatenate(found).astype(np.int64)


class LinkFlaw(NamedTuple):
    """What is wrong, where in the file, and how often."""

    fault: str
    at: int
    times: int


def link_flaws(part: CheckedIndexFile) -> list[LinkFlaw]:
    """What is wrong with the links and slots of one file. Any thread."""
    newest = np.zeros(part.slots_max, np.int32)
    total = LinkCheck()
    for start in range(1, part.header.count, _STEP_ENTRIES):
        entries = part.entries(start, min(start + _STEP_ENTRIES, part.header.count))
        found = _check_links(entries, start, newest)
        total = total._replace(wrong=total.wrong + found.wrong) if total.wrong else found
    flaws = []
    if total.wrong:
        fault = f"entry {total.first} does not link to the one before it in its slot ({total.expected})"
        flaws.append(LinkFlaw(fault, entry_at(total.first, part.slots_max), total.wrong))
    return flaws + _slot_flaws(part, newest)


def _slot_flaws(part: CheckedIndexFile, newest: NDArray[np.int32]) -> list[LinkFlaw]:
    """Every slot must name its newest entry."""
    wrong, first = 0, 0
    for at in range(0, part.slots_max, _STEP_SLOTS):
        count = min(_STEP_SLOTS, part.slots_max - at)
        slots = np.frombuffer(part.file.pread(count * SLOT_BYTES, HEADER_BYTES + at * SLOT_BYTES), ">i4")
        # A writer that goes on, or was stopped, has slots that name entries which do not count yet.
        differ = (slots != newest[at : at + len(slots)]) & (slots < part.header.count)
        if differ.any():
            first = at + int(np.argmax(differ)) if wrong == 0 else first
            wrong += int(differ.sum())
    if not wrong:
        return []
    return [LinkFlaw(f"slot {first} does not name its newest entry", HEADER_BYTES + first * SLOT_BYTES, wrong)]


def _check_links(entries: NDArray[np.void], first: int, newest: NDArray[np.int32]) -> LinkCheck:
    data = np.ascontiguousarray(entries).view(np.uint8)
    return check_index_links(data, first, newest)
