"""The extension of one consume queue: tag code, store time and filter bit map of each message.

The queue's entry then holds the address of an extension entry in place of the tag code. Entries have different
lengths and follow one another; one that does not fit the rest of a file goes to the next, behind an end mark.
An entry is put before the queue entry that names it, and reaches its file before it too, so an address never
leads to nothing; entries that are not referenced are harmless and stay.

`put` and `set_aside` are called under the change lock of the queues, `write_out` and what deletes under their
disk lock (`queue_books`); `find` by any thread. Nothing is written before `write_out`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embermq.columns import RecordColumns
from embermq.files import Files, OpenFiles, entries_of
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_extension import (
    END_MARK,
    ENTRY_BYTES_MAX,
    ENTRY_HEAD_BYTES,
    ExtensionEntry,
    address_of,
    decode_entry,
    encode_entry,
    entry_size,
    fits,
    is_address,
    offset_of,
)

__all__ = ["EXTENSION_FAMILY", "BitMapFor", "ExtensionSettings", "QueueExtension", "is_address"]

EXTENSION_FAMILY = "consumequeue_ext"
_READ_BYTES = 256
_WALK_BYTES = 1 << 20

BitMapFor = Callable[[RecordColumns, int], bytes]


@dataclass(frozen=True, slots=True)
class ExtensionSettings:
    """Where extensions live, and who knows the bit map of a record (row i of the columns); b"" for none."""

    root: Path
    file_bytes: int = 48 << 20
    bitmap_for: BitMapFor | None = None


class QueueExtension:
    """The extension files of one queue."""

    def __init__(self, directory: Path, files: OpenFiles, file_bytes: int) -> None:
        self.directory = directory
        self._files = files
        self._file_bytes = file_bytes
        self._file_starts: set[int] = set()
        self.misplaced: list[Path] = []  # Directories that have the names of files.
        self._end = 0  # where the next entry goes, unless it does not fit
        # Position -> bytes, of entries and end marks, in order: what comes in, and what is to be written next.
        self._pending: dict[int, bytes] = {}
        self._leaving: dict[int, bytes] = {}

    def load(self, files: Files) -> None:
        """Find the files and the end of the last one that holds entries."""
        for entry in entries_of(files, self.directory):
            start = parse_segment_name(entry.name)
            if entry.is_directory and start is not None and start % self._file_bytes == 0:
                self.misplaced.append(self.directory / entry.name)
            if entry.is_file and start is not None and start % self._file_bytes == 0 and entry.size == self._file_bytes:
                self._file_starts.add(start)
        for start in sorted(self._file_starts, reverse=True):
            self._end = self._walk(start)
            if self._end > start:
                return

    def paths(self) -> list[Path]:
        """Its files, oldest first."""
        return [self._path_of(start) for start in sorted(self._file_starts)]

    def _walk(self, start: int) -> int:
        """The position after the last entry of one file."""
        file = self._files.find(self._path_of(start))
        if file is None:
            return start  # Its writer has removed it.
        at, held, data = 0, 0, b""
        while True:
            if at + ENTRY_HEAD_BYTES > held + len(data):
                held, data = at, file.pread(_WALK_BYTES, at)
            size = entry_size(data, at - held, len(data))
            if size == 0 and held < at:  # It may only reach past what was read.
                held, data = at, file.pread(_WALK_BYTES, at)
                size = entry_size(data, 0, len(data))
            if size == 0:
                return start + at
            at += size

    def vouch_for(self, address: int) -> bool:
        """A queue entry names `address`: new entries go past it. False when there is no entry there."""
        entry = self.find(address)
        if entry is None:
            return False
        self._end = max(self._end, offset_of(address) + entry.size)
        return True

    def find(self, address: int) -> ExtensionEntry | None:
        """The entry at an address, or None: not an address, or nothing there."""
        if not is_address(address):
            return None
        position = offset_of(address)
        data = self._pending.get(position) or self._leaving.get(position)
        if data is None:
            at = position % self._file_bytes
            # A file of another length is none of ours: what is put next begins it anew.
            is_known = position - at in self._file_starts
            file = self._files.find(self._path_of(position - at)) if is_known else None
            if file is None:
                return None
            data = file.pread(_READ_BYTES, at)
            size = int.from_bytes(data[:2], "big", signed=True)
            if size > len(data):
                data = file.pread(size, at)
        return decode_entry(data, 0, len(data))

    def put(self, tag_code: int, store_time: int, bitmap: bytes) -> int | None:
        """Add an entry; its address, or None when no file could hold it."""
        entry = ExtensionEntry(tag_code, store_time, bitmap)
        if entry.size > ENTRY_BYTES_MAX or not fits(entry.size, 0, self._file_bytes):
            return None
        at = self._end % self._file_bytes
        if not fits(entry.size, at, self._file_bytes):
            if at + len(END_MARK) <= self._file_bytes:
                self._pending[self._end] = END_MARK
            self._end += self._file_bytes - at
        address = address_of(self._end)
        self._pending[self._end] = encode_entry(entry)
        self._end += entry.size
        return address

    def set_aside(self) -> None:
        """What is pending now is what `write_out` writes."""
        if self._pending:
            self._leaving = {**self._leaving, **self._pending}
            self._pending = {}

    def write_out(self) -> None:
        """Write what was set aside, one write for each stretch of a file. After an OSError it is still there."""
        stretch: list[bytes] = []
        stretch_start = stretch_end = -1
        for position, data in self._leaving.items():
            if position != stretch_end or position % self._file_bytes == 0:
                self._write(stretch_start, stretch)
                stretch, stretch_start = [], position
            stretch.append(data)
            stretch_end = position + len(data)
        self._write(stretch_start, stretch)
        self._leaving = {}  # A new one: a reader may be looking into the old one.

    def _write(self, position: int, stretch: list[bytes]) -> None:
        if not stretch:
            return
        at = position % self._file_bytes
        start = position - at
        path = self._path_of(start)
        file = self._files.obtain(path, self._file_bytes, fresh=start not in self._file_starts)
        self._file_starts.add(start)
        file.pwrite(b"".join(stretch), at)
        self._files.touch(path)

    def _path_of(self, start: int) -> Path:
        return self.directory / segment_name(start)

    def delete_before(self, address: int) -> None:
        """Delete the files that lie wholly before `address`, the first one still named by a queue entry."""
        if not is_address(address):
            return
        keep = offset_of(address)
        for start in sorted(self._file_starts):
            if start + self._file_bytes > keep:
                break
            self._files.remove(self._path_of(start))
            self._files.sync_directory(self.directory)
            self._file_starts.discard(start)

    def destroy(self) -> None:
        for start in sorted(self._file_starts, reverse=True):
            self._files.remove(self._path_of(start))
        self._file_starts.clear()
        self._pending = {}
        self._leaving = {}
        self._end = 0
        self._files.remove_directory(self.directory)
        self._files.remove_directory(self.directory.parent)
