"""The store's directory: may it be one, who has it, was it closed cleanly?

    commitlog/ consumequeue/ consumequeue_ext/ index/ config/ checkpoint abort lock     as RocketMQ
    embermq.state embermq.{index,inventory,offsets,deleted}.json quarantine/              ours, ignored there

Nothing is written until the directory is known to be a store or empty, and until its lock is ours.
"""

import errno
from pathlib import Path

from embermq.errors import StoreError, StoreLocked, StorePathInvalid
from embermq.files import Files, Lock, LockHeld, PathKind, command_line
from embermq.store.layout.fence import living_writer
from embermq.store.tables import CONFIG as CONFIG

ABORT = "abort"
LOCK = "lock"
CHECKPOINT = "checkpoint"
COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
INDEX = "index"
QUARANTINE = "quarantine"
INDEX_PROOF_FILE = "embermq.index.json"
QUEUE_CHECKSUMS_FILE = "embermq.queues.json"
SCRUB_STATE_FILE = "embermq.scrub.json"
QUARANTINE_REPORT = "report.jsonl"
CHECKPOINT_BYTES_MAX = 1 << 20  # RocketMQ's has 4096; more is no checkpoint.
_TIMES_BYTES = 24
REBUILD = "embermq.rebuild"  # Where a rebuild works; beside a link's target it is the target's name with this behind.
DERIVED = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)
FOLDERS = (COMMIT_LOG, *DERIVED, CONFIG)
# Any one of these makes a directory a store.
_MARKS = {COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT, ABORT, LOCK, CONFIG, "embermq.state"}


def check_directory(files: Files, root: Path, *, read_only: bool, has_log_elsewhere: bool) -> None:
    """StorePathInvalid unless `root` is a store, or empty or missing and may become one."""
    try:
        if not files.exists(root):
            if read_only:
                raise StorePathInvalid(root, "there is no such directory, and read_only=True does not make one")
            return
        if not files.stat(root).is_directory:
            raise StorePathInvalid(root, "this is a file; a store is a directory")
        _check_links(files, root, read_only=read_only)
        found = {entry.name: entry for entry in files.list_directory(root)}
    except PermissionError:
        raise StorePathInvalid(root, "no permission to read it; check its owner and mode") from None
    except NotADirectoryError:
        raise StorePathInvalid(root, "a part of this path is a file, not a directory") from None
    except OSError as problem:
        raise StorePathInvalid(problem.filename or root, problem.strerror or str(problem)) from problem
    names = set(found)
    if not names and read_only and not has_log_elsewhere:
        raise StorePathInvalid(root, "the directory is empty, there is no store to read")
    if names and not names & _MARKS and not has_log_elsewhere:
        shown = ", ".join(sorted(names)[:3])
        raise StorePathInvalid(
            root, f"not a message store (it holds {shown}); choose an empty or new directory, or one with commitlog/"
        )
    for name in (COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CONFIG, QUARANTINE):
        if name in found and not found[name].is_directory:
            raise StorePathInvalid(root / name, "this is a file where a directory should be; move it away")


def _check_links(files: Files, root: Path, *, read_only: bool) -> None:
    """StorePathInvalid if a directory of the store is a link that leads nowhere: its disk is not mounted, and a new
    directory must not be begun in its place. A reader needs the log alone."""
    for name in (COMMIT_LOG,) if read_only else (*FOLDERS, QUARANTINE):
        link = root / name
        if files.kind(link) is not PathKind.LINK or files.exists(link):
            continue
        target = real_path(files, link)
        if name not in DERIVED or not files.exists(rebuild_beside(target)):
            raise StorePathInvalid(
                link, f"is a link to {target}, which is not there; mount its disk, or remove the link"
            )


def real_path(files: Files, path: Path) -> Path:
    """Where a path leads; StorePathInvalid if that is nowhere at all."""
    try:
        return files.real_path(path)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        raise StorePathInvalid(path, "is a link that leads in a circle; remove it") from None


def rebuild_beside(target: Path) -> Path:
    """Where the replacement of a link's target is built."""
    return target.with_name(f"{target.name}.{REBUILD}")


def make_targets(files: Files, root: Path) -> None:
    """Make the targets of links that a rebuild has moved away, and was killed before it put the new ones there."""
    for name in DERIVED:
        if files.kind(root / name) is PathKind.LINK and not files.exists(root / name):
            files.make_directory(files.real_path(root / name))


def take_directory(files: Files, root: Path) -> Lock:
    """Make the directory and its lock ours; StoreLocked or StorePathInvalid if that cannot be."""
    try:
        kind = files.kind(root / LOCK)
        if kind not in (None, PathKind.FILE):  # Four bytes are written to it.
            raise StorePathInvalid(root / LOCK, f"this is a {kind} where the lock file should be; move it away")
        files.make_directory(root)
        writer = living_writer(files, root)  # Before the lock: its file may be gone, and must not be made by us then.
        if writer is not None:
            raise StoreLocked(root, writer, command_line(writer))
        return files.lock(root / LOCK)
    except LockHeld as held:
        raise StoreLocked(root, held.pid, held.command) from None
    except (PermissionError, NotADirectoryError, FileExistsError) as problem:
        raise StorePathInvalid(root, f"cannot be written: {problem.strerror}; check its owner and mode") from None
    except OSError as problem:
        raise StorePathInvalid(problem.filename or root, f"cannot be used: {problem.strerror or problem}") from problem


def checkpoint_times(files: Files, root: Path) -> str:
    """The three times of the checkpoint as hexadecimal digits; empty without one that can be read."""
    try:
        return files.read_all(root / CHECKPOINT, CHECKPOINT_BYTES_MAX)[:_TIMES_BYTES].hex()
    except OSError:
        return ""


def check_lock(lock: Lock) -> None:
    """StoreError if a tool that has worked for long does not have the store for itself any more."""
    problem = lock.problem()
    if problem is not None:
        raise StoreError(
            f"{lock.path} {problem}: nothing more is written; see to it that no other process writes there, and call"
            " this again"
        )


def was_closed_cleanly(files: Files, root: Path) -> bool:
    return not files.exists(root / ABORT)


def mark_running(files: Files, root: Path) -> None:
    """Leave the mark that a crash leaves behind."""
    if not files.exists(root / ABORT):
        files.create(root / ABORT, 0, fallocate=False).close()
        files.sync_directory(root)


def mark_closed(files: Files, root: Path) -> None:
    if files.exists(root / ABORT):
        files.remove(root / ABORT)
        files.sync_directory(root)
