"""Which process holds a lock on a file, as far as the system tells. Errors name it, and readers ask for it.

    POSIX record lock              F_GETLK and /proc/locks give the process id
    open-file-description lock     both give -1: it belongs to an open file, which several processes may share. The
                                   descriptor is looked for in /proc/PID/fdinfo, which lists the locks of each

Nothing here opens the locked file: closing it again would give up the POSIX locks that this process has on it.
Elsewhere than on Linux nothing is known. Any thread.
"""

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

UNKNOWN = 0  # In place of a process id: the file is locked, and the system does not tell by which process.
FLOCK = struct.Struct("@hhqqi")  # l_type, l_whence, l_start, l_len, l_pid of struct flock on 64-bit Linux
COMMAND_CHARACTERS_MAX = 1000
_PROCESSES = Path("/proc")

FileKey = tuple[int, int]  # device and inode


def key_of(status: os.stat_result) -> FileKey:
    return status.st_dev, status.st_ino


def record_lock_holder(fd: int, at: int) -> int | None:
    """The process that has a POSIX record lock on byte `at`; None if none has, or if it cannot be known."""
    if sys.platform != "linux":  # The structure differs from system to system.
        return None
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def holder_of(path: Path) -> int | None:
    """The process that has a lock on the file at `path`, UNKNOWN if it cannot be named; None if it is not locked."""
    try:
        status = os.stat(path)
        lines = (_PROCESSES / "locks").read_text().splitlines()
    except OSError:
        return None
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    held = False
    for line in lines:
        words = line.split()  # number, kind, advisory, access, process, device and file, start, end
        if wanted in words and "->" not in words:
            held = True
            pid = int(words[words.index(wanted) - 1])
            if pid > 0:
                return pid
    return (open_file_lock_holder(key_of(status)) or UNKNOWN) if held else None


def open_file_lock_holder(file: FileKey) -> int | None:
    """The process with an open-file-description lock on this file; None if there is none that may be looked at."""
    for process in _PROCESSES.glob("[0-9]*"):
        if any("OFDLCK" in info for info in _open_descriptors(process, file)):
            return int(process.name)
    return None


def has_open_for_writing(pid: int, path: Path) -> bool:
    """Does a process of this machine have the file at `path` open for writing? False if that cannot be known."""
    try:
        wanted = key_of(os.stat(path))
    except OSError:
        return False
    return any(_is_for_writing(info) for info in _open_descriptors(_PROCESSES / str(pid), wanted))


def _open_descriptors(process: Path, file: FileKey) -> Iterator[str]:
    """What the system says of each descriptor that a process has of this file."""
    try:
        numbers = os.listdir(process / "fd")
    except OSError:  # It has ended, or belongs to another user.
        return
    for number in numbers:
        with suppress(OSError):  # Closed meanwhile.
            if key_of(os.stat(process / "fd" / number)) == file:
                yield (process / "fdinfo" / number).read_text()


def _is_for_writing(info: str) -> bool:
    for line in info.splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8) & os.O_ACCMODE in (os.O_RDWR, os.O_WRONLY)
    return False


def command_line(pid: int) -> str:
    """The command line of a process, or "" if it cannot be read."""
    try:
        raw = (_PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    text = " ".join(raw.replace(b"\0", b" ").decode(errors="replace").split())  # One line, whatever it was given.
    return text if len(text) <= COMMAND_CHARACTERS_MAX else text[: COMMAND_CHARACTERS_MAX - 1] + "…"
