"""An old log moved aside, so that a slave can copy its master's from the start (`--resync`). Nothing is deleted.

    store/commitlog consumequeue index checkpoint embermq.*   ->   store/embermq.aside/20260131T120000Z/...

config/ stays: the tables come from the master again. The store must be closed; its lock is held meanwhile. A kill in
between leaves some of it moved and some not: the log goes first, so the rest is derived files without a log, which the
next opening puts right.
"""

from datetime import UTC, datetime
from pathlib import Path

from embermq.clock import Clock, SystemClock
from embermq.errors import StorePathInvalid
from embermq.files import Files, PathKind, RealFiles
from embermq.settings import StoreSettings
from embermq.store.layout import COMMIT_LOG, DERIVED, LOCK, is_root_file, take_directory

ASIDE = "embermq.aside"


def move_log_aside(settings: StoreSettings, *, clock: Clock | None = None, files: Files | None = None) -> Path | None:
    """Move the log of the store in `settings.root`, and everything derived from it; where to, None if there is none.

    StoreLocked while it is open, StorePathInvalid if it cannot be moved."""
    files, root = files or RealFiles(), settings.root
    if settings.commit_log_paths or settings.commit_log_read_only_paths:
        raise StorePathInvalid(root, "its log lies in other directories (storePathCommitLog); move its files by hand")
    log = root / COMMIT_LOG
    if not files.exists(log) or not files.list_directory(log):
        return None
    if files.kind(log) is not PathKind.DIRECTORY:
        raise StorePathInvalid(log, "is a link; move the files of its target by hand")
    lock = take_directory(files, root)
    try:
        moment = datetime.fromtimestamp((clock or SystemClock()).now_ms() / 1000, UTC)
        target = root / ASIDE / moment.strftime("%Y%m%dT%H%M%S.%fZ")
        files.make_directory(target)
        names = [entry.name for entry in files.list_directory(root)]
        for name in (COMMIT_LOG, *DERIVED, *filter(_is_state, names)):
            if name in names:
                files.rename(root / name, target / name)
        files.sync_directory(target)
        files.sync_directory(root)
        return target
    finally:
        lock.release()


def _is_state(name: str) -> bool:
    return is_root_file(name) and name not in (LOCK, ASIDE)
