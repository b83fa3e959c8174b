"""A file that is shorter than it should be, read as if zeros followed.

An opening for writing lengthens such a file; a reader must not, and sees the same bytes through this. Its map is a
private copy: memory for what the file has, none for the zeros. Any thread; never writes.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import NoReturn

from embermq.files.files import Data, OpenFile

_COPY_BYTES = 1 << 20


class PaddedFile:
    """An `OpenFile` of `size` bytes around a shorter one."""

    writable = False

    def __init__(self, file: OpenFile, size: int) -> None:
        self._file = file
        self._length = min(file.size, size)
        self.size = size

    @property
    def path(self) -> Path:
        return self._file.path

    def pread(self, count: int, at: int) -> bytes:
        count = max(0, min(count, self.size - at))
        return self._file.pread(count, at).ljust(count, b"\0")

    def is_zero(self, start: int, end: int) -> bool:
        return start >= self._length or self._file.is_zero(start, min(end, self._length))

    def data_end(self, start: int) -> int:
        return max(start, min(self._file.data_end(start), self._length))

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        if writable:
            self._refuse()
        size = self.size if size is None else size
        copy = mmap.mmap(-1, size)
        for at in range(0, min(self._length, size), _COPY_BYTES):
            piece = self._file.pread(min(_COPY_BYTES, size - at), at)
            copy[at : at + len(piece)] = piece
        return memoryview(copy).toreadonly()

    def close(self) -> None:
        self._file.close()

    def pwrite(self, data: Data, at: int) -> None:
        self._refuse()

    def sync(self) -> None:
        self._refuse()

    def truncate(self, size: int) -> None:
        self._refuse()

    def reserve(self, start: int, end: int) -> None:
        self._refuse()

    def zero(self, start: int, end: int) -> int:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
