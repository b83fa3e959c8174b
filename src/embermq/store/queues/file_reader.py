"""Entries of queue files as they lie on the disk, for those who look at many queues one after another.

What the first look at a file does not give (`Files.read_ends`): entries further on, and whether anything was written
there. One file is open at a time. Paths are text, as in that look. One thread. Reads only.
"""

from pathlib import Path

from embermq.files import Files, OpenFile, open_if_there
from embermq.format.queue_entry import ENTRY_BYTES


class QueueFileReader:
    """Reads entries by file and number. Close it when a queue is done; it can be used for the next one then."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path: str | None = None
        self._file: OpenFile | None = None  # None: there is none at that path.

    def read(self, path: str, number: int, count: int) -> bytes:
        """The bytes of `count` entries; fewer at the end of the file, none if there is no file."""
        file = self._find(path)
        return b"" if file is None else file.pread(count * ENTRY_BYTES, number * ENTRY_BYTES)

    def is_zero(self, path: str, start: int, end: int) -> bool:
        """Do the bytes from `start` to `end` read as zero? Holes of the file are not read."""
        file = self._find(path)
        return file is None or start >= end or file.is_zero(start, end)

    def _find(self, path: str) -> OpenFile | None:
        if self._path != path:
            self.close()
            self._file = open_if_there(self._files, Path(path), writable=False)
            self._path = path
        return self._file

    def close(self) -> None:
        file, self._file, self._path = self._file, None, None
        if file is not None:
            file.close()
