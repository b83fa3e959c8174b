"""One fixed-size file of a segmented log, and how far it was written, committed and flushed.

Three positions, in bytes of this file, always flushed <= readable <= wrote:

    wrote      the writer has stored up to here (in the map, or in the private buffer if there is one)
    committed  copied from the private buffer to the file up to here; unused without a buffer
    flushed    a sync that began after these bytes were in the file has succeeded

Readers see up to `readable`: committed with a buffer, wrote without. A segment is in one of three states:

    active   mapped for writing; the writer stores into `target` / `target_array`, then moves `wrote`
    sealed   no map is kept; reads use pread, so that a bad disk is an OSError and not a signal
    retired  the file is deleted; views that are still out stay readable until they are dropped

Threads: the writer (one at a time, under its lock) stores and moves `wrote`; one committer moves
`committed`; one flusher moves `flushed`; any thread reads. Positions are plain attributes, because this
is the hottest object of the product. A thread that needs a part that sealing takes away (`view`,
`array`, `file`) takes a local reference first and tests it.
"""

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embermq.files import memory
from embermq.files.files import Files, OpenFile
from embermq.files.padded import PaddedFile
from embermq.files.pool import TransientPool

Bytes = npt.NDArray[np.uint8]

_NOTHING = memoryview(b"")
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class Segment:
    """A file of the log that starts at physical offset `start`; see the head of this file for threads."""

    __slots__ = (
        "__weakref__",
        "_files",
        "_last_lent",
        "_pool",
        "array",
        "buffer",
        "committed",
        "file",
        "flushed",
        "path",
        "populated",
        "size",
        "start",
        "store_timestamp",
        "target",
        "target_array",
        "view",
        "wrote",
    )

    def __init__(self, files: Files, path: Path, start: int, file: OpenFile, size: int) -> None:
        """Use `create` or `open`. A new object is sealed and counts as completely written."""
        self._files = files
        self.path = path
        self.start = start
        self.size = size
        self.file: OpenFile | None = file
        self.wrote = self.committed = self.flushed = size
        self.populated = 0  # pages below this are faulted in; moved by the allocator
        self.store_timestamp = 0  # of the last record appended, for the checkpoint
        self.buffer: memoryview | None = None
        self.view: memoryview | None = None
        self.array: Bytes | None = None
        self.target = _NOTHING
        self.target_array = _NO_BYTES
        self._pool: TransientPool | None = None
        self._last_lent: weakref.ref[Bytes] | None = None

    @classmethod
    def create(
        cls,
        files: Files,
        path: Path,
        start: int,
        size: int,
        *,
        fallocate: bool = True,
        pool: TransientPool | None = None,
    ) -> "Segment":
        """A new active segment with all positions at 0; its length and its name are durable.

        If that fails half way its file goes again. Where even that fails, `take_up` goes on with what is left.
        """
        file = files.create(path, size, fallocate=fallocate)
        try:
            return cls._activated(files, path, start, file, size, pool)
        except BaseException:
            file.close()
            with suppress(OSError):  # What went wrong first is what the caller has to know.
                files.remove(path)
            raise

    @classmethod
    def take_up(
        cls, files: Files, path: Path, start: int, size: int, *, pool: TransientPool | None = None
    ) -> "Segment":
        """As `create`, with the file that an earlier try has left behind; FileExistsError if it holds anything."""
        file = files.open(path, True)
        try:
            if file.size > size or not file.is_zero(0, file.size):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            file.reserve(file.size, size)
            return cls._activated(files, path, start, file, size, pool)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _activated(
        cls, files: Files, path: Path, start: int, file: OpenFile, size: int, pool: TransientPool | None
    ) -> "Segment":
        """A file of zeros as an empty segment; it and its name are durable."""
        file.sync()
        files.sync_directory(path.parent)
        segment = cls(files, path, start, file, size)
        segment.wrote = segment.committed = segment.flushed = 0
        segment.activate(pool)
        return segment

    @classmethod
    def open(cls, files: Files, path: Path, start: int, *, writable: bool, size_limit: int | None = None) -> "Segment":
        """A file found on disk, sealed, all positions at its end; bytes past `size_limit` are ignored."""
        file = files.open(path, writable)
        size = file.size if size_limit is None else min(file.size, size_limit)
        return cls(files, path, start, file, size)

    def __repr__(self) -> str:
        return f"Segment({self.path}, wrote={self.wrote}, flushed={self.flushed}, size={self.size})"

    # -- positions -------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The physical offset just past this file."""
        return self.start + self.size

    @property
    def readable(self) -> int:
        """How many bytes readers may see."""
        return self.wrote if self.buffer is None else self.committed

    @property
    def is_full(self) -> bool:
        return self.wrote == self.size

    @property
    def is_active(self) -> bool:
        return self.view is not None

    def _open_file(self) -> OpenFile:
        file = self.file
        assert file is not None, "retired"
        return file

    def reset(self, position: int) -> None:
        """Put all positions to `position`. Only while nothing writes or flushes (recovery)."""
        assert self.buffer is None
        assert 0 <= position <= self.size
        self.wrote = self.committed = self.flushed = position

    # -- writing ---------------------------------------------------------------------------------------

    def activate(self, pool: TransientPool | None = None) -> None:
        """Map for writing; with a pool that has one to spare, attach a private buffer."""
        assert self.view is None
        file = self._open_file()
        assert file.writable
        view = file.map(True, self.size)
        self.array = self.target_array = np.frombuffer(view, np.uint8)
        self.view = self.target = view
        if pool is not None:
            self.attach_buffer(pool)

    def attach_buffer(self, pool: TransientPool) -> bool:
        """Let the writer store to a private buffer, if the pool has one to spare; before the first store."""
        assert self.wrote == 0
        assert pool.buffer_bytes == self.size
        buffer = pool.borrow()
        if buffer is None:
            return False
        self.target, self.target_array = buffer, np.frombuffer(buffer, np.uint8)
        self._pool, self.buffer = pool, buffer
        return True

    def commit(self) -> bool:
        """Copy what the private buffer has to the file; True if anything moved. One thread at a time."""
        buffer, file = self.buffer, self.file
        if buffer is None or file is None:
            return False
        start, end = self.committed, self.wrote
        if start < end:
            file.pwrite(buffer[start:end], start)
            self.committed = end
        if end == self.size:
            self._give_buffer_back()
        return start < end

    def _give_buffer_back(self) -> None:
        """The buffer may be lent again at once, so nothing of this segment may point to it any more."""
        buffer, pool = self.buffer, self._pool
        assert buffer is not None
        assert pool is not None
        self.target = self.view or _NOTHING
        self.target_array = _NO_BYTES if self.array is None else self.array
        self.buffer = self._pool = None
        pool.give_back(buffer)

    def flush(self) -> bool:
        """Make what is readable durable; True if anything moved. One thread at a time.

        If the sync raises no position moves: what was not confirmed is not flushed.
        """
        file = self.file
        snapshot = self.readable
        if file is None or snapshot <= self.flushed:
            return False
        file.sync()
        self.flushed = snapshot
        return True

    def zero_from(self, at: int) -> int:
        """Make every byte from `at` to the end read as zero, durably; says how many were rewritten."""
        file = self._open_file()
        rewritten = file.zero(at, self.size)
        file.sync()
        return rewritten

    def extend(self, size: int) -> None:
        """Lengthen a short file to `size` zero bytes, durably; positions stay where they were."""
        assert self.view is None
        assert size >= self.size
        file = self._open_file()
        file.reserve(file.size, size)
        file.sync()
        self.size = size

    def pad(self, size: int) -> None:
        """For a reader: let a short file read as if zeros followed up to `size`. Nothing changes on the disk."""
        assert self.view is None
        assert size >= self.size
        self.file = PaddedFile(self._open_file(), size)
        self.size = size
        self.reset(size)

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, at: int, count: int) -> bytes:
        """A copy of up to `count` readable bytes; fewer at the end, none from a retired segment."""
        count = min(count, self.readable - at)
        if count <= 0 or at < 0:
            return b""
        view = self.view
        if view is not None:
            return bytes(view[at : at + count])
        file = self.file
        return b"" if file is None else file.pread(count, at)

    @contextmanager
    def array_for_scan(self) -> Iterator[Bytes]:
        """The whole file as a read-only array, for kernels: empty if retired. Look only below `readable`.

        The active map if there is one, else a map made for the purpose, shared by all who hold it.
        """
        array = self.array
        if array is None:
            array = self._last_lent() if self._last_lent is not None else None
        if array is None:
            file = self.file
            data = file.map(False, self.size) if file is not None else None
            array = np.frombuffer(data, np.uint8) if data else _NO_BYTES
            self._last_lent = weakref.ref(array)
        lent = array.view()
        lent.flags.writeable = False
        yield lent

    def mtime_ms(self) -> int:
        """When the file last changed, by the file system."""
        return self._files.stat(self.path).mtime_ns // 1_000_000

    # -- the end ---------------------------------------------------------------------------------------

    @property
    def is_lent(self) -> bool:
        """Is there still a view of the map that `array_for_scan` gave out? Its file keeps its space until then."""
        return self._last_lent is not None and self._last_lent() is not None

    def seal(self) -> None:
        """Let the map go; reads use the descriptor from now on. Not before the writer has left."""
        assert self.buffer is None, "commit first"
        view, array = self.view, self.array
        self.target, self.target_array = _NOTHING, _NO_BYTES
        if array is not None:
            self._last_lent = weakref.ref(array)  # Those who were lent it share it with those who come.
        self.array = self.view = array = None
        if view is not None:
            memory.drop(view, 0, self.size)

    def retire(self) -> None:
        """Delete the file, durably. Views that are out stay readable; the rest of the segment is gone.

        If the file cannot be removed, nothing has changed; it may have been removed already.
        """
        with suppress(FileNotFoundError):
            self._files.remove(self.path)
        self.close()
        self._files.sync_directory(self.path.parent)

    def close(self) -> None:
        """Let go of map and descriptor. What was not flushed is still written by the kernel in its time.

        The descriptor is not closed here but with its last user: a reader may be inside pread.
        """
        if self.buffer is not None:
            self._give_buffer_back()
        self.seal()
        self.file = None
