"""Whose turn it is to write below the place of a rebuild: `turn`, a file with a token, and a lock on it.

A driver that was killed leaves tasks behind that may go on for a while. A driver that begins, or goes on, waits for
those that are just writing and puts its own token there; a task that comes later with an old token, or finds the file
gone, may not write any more. Where the file system has no such locks, only the token is compared. Any process.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embermq.errors import StoreError

WRITER_LOCK_FILE = "turn"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to write below `work`, as long as no other driver has taken it."""

    work: Path
    token: str

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside, the turn is not taken away. StoreError if it was."""
        path = self.work / WRITER_LOCK_FILE
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreError(f"{self.work}: this rebuild is over, or another one has begun") from None
        try:
            _lock(handle, fcntl.LOCK_SH)
            if os.pread(handle, 64, 0).decode() != self.token:
                raise StoreError(f"{self.work}: another rebuild has taken over")
            yield
        finally:
            os.close(handle)


def take_turn(work: Path) -> Turn:
    """From now on it is ours; returns when no other task writes any more. `work` is a directory that exists."""
    turn = Turn(work, secrets.token_hex(16))
    _put(work, turn.token)
    return turn


def end_turn(work: Path) -> None:
    """From now on nothing writes here; fine if nothing could."""
    if (work / WRITER_LOCK_FILE).exists():
        _put(work, "")


def _put(work: Path, token: str) -> None:
    handle = os.open(work / WRITER_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, token.encode(), 0)
    finally:
        os.close(handle)


def _lock(handle: int, kind: int) -> None:
    try:
        fcntl.flock(handle, kind)
    except OSError as problem:
        if problem.errno not in _NO_LOCKS:
            raise
