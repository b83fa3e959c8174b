"""Which process has a store open for writing, and how much of the log a reader may be shown while it has.

RocketMQ and EmberMQ lock the same file; only EmberMQ maps the state page, which tells them apart.
Any thread. Reads only.
"""

import os
from pathlib import Path

from embermq.files import UNKNOWN, Files, holder_of
from embermq.store.layout import directory
from embermq.store.layout.state_page import STATE_FILE as STATE_PAGE
from embermq.store.layout.state_view import PageNumbers


def must_be_flushed(files: Files, root: Path, page: PageNumbers) -> bool:
    """May readers be shown no more than what the page says is flushed?

    Not so after a clean close, and not if RocketMQ has taken over the directory: the page is old then.
    """
    if not page.sync_flush or page.boot not in (0, files.boot()):
        return False
    if directory.was_closed_cleanly(files, root):
        return False
    holder = lock_holder(root)
    return holder is None or is_ours(holder, root / STATE_PAGE) is not False


def lock_holder(root: Path) -> int | None:
    """The process that has the store open for writing, UNKNOWN if the system does not name it; None if none has.

    The lock itself is not touched: opening and closing its file would give up what this process has of it.
    """
    return holder_of(root / directory.LOCK)


def is_ours(process: int, page: Path) -> bool | None:
    """Is this process a store of ours, which has the state page mapped? None: unknown."""
    if process == UNKNOWN:
        return None
    try:
        inode = os.stat(page).st_ino
        maps = Path(f"/proc/{process}/maps").read_text()
    except FileNotFoundError:
        return False  # No page, or no such process.
    except OSError:
        return None
    return any(line.split()[4:5] == [str(inode)] for line in maps.splitlines())
