"""Entries of queue files as they lie on the disk, for those who look at many queues one after another.

A file is opened once and its first block is read with it: a queue with few entries, as most are where there are many,
costs one open and one read. At most two files are open at a time, which is what comparing neighbours needs.

One thread. Reads only, but opens a file for writing where the store may write: a file that could not be written is
reported by the opening and not by the first append.
"""

from pathlib import Path
from typing import NamedTuple

from embermq.files import Files, OpenFile, open_if_there
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES

Entry = tuple[int, int, int]  # physical offset, record size, tag code or extension address

HEAD_ENTRIES = 204  # just under 4 KiB, one page
_OPEN_MAX = 2
_NO_ENTRY: Entry = (0, 0, 0)


class _OpenedFile(NamedTuple):
    path: Path
    file: OpenFile | None  # None: there is none.
    head: bytes


class QueueFileReader:
    """Reads entries by file and number. Close it when a queue is done; it can be used for the next one then."""

    def __init__(self, files: Files, *, writable: bool) -> None:
        self._files, self._writable = files, writable
        self._opened: list[_OpenedFile] = []  # The newest last.

    def entry(self, path: Path, number: int) -> Entry:
        """Entry `number` of a file; zeros when it is not there."""
        data = self.read(path, number, 1)
        return ENTRY.unpack(data) if len(data) == ENTRY_BYTES else _NO_ENTRY

    def read(self, path: Path, number: int, count: int) -> bytes:
        """The bytes of `count` entries; fewer at the end of the file, none if there is no file."""
        _, file, head = self._find(path)
        start, end = number * ENTRY_BYTES, (number + count) * ENTRY_BYTES
        return head[start:end] if file is None or end <= len(head) else file.pread(end - start, start)

    def is_there(self, path: Path) -> bool:
        return self._find(path).file is not None

    def is_zero(self, path: Path, number: int, count: int) -> bool:
        """Do so many entries, from `number` on, read as zero? Holes of the file are not read."""
        _, file, head = self._find(path)
        start, end = number * ENTRY_BYTES, (number + count) * ENTRY_BYTES
        if head[start:end].strip(b"\0"):
            return False
        start = max(start, len(head))
        return file is None or start >= end or file.is_zero(start, end)

    def _find(self, path: Path) -> _OpenedFile:
        for opened in self._opened:
            if opened.path is path:  # The same object: comparing paths takes longer than reading.
                return opened
        file = open_if_there(self._files, path, writable=self._writable)
        opened = _OpenedFile(path, file, b"" if file is None else file.pread(HEAD_ENTRIES * ENTRY_BYTES, 0))
        if len(self._opened) == _OPEN_MAX:
            _close(self._opened.pop(0))
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        while self._opened:
            _close(self._opened.pop())


def _close(opened: _OpenedFile) -> None:
    if opened.file is not None:
        opened.file.close()
