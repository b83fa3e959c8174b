"""The fence: does this opening still have the store for itself?

The lock keeps a second writer out. Where it failed to (its file was deleted or replaced, another machine writes over a
network file system that loses locks), two processes would append to the same place of the log, acknowledge both
messages, and one of them would be overwritten. So opening a store for writing puts a random number, its fencing
token, into the state page, before anything else is read or changed. The page is memory that all openings on a machine
share: a writer that finds another token than its own there has been replaced. It refuses appends, acknowledges nothing
more and leaves every file alone, for good.

When the token is compared, and what that prevents:

    before each append               writing over a message of the other writer
    after each sync, before answers  acknowledging what the other writer did not find when it opened the store
    before pages, proofs, names      proofs of files that the other one writes; deleting them (FencedFiles)
    every second, with the lock      a page that was replaced by another file, a lost lock

A message that was acknowledged under SYNC_FLUSH was in the log before another token was in the page, so the other
writer, which reads the log after that, has it.

`writer_pid` beside the token lets an opening refuse to begin while the process that it names still has the page open
for writing, even if the file `lock` is gone. Any thread.
"""

import os
import secrets
from pathlib import Path
from typing import Any, cast

from embermq.errors import WriterFenced, again
from embermq.files import Files, OpenDirectory, OpenFile, PathKind, command_line, has_open_for_writing
from embermq.store.layout.state_page import PAGE_BYTES, STATE_FILE, StatePage, create_state_page, load_state_page

_TOKEN_BITS = 62
_EPOCH_BITS = 62


class Fence:
    """The token of one opening. `cell` and `stamp` are for those who compare them very often."""

    def __init__(self, files: Files, root: Path, page: StatePage | None, token: int) -> None:
        """Signs the page. Without one there is none that another opening could see, until `move_to`."""
        self._files, self._root, self._page, self._token = files, root, page, token
        self._sign(page)
        self._refusal: WriterFenced | None = None
        self._is_released = False

    def _sign(self, page: StatePage | None) -> None:
        if page is not None:
            page.writer_pid = os.getpid()
            page.writer = self._token
        self.cell = page.cell("writer") if page is not None else memoryview(bytearray(8)).cast("q")
        self.stamp = self.cell[0]

    def move_to(self, page: StatePage) -> None:
        """A new page is in the place of one that could not be believed, or of none. Before anything else looks."""
        old_cell, old_page, self._page = self.cell, self._page, page
        self._sign(page)
        old_cell.release()
        if old_page is not None:
            old_page.close()

    @property
    def is_ours(self) -> bool:
        return self._refusal is None and (self._is_released or self.cell[0] == self.stamp)

    @property
    def refusal(self) -> WriterFenced | None:
        """Why nothing may be written any more, as an object of its own; None while it may."""
        if self._refusal is None and not self.is_ours:
            self._refusal = WriterFenced(self._root, f"{self._root} was opened for writing by {self._other()}")
        return None if self._refusal is None else again(self._refusal)

    def check(self) -> None:
        """WriterFenced unless this is still the writer."""
        if not self.is_ours:
            refusal = self.refusal
            assert refusal is not None
            raise refusal

    def give_up(self, reason: str) -> None:
        """Something else shows that this is not the only writer."""
        if self._refusal is None:
            self._refusal = WriterFenced(self._root, reason)

    def check_page(self) -> None:
        """Give up if the page at the path is another file with another token: then ours is looked at by no other one.

        A page that is missing is no sign of a writer, who would have made one.
        """
        path = self._root / STATE_FILE
        if self._page is None:
            return
        try:
            if self._files.identity(path) == self._page.identity:
                return
            page = load_state_page(self._files, self._root, writable=False)
        except FileNotFoundError:
            return
        if page is None or page.writer != self._token:
            self.give_up(f"{path} was replaced by another file, perhaps by another process that writes to the store")

    def release(self) -> None:
        """This opening ends: no writer is named any more, unless there is another one. Closes the page."""
        if self._is_released:
            return
        page = self._page
        if page is not None and self.is_ours:
            page.writer_pid = 0
            page.writer = 0
        self._is_released = True
        self.cell.release()
        if page is not None:
            page.close()

    def _other(self) -> str:
        pid = self._page.writer_pid if self._page is not None else 0
        if pid == os.getpid():
            return "another part of this process while this one had it open"
        command = command_line(pid) if pid else ""
        who = (f"process {pid}" + (f" ({command})" if command else "")) if pid else "another process"
        return f"{who} while this one had it open"


def claim(files: Files, root: Path) -> tuple[Fence, StatePage | None]:
    """Put a new token into the state page. The fence, and the page if it can be believed.

    The lock is held. A page that cannot be believed gets the token, too, and is replaced later (`renew_page`): an
    earlier writer may still look at it.
    """
    token = 1 + secrets.randbits(_TOKEN_BITS - 1)
    path = root / STATE_FILE
    page = load_state_page(files, root, writable=True)
    if page is not None:
        return Fence(files, root, page, token), page
    if files.kind(path) is PathKind.FILE and files.stat(path).size == PAGE_BYTES:  # Nothing is written through a link.
        return Fence(files, root, StatePage(files.open(path, True), True), token), None
    return Fence(files, root, None, token), None


def renew_page(files: Files, root: Path, fence: Fence) -> StatePage:
    """A new page that proves nothing, with the token of the fence."""
    fence.check()
    page = create_state_page(files, root, secrets.randbits(_EPOCH_BITS))
    fence.move_to(page)
    return page


def living_writer(files: Files, root: Path) -> int | None:
    """The process that the page names as writer, if it is another one, runs, and has the page open for writing."""
    try:
        page = load_state_page(files, root, writable=False)
    except OSError:
        return None
    if page is None:
        return None
    pid = page.writer_pid
    page.close()
    is_living = pid not in (0, os.getpid()) and has_open_for_writing(pid, root / STATE_FILE)
    return pid if is_living else None


class FencedFiles:
    """A file system on which names are changed only as long as the fence stands. Reading goes on."""

    def __init__(self, inner: Files, fence: Fence) -> None:
        self._inner, self._fence = inner, fence
        self.list_names, self.read_ends = inner.list_names, inner.read_ends  # Asked for each queue at an opening.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def as_files(self) -> Files:
        return cast(Files, self)

    def make_directory(self, path: Path) -> None:
        self._fence.check()
        self._inner.make_directory(path)

    def make_one_directory(self, path: Path) -> None:
        self._fence.check()
        self._inner.make_one_directory(path)

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        self._fence.check()
        return self._inner.create(path, size, fallocate=fallocate)

    def open(self, path: Path, writable: bool) -> OpenFile:
        if writable:
            self._fence.check()
        return self._inner.open(path, writable)

    def open_directory(self, path: Path) -> OpenDirectory:
        """For removing names of it."""
        self._fence.check()
        return self._inner.open_directory(path)

    def replace_file(self, path: Path, data: bytes) -> None:
        self._fence.check()
        self._inner.replace_file(path, data)

    def rename(self, old: Path, new: Path) -> None:
        self._fence.check()
        self._inner.rename(old, new)

    def remove(self, path: Path) -> None:
        self._fence.check()
        self._inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        self._fence.check()
        self._inner.remove_directory(path)
