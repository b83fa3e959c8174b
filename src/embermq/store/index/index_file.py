"""One hash index file: `topic#key` -> physical offsets of records, newest first.

The newest file is written through its map, by the dispatcher only; its blocks were reserved, so a full disk
shows when the file is made and not as a signal later. Lookups read with pread, from any thread: an entry is
in place before its slot, and the slot before the count.
A file is cut back by its count; the slots are then computed again from the entries that are left.

Bytes that do not change any more have checksums (checksums.py): entries of a file that grows, all of a file that is
full or was closed. What a look-up reads is compared with them first; FileDamaged if they differ.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.columns import RecordColumns, put_index_rows, put_key_rows, rebuild_index_slots
from embermq.files import BLOCK_BYTES, NO_CHECKSUMS, CheckedBlocks, Checksums, FileDamaged, OpenFiles, take_checksums
from embermq.format.index import (
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    IndexHeader,
    decode_header,
    encode_header,
    entry_at,
    index_file_bytes,
    slot_at,
)

ENTRY_DTYPE = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert ENTRY_DTYPE.itemsize == ENTRY_BYTES
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_CLEAR_BYTES = 1 << 20


class IndexFile:
    """An index file of a given shape. Reading: any thread. Changing: holder of the change lock."""

    def __init__(
        self, path: Path, files: OpenFiles, slots_max: int, entries_max: int, checksums: Checksums = NO_CHECKSUMS
    ) -> None:
        self.path = path
        self.slots_max, self.entries_max = slots_max, entries_max
        self.file_bytes = index_file_bytes(slots_max, entries_max)
        self._files = files
        self._map: memoryview | None = None
        self.blocks = CheckedBlocks(path.name, self._read, checksums)
        # Checksums may be taken of what has none: it was written here, or compared with the log.
        self.is_trusted = bool(checksums.crcs)
        self.damage: FileDamaged | None = None  # Once found, nothing in the file is believed until it is made again.
        self.kept_header: IndexHeader | None = None  # When it was loaded, or full; holds if it is damaged.

    @property
    def name(self) -> str:
        return self.path.name

    # Reading

    def header(self) -> IndexHeader:
        """The header; of a file that is damaged, as it was before."""
        if self.damage is not None and self.kept_header is not None:
            return self.kept_header
        data = self._read(HEADER_BYTES, 0)
        return IndexHeader() if len(data) < HEADER_BYTES else decode_header(data)

    def _read(self, count: int, at: int) -> bytes:
        """Nothing when the file was removed meanwhile."""
        file = self._files.find(self.path)
        return b"" if file is None else file.pread(count, at)

    def confirmed_header(self) -> IndexHeader:
        """The header, if it is believed; FileDamaged if not."""
        if self.damage is not None:
            raise self.damage
        self.blocks.confirm(0, HEADER_BYTES)
        return self.header()

    def _confirmed(self, count: int, at: int) -> bytes:
        self.blocks.confirm(at, at + count)
        return self._read(count, at)

    def find(self, header: IndexHeader, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of entries with this hash and a time (in whole seconds) in the range, newest first.
        Other keys may share the hash. Numbers that cannot be end the walk; FileDamaged if a checksum differs."""
        slot = self._confirmed(SLOT_BYTES, slot_at(key_hash % self.slots_max))
        number = _SLOT.unpack(slot)[0] if len(slot) == SLOT_BYTES else 0
        if header.count <= 1:
            return
        # The slot may lead to entries that have come since the header was read; those before them follow.
        while 0 < number < self.entries_max:
            data = self._confirmed(ENTRY_BYTES, entry_at(number, self.slots_max))
            if len(data) < ENTRY_BYTES:
                return
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack(data)
            if seconds < 0:
                return
            time_ms = header.begin_timestamp + seconds * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                yield physical_offset
            if time_ms < begin_ms or previous >= number:
                return
            number = previous

    def entries(self, start: int, end: int) -> NDArray[np.void]:
        """Entries by number, as a copy."""
        data = self._read((end - start) * ENTRY_BYTES, entry_at(start, self.slots_max))
        return np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)

    def problem(self) -> str | None:
        """What makes the file unusable, or None. Looks at the length, the header, the first and last entry."""
        file = self._files.find(self.path)
        size = 0 if file is None else file.size
        if size != self.file_bytes:
            return f"is {size} bytes long, not {self.file_bytes}"
        header = self.header()
        if not 1 <= header.count <= self.entries_max:
            return f"claims {header.count} entries of at most {self.entries_max}"
        if not 0 <= header.begin_physical <= header.end_physical:
            return f"claims physical offsets {header.begin_physical}..{header.end_physical}"
        if header.count > 1:
            first, last = self.entries(1, 2), self.entries(header.count - 1, header.count)
            if first["physical_offset"][0] != header.begin_physical:
                return "its first entry is not the one its header names"
            if last["physical_offset"][0] != header.end_physical:
                return "its last entry is not the one its header names"
        try:
            self.blocks.confirm(0, HEADER_BYTES)
            self.blocks.confirm(entry_at(header.count - 1, self.slots_max), entry_at(header.count, self.slots_max))
        except FileDamaged:
            return "its first or last block is not what was written"
        self.kept_header = header
        return None

    def entries_of_last_record(self, physical_offset: int) -> int:
        """How many entries at the end are of the record at `physical_offset`."""
        count = self.header().count
        found = 0
        while found < count - 1:
            start = max(count - found - 64, 1)
            tail = self.entries(start, count - found)["physical_offset"][::-1] == physical_offset
            same = len(tail) if tail.all() else int(np.argmin(tail))
            found += same
            if same < len(tail) or not same:
                break
        return found

    # Checksums

    @property
    def _first_entry_block(self) -> int:
        """Blocks from here on hold entries only."""
        return -(-entry_at(1, self.slots_max) // BLOCK_BYTES)

    def growing(self, checksums: Checksums, count: int) -> Checksums:
        """Those of them that hold for a file to which entries from number `count` on may have been added since."""
        return checksums.within(self._first_entry_block, entry_at(count, self.slots_max))

    def begin_change(self) -> None:
        """Entries are going to be put, and slots to change: compare what will be built upon. FileDamaged if it is not
        what was written; then the file must not be changed."""
        known = self.blocks.checksums
        if self.damage is not None:
            raise self.damage
        if known.crcs and known.first < self._first_entry_block:
            self.blocks.confirm(0, entry_at(1, self.slots_max))
            self.blocks.replace(known.within(self._first_entry_block, known.end))

    def cover(self, count: int, *, whole: bool) -> Checksums:
        """Take the checksums that are not there yet: of all (`whole`), if the file does not change any more, otherwise
        of blocks full of entries below number `count`. Call it after a sync. FileDamaged as `begin_change`."""
        known, end = self.blocks.checksums, entry_at(count, self.slots_max)
        first = 0 if whole else self._first_entry_block
        end = end if whole else end // BLOCK_BYTES * BLOCK_BYTES
        if not self.is_trusted or self.damage is not None or end <= first * BLOCK_BYTES:
            return known
        if known.crcs and known.first <= first and known.end >= end:
            return known
        kept = known.within(self._first_entry_block, known.end // BLOCK_BYTES * BLOCK_BYTES) if known.crcs else known
        if known.crcs and known.end % BLOCK_BYTES:
            self.blocks.confirm(known.end - 1, known.end)  # The rest of the block is about to be added.
        before = take_checksums(self._read, first, min(kept.first * BLOCK_BYTES, end)) if kept.crcs else NO_CHECKSUMS
        after = take_checksums(self._read, max(kept.end_block, first), end)
        taken = Checksums(first, max(after.end, kept.end), before.crcs + kept.crcs + after.crcs)
        self.blocks.replace(taken)
        return taken

    def entries_of_first_record(self, physical_offset: int) -> int:
        """How many entries at the beginning are of the record at `physical_offset`."""
        count, found = self.header().count, 0
        while found < count - 1:
            same = self.entries(found + 1, min(found + 65, count))["physical_offset"] == physical_offset
            found += len(same) if same.all() else int(np.argmin(same))
            if not len(same) or not same.all():
                break
        return found

    # Changing

    def create(self, header: IndexHeader | None) -> None:
        """Make the file; `header` carries over what a file born by roll-over takes from the one before."""
        self.is_trusted = True
        if self._map is None:
            self._files.obtain(self.path, self.file_bytes, fallocate=True, fresh=True)
        if header is not None:
            # A file without entries has count 0 on disk.
            carried = IndexHeader(
                header.end_timestamp, header.end_timestamp, header.end_physical, header.end_physical, 0, 0
            )
            try:
                self._view()[:HEADER_BYTES] = encode_header(carried)
                self._files.touch(self.path)
            except OSError:
                self._files.remove(self.path)
                raise

    def make_again(self, header: IndexHeader | None) -> None:
        """Empty a file that is there, as `create` leaves one; its blocks on the disk stay reserved."""
        view = self._view()
        for at in range(0, self.file_bytes, _CLEAR_BYTES):
            count = min(_CLEAR_BYTES, self.file_bytes - at)
            view[at : at + count] = bytes(count)
        self.create(header)

    def _view(self) -> memoryview:
        """The whole file, to write to; touch it afterwards."""
        if self._map is None:
            self._map = self._files.obtain(self.path, self.file_bytes, fallocate=True).map(True)
        return self._map

    def unmap(self) -> None:
        """The file is full, or closed."""
        self._map = None

    def put(self, batch: RecordColumns, row: int, key: int, guard: int) -> tuple[int, int]:
        """Put the keys of rows from (row, key) on; the row and key to go on with. A row past the last one
        means that all is done, any other that the file is full."""
        row, key, _ = put_index_rows(self._view(), self.slots_max, self.entries_max, batch, row, key, guard)
        self._files.touch(self.path)
        return row, key

    def put_keys(self, keys: Sequence[Sequence[int]]) -> bool:
        """Put keys as `key_rows` gives them; False if the file is full."""
        put = put_key_rows(self._view(), self.slots_max, self.entries_max, keys, 0)
        self._files.touch(self.path)
        return put == len(keys)

    def cut(self, header: IndexHeader) -> None:
        """Keep the entries below `header.count`, and make the header and the slots say so."""
        view = self._view()
        self.blocks.replace(self.growing(self.blocks.checksums, header.count))
        # The count first: killed in between, the file has fewer entries than it could, and never wrong ones.
        view[:HEADER_BYTES] = encode_header(header)
        rebuild_index_slots(view, self.slots_max, header.count)
        self._files.touch(self.path)

    def header_before(self, physical_offset: int) -> IndexHeader:
        """The header that the file has with only the records before `physical_offset`."""
        header = self.header()
        if header.end_physical < physical_offset:
            return header
        entries = self.entries(1, header.count)
        kept = int(np.searchsorted(entries["physical_offset"].astype(np.int64), physical_offset))
        if kept == 0:
            return IndexHeader()
        last = entries[kept - 1]
        return IndexHeader(
            header.begin_timestamp,
            header.begin_timestamp + int(last["seconds"]) * 1000,  # the entry knows no better
            header.begin_physical,
            int(last["physical_offset"]),
            0,
            kept + 1,
        )
