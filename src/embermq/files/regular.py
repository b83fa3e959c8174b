"""Regular files only: opening and reading that neither waits nor grows without end.

Opening a FIFO waits for its other end, reading a device never ends, and a sparse file of a terabyte takes all memory.
Any of these may lie in a store's directory under the name of one of its files. So files are opened without waiting,
looked at once they are open (a name may change in between), and read up to a limit. What is refused is an OSError that
says why, like every other error of a file system. Any thread.
"""

import errno
import os
import stat
from pathlib import Path

# For files that the store reads as a whole. An inventory of a million queues has about half of it.
WHOLE_BYTES_MAX = 256 << 20
_READ_BYTES = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegular(OSError):
    """There is something else than a regular file at this path."""


class TooLarge(OSError):
    """The file is larger than any file of its kind can be."""


def open_regular(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a regular file; NotRegular, or IsADirectoryError, if it is something else."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    except OSError as problem:
        if problem.errno == errno.ENXIO:  # A socket, or a FIFO that nothing reads.
            raise _refusal(path, os.stat(path).st_mode) from None
        raise
    try:
        found = os.fstat(fd).st_mode
        if not stat.S_ISREG(found):
            raise _refusal(path, found)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_whole(path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
    """The content of a regular file; TooLarge if that is more than `limit` bytes."""
    fd = open_regular(path, os.O_RDONLY)
    try:
        parts = []
        left = limit + 1 if os.fstat(fd).st_size <= limit else 0
        while left > 0 and (part := os.read(fd, min(left, _READ_BYTES))):
            parts.append(part)
            left -= len(part)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    finally:
        os.close(fd)
    if left <= 0:
        raise TooLarge(errno.EFBIG, f"larger than {limit:,} bytes, which no such file is", str(path))
    return b"".join(parts)


def _refusal(path: Path, mode: int) -> OSError:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return NotRegular(errno.EINVAL, f"this is {kind} where a file should be; move it away", str(path))
