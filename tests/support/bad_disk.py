"""A disk with bad places: whoever reads one of them gets an I/O error."""

import errno
import os
from pathlib import Path

from embermq.files import Files, OpenFile
from embermq.testing.faulty_files import FaultyFile, FaultyFiles


class BadDisk(FaultyFiles):
    """`bad` has, for each path, the places that cannot be read."""

    def __init__(self, inner: Files, bad: dict[Path, list[int]]) -> None:
        super().__init__(inner)
        self.bad = bad

    def open(self, path: Path, writable: bool) -> OpenFile:
        return _BadFile(self, self.inner.open(path, writable))


class _BadFile(FaultyFile):
    def map(self, writable: bool, size: int | None = None) -> memoryview:
        """Whoever looks at a bad place through a map gets a signal, so nobody may have one here."""
        disk = self._files
        assert isinstance(disk, BadDisk)
        if disk.bad.get(self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        return super().map(writable, size)

    def pread(self, count: int, at: int) -> bytes:
        disk = self._files
        assert isinstance(disk, BadDisk)
        if any(at <= place < at + count for place in disk.bad.get(self.path, ())):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        return super().pread(count, at)
