"""Keys against index entries, where they are read: what each thread of `verify` does for the index.

The index is one stream of entries over all its files, in the order of the log. A `KeyPart` takes the records of one
piece of the log, beginning at a place in that stream, and compares. Where the two do not go side by side it finds
out what is missing, what is too much and what is wrong, and goes on.

`IndexStream` is shared by the threads; a part belongs to one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_PHYSICAL, CheckLoops, CheckStop, RecordColumns
from embermq.store.index.index_file import ENTRY_DTYPE
from embermq.store.index.links import CheckedIndexFile

WINDOW_ENTRIES = 1 << 15
# Runs of flaws kept for one piece of the log; further ones are counted in the last of their kind.
_RUNS_MAX = 1_000

Entries = NDArray[np.void]
Keys = NDArray[np.int64]
_NO_ENTRIES: Entries = np.empty(0, ENTRY_DTYPE)
_NO_BYTES: NDArray[np.uint8] = np.empty(0, np.uint8)
_NO_NUMBERS: NDArray[np.int64] = np.empty(0, np.int64)
_NO_KEYS: Keys = np.empty((0, 3), np.int64)


class EntryPlace(NamedTuple):
    """An entry: the number of its file, and its number there. Files without entries are never named."""

    file: int
    entry: int


class KeyFlaw(NamedTuple):
    """A key and the entry that should be its own, or a run of such pairs of one kind in one index file, of which this
    is the first. `kind` says what is wrong."""

    kind: str  # "missing", "extra", "twice", "wrong", "seconds"
    place: EntryPlace
    key_hash: int
    physical: int
    found: tuple[int, int, int] | None  # hash, physical offset and seconds of the entry
    times: int = 1
    last_physical: int = -1  # of the run
    reached: int = -1  # the record of the log that the entry was compared with

    def joined(self, later: "KeyFlaw") -> "KeyFlaw":
        """This run and one behind it as one."""
        return self._replace(times=self.times + later.times, last_physical=max(self.last_physical, later.last_physical))


class IndexStream:
    """The entries of all index files, as they were when first looked at. Any thread."""

    def __init__(self, parts: Sequence[CheckedIndexFile]) -> None:
        self.parts = [part for part in parts if part.header.count > 1]
        self.end = EntryPlace(len(self.parts), 1)

    def normal(self, file: int, entry: int) -> EntryPlace:
        """A place, or the first of the next file when it is past the last of this one."""
        return EntryPlace(file + 1, 1) if entry >= self.parts[file].header.count else EntryPlace(file, entry)

    def place_of(self, physical_offset: int) -> EntryPlace:
        """The first entry of a record at or after a place of the log, if entries are in order."""
        file = bisect_left(self.parts, physical_offset, key=lambda part: part.header.end_physical)
        if file == len(self.parts):
            return self.end
        part = self.parts[file]
        numbers = range(1, part.header.count)
        entry = bisect_left(numbers, physical_offset, key=lambda number: _physical(part, number)) + 1
        return self.normal(file, entry)

    def window(self, place: EntryPlace, count: int = WINDOW_ENTRIES) -> Entries:
        """Entries from a place on, none beyond the end of its file."""
        if place == self.end:
            return _NO_ENTRIES
        part = self.parts[place.file]
        return part.entries(place.entry, min(place.entry + count, part.header.count))

    def count_between(self, start: EntryPlace, end: EntryPlace) -> int:
        counts = [part.header.count - 1 for part in self.parts[start.file : end.file]]
        return sum(counts) - start.entry + end.entry


def _physical(part: CheckedIndexFile, number: int) -> int:
    return int(part.entries(number, number + 1)[0]["physical_offset"])


class KeyPart:
    """What one piece of the log says about the index. One thread."""

    def __init__(self, stream: IndexStream, start: EntryPlace, tools: CheckLoops) -> None:
        self._stream, self._tools = stream, tools
        self.start = self.end = start
        self._window: Entries = _NO_ENTRIES
        self._at = 0  # In the window: the entry to be compared next.
        self.flaws: list[KeyFlaw] = []
        self._is_run = False  # Nothing was right since the last flaw.
        self.missing: Keys = _NO_KEYS  # Keys without an entry, of records after the newest entry there is.
        self.missing_count = 0

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """What it found may go to another process; it takes nothing more there."""
        names = ("start", "end", "flaws", "missing", "missing_count")
        return None, {name: getattr(self, name) for name in names}

    def take(self, batch: RecordColumns) -> None:
        """Records of the log, in order."""
        if not self._stream.parts:
            return
        row = key = 0
        while row < len(batch):
            if self._at == len(self._window) and not self._next_window():
                self._note_missing(self._tools.keys_of(batch), int(batch.rows[row, C_PHYSICAL]), key)
                return
            header = self._stream.parts[self.end.file].header
            entries = self._window.view(np.uint8)
            row, key, entry, stop = self._tools.check_keys(
                batch, row, key, entries, self._at, header.begin_timestamp, header.begin_physical
            )
            self._pass(entry - self._at)
            if stop in (CheckStop.DIFFERENT, CheckStop.SECONDS):
                self._settle(self._tools.keys_of(batch), int(batch.rows[row, C_PHYSICAL]), key)
                return

    # -- for those who compare themselves (store/compare/sound_pieces.py) --------------------------

    def at_hand(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
        """Entries in memory, begin time and first place of their file, and the number of the first to compare. No
        numbers if there is no index, and no entries if others have to be read (`read_on`)."""
        if not self._stream.parts:
            return _NO_BYTES, _NO_NUMBERS, 0
        if self._at == len(self._window):
            return _NO_BYTES, np.zeros(2, np.int64), 0
        header = self._stream.parts[self.end.file].header
        index = np.array([header.begin_timestamp, header.begin_physical], np.int64)
        return self._window.view(np.uint8), index, self._at

    def advance(self, count: int) -> None:
        """So many entries were compared, and right."""
        self._pass(count)

    def read_on(self) -> bool:
        """All entries in memory were compared; False at the end of the index."""
        return self._next_window()

    # -- one batch after the other ---------------------------------------------------------------------------------

    def _next_window(self) -> bool:
        """Read on; False at the end of the index."""
        self._window, self._at = self._stream.window(self.end), 0
        return len(self._window) > 0

    def _pass(self, count: int) -> None:
        """Entries of the window were compared."""
        self._at += count
        if count:
            self._is_run = False
            self.end = self._stream.normal(self.end.file, self.end.entry + count)

    def _note_missing(self, keys: Keys, physical: int, key: int) -> None:
        """The index ended before this key of the record at `physical`."""
        keys = keys[_flat(keys, physical, key) :]
        self.missing_count += len(keys)
        if not len(self.missing):
            self.missing = keys[:1].copy()

    # -- where the two do not go side by side ------------------------------------------------------------------

    def _settle(self, keys: Keys, physical: int, key: int) -> None:
        """Compare the rest of a batch step by step."""
        at = _flat(keys, physical, key)
        while at < len(keys):
            if self._at == len(self._window) and not self._next_window():
                self._note_missing(keys, int(keys[at, 1]), at - _flat(keys, int(keys[at, 1]), 0))
                return
            window = self._window[self._at :]
            count = min(len(keys) - at, len(window))
            same = (window["physical_offset"][:count] == keys[at : at + count, 1]) & (
                window["key_hash"][:count] == keys[at : at + count, 0]
            )
            right = count if same.all() else int(np.argmin(same))
            self._compare_seconds(window[:right], keys[at : at + right])
            at += right
            self._pass(right)
            if right < count:
                at += self._classify(keys, at, window[right:])

    def _classify(self, keys: Keys, at: int, window: Entries) -> int:
        """The first entry of the window is not that of keys[at]. Passes entries, and answers how many keys are done."""
        entry, one = window[0].item(), keys[at]
        if self._is_substitute(keys, at, window):
            self._skip(1, "wrong", (int(one[0]), int(one[1])), entry, int(one[1]))
            return 1
        if entry[1] < one[1]:
            extra = window["physical_offset"] < one[1]
            count = len(window) if extra.all() else int(np.argmin(extra))
            last = int(window["physical_offset"][:count].max())
            self._skip(count, "extra", (entry[0], entry[1]), entry, int(one[1]), last=last)
            return 0
        ahead = np.flatnonzero((keys[at:, 1] == entry[1]) & (keys[at:, 0] == entry[0]))
        if entry[1] == one[1] and not len(ahead) and self._is_indexed_before(keys, at, entry):
            self._skip(1, "twice", (entry[0], entry[1]), entry, int(one[1]))
            return 0
        later = keys[at:, 1] >= entry[1]
        count = max(int(np.argmax(later)), 1) if later.any() else len(keys) - at
        count = int(ahead[0]) if entry[1] == one[1] and len(ahead) else count
        last = int(keys[at + count - 1, 1])
        self._add(KeyFlaw("missing", self.end, int(keys[at, 0]), int(keys[at, 1]), None, count, last, int(keys[at, 1])))
        return count

    def _skip(
        self,
        count: int,
        kind: str,
        key: tuple[int, int],
        entry: tuple[int, ...],
        reached: int,
        *,
        last: int | None = None,
    ) -> None:
        """Pass entries that are wrong, compared with the record at `reached`; `key` is the hash and the place of the
        first, `last` the last place."""
        found = (entry[0], entry[1], entry[2])
        was_run, last_physical = self._is_run, key[1] if last is None else last
        flaw = KeyFlaw(kind, self.end, key[0], key[1], found, count, last_physical, reached)
        self._pass(count)
        self._is_run = was_run
        self._add(flaw)

    def _is_substitute(self, keys: Keys, at: int, window: Entries) -> bool:
        """Is only this one entry wrong? So it is if the next ones are right, if it has the place of the key, or, behind
        the last key at hand, if it leads further than the next entry does."""
        following, entries = keys[at + 1 : at + 3], window[1:3]
        if not len(entries):
            entries = self._stream.window(self._stream.normal(self.end.file, self.end.entry + 1), 2)
        if len(following) and len(entries):
            count = min(len(following), len(entries))
            return bool(
                (entries["physical_offset"][:count] == following[:count, 1]).all()
                and (entries["key_hash"][:count] == following[:count, 0]).all()
            )
        place = int(window[0]["physical_offset"])
        if len(following) or place == int(keys[at, 1]):
            return not len(following)
        return bool(len(entries)) and place > int(entries[0]["physical_offset"]) > int(keys[at, 1])

    def _is_indexed_before(self, keys: Keys, at: int, entry: tuple[int, int, int, int]) -> bool:
        """Does the entry repeat one of its record's keys that have been met already, or come once more later?"""
        same_record = keys[keys[:, 1] == entry[1]]
        return entry[0] in same_record[:, 0]

    def _compare_seconds(self, entries: Entries, keys: Keys) -> None:
        if not len(keys):
            return
        header = self._stream.parts[self.end.file].header
        with np.errstate(over="ignore"):
            expected = np.clip((keys[:, 2] - header.begin_timestamp) // 1000, 0, 0x7FFF_FFFF)
        wrong = (entries["seconds"] != expected) & (keys[:, 1] != header.begin_physical)
        if header.begin_timestamp > 0 and wrong.any():
            row = int(np.argmax(wrong))
            place, found = EntryPlace(self.end.file, self.end.entry + row), entries[row].item()[:3]
            last = int(keys[wrong, 1][-1])
            self._add(
                KeyFlaw(
                    "seconds",
                    place,
                    int(keys[row, 0]),
                    int(keys[row, 1]),
                    found,
                    int(wrong.sum()),
                    last,
                    int(keys[row, 1]),
                )
            )

    def _add(self, flaw: KeyFlaw) -> None:
        before = self.flaws[-1] if self.flaws else None
        joins = before is not None and before.kind == flaw.kind and before.place.file == flaw.place.file
        if before is not None and joins and self._is_run:
            self.flaws[-1] = before.joined(flaw)
        elif len(self.flaws) < _RUNS_MAX:
            self.flaws.append(flaw)
        else:
            self._count_in(flaw)
        self._is_run = True

    def _count_in(self, flaw: KeyFlaw) -> None:
        """There are too many runs: count this one in the last of its kind, so that totals stay true."""
        for number in range(len(self.flaws) - 1, -1, -1):
            known = self.flaws[number]
            if known.kind == flaw.kind and known.place.file == flaw.place.file:
                self.flaws[number] = known.joined(flaw)
                return
        self.flaws.append(flaw)


def _flat(keys: Keys, physical: int, key: int) -> int:
    """The number, among all keys of a batch, of key `key` of the record at `physical`."""
    return int(np.searchsorted(keys[:, 1], physical)) + key
