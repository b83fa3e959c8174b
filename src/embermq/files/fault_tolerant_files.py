"""Reading from a disk with bad places: what cannot be read reads as zeros, and is written down.

A log on a failing disk is mostly good. A search for what is left must not stop at the first bad block, and
must not map files, where a bad block is a signal. Only `open`, `pread` and what is made of them differ; everything else
goes to the file system behind. Any thread.
"""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from embermq.files.files import Files, OpenFile, read_ends_by_steps
from embermq.files.looking import FileEnds

BLOCK_BYTES = 4096
_BAD = (errno.EIO, errno.EUCLEAN) if hasattr(errno, "EUCLEAN") else (errno.EIO,)


@dataclass(frozen=True, slots=True)
class BadBlock:
    """A block of a file that the disk does not give."""

    path: Path
    at: int


class PatientFile:
    """An open file whose bad blocks are zeros."""

    def __init__(self, inner: OpenFile, bad: "dict[BadBlock, None]") -> None:
        self._inner, self._bad = inner, bad

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pread(self, count: int, at: int) -> bytes:
        try:
            return self._inner.pread(count, at)
        except OSError as problem:
            if problem.errno not in _BAD:
                raise
        first = at - at % BLOCK_BYTES
        end = min(at + count, self._inner.size)
        blocks = [self._block(place) for place in range(first, max(end, first), BLOCK_BYTES)]
        return b"".join(blocks)[at - first : end - first]

    def _block(self, at: int) -> bytes:
        try:
            return self._inner.pread(BLOCK_BYTES, at)
        except OSError as problem:
            if problem.errno not in _BAD:
                raise
            self._bad[BadBlock(self._inner.path, at)] = None
            return bytes(BLOCK_BYTES)


class FaultTolerantFiles:
    """A file system that reads on; `bad_blocks` says where it could not."""

    def __init__(self, inner: Files) -> None:
        self._inner = inner
        self._bad: dict[BadBlock, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def as_files(self) -> Files:
        return cast(Files, self)

    @property
    def bad_blocks(self) -> list[BadBlock]:
        """Every block that could not be read, each once, in the order they were met."""
        return list(self._bad)

    def add(self, blocks: Iterable[BadBlock]) -> None:
        """Blocks that another reader could not read."""
        self._bad.update(dict.fromkeys(blocks))

    def open(self, path: Path, writable: bool) -> OpenFile:
        return cast(OpenFile, PatientFile(self._inner.open(path, writable), self._bad))

    def read_ends(self, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
        return read_ends_by_steps(self.as_files, path, head_bytes, tail_bytes, writable)
