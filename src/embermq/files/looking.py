"""A look at very many small files: the names in a directory, and the two ends of a file.

A store may have tens of thousands of queues, each with a directory and a file, and an opening looks at all of them. So
a name costs no call to the system of its own, a file costs one open and one read, and paths are text: a `Path` takes
longer to make than such a file to read. What is not there any more, or is no file, is an answer. Any thread.
"""

import errno
import os
import stat
from typing import NamedTuple

_GONE = (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO)


class FoundName(NamedTuple):
    """One name in a directory. What is neither a file nor a directory (a FIFO, a device) is none of ours."""

    name: str
    is_file: bool  # A regular one.
    is_directory: bool
    is_link: bool  # Then the rest is about what the link leads to.


class FileEnds(NamedTuple):
    """The first and the last bytes of a file."""

    size: int
    head: bytes
    tail: bytes
    rest_is_hole: bool  # Nothing was ever written behind the head. A hint: it may be so and not be known.


def real_names(path: str) -> list[FoundName]:
    """Everything in a directory of the disk, sorted by name; links that lead nowhere left out."""
    found = []
    with os.scandir(path) as items:
        for item in items:
            is_link = item.is_symlink()
            try:
                is_directory = item.is_dir()
                is_file = not is_directory and item.is_file()
                if is_link and not is_directory and not is_file:
                    item.stat()
            except OSError as problem:
                if problem.errno in _GONE:
                    continue
                raise
            found.append(FoundName(item.name, is_file, is_directory, is_link))
    found.sort()
    return found


def real_ends(path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
    """The ends of a file on the disk."""
    flags = os.O_RDWR if writable else os.O_RDONLY
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as problem:
        if problem.errno in _GONE:
            return None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        size = status.st_size
        head = os.pread(fd, head_bytes, 0)
        tail = os.pread(fd, tail_bytes, size - tail_bytes) if 0 < tail_bytes <= size else b""
        return FileEnds(size, head, tail, _is_hole_from(fd, len(head)))
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None
    finally:
        os.close(fd)


def _is_hole_from(fd: int, at: int) -> bool:
    try:
        os.lseek(fd, at, os.SEEK_DATA)
    except OSError as problem:
        return problem.errno == errno.ENXIO
    return False
