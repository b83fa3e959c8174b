"""A demotion: an old master becomes a slave of the new one. What only it has is kept aside and never merged.

    log here      ..........................|-- tail --|      stored here, and not on the slave that was promoted
    new master    ..........................|-- other messages --...
                                            ^ start of its epoch

The tail goes to embermq.aside/tail-START-END/: its bytes, and its messages as JSON lines that `embermq store load`
reads. Then the log is cut there, and queues and index are moved aside as well: the next opening derives them. The tail
is durable before anything is cut; a kill in between leaves the log as it was, or cut. The store must be closed.
"""

from pathlib import Path
from typing import NamedTuple

from embermq.errors import ReplicationError, StorePathInvalid
from embermq.files import RealFiles
from embermq.format.message_json import message_line
from embermq.format.names import parse_segment_name
from embermq.replication.epochs import Epoch, load_epoch, save_epoch
from embermq.replication.moving_aside import ASIDE
from embermq.settings import StoreSettings
from embermq.store import MessageStore
from embermq.store.layout import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    DERIVED,
    INDEX_PROOF_FILE,
    INVENTORY_FILE,
    STATE_FILE,
    take_directory,
)

READ_BYTES = 1 << 20
# What vouches for derived files, or for how far the log goes.
_PROOFS = (CHECKPOINT, STATE_FILE, INVENTORY_FILE, INDEX_PROOF_FILE, "embermq.queues.json", "embermq.scrub.json")


class Demoted(NamedTuple):
    """What was done: the tail from..to was kept in `aside`; None if there was none."""

    epoch: Epoch
    start: int
    end: int
    messages: int
    aside: Path | None


def demote(root: Path, settings: StoreSettings, master: Epoch) -> Demoted:
    """Make the store in `root` fit to follow a master of this epoch. ReplicationError if it is not an older one."""
    own = load_epoch(root)
    if own.number >= master.number:
        raise ReplicationError(
            f"{root} is of epoch {own.number}, the master of epoch {master.number}: it has to be promoted first"
        )
    if settings.commit_log_paths or settings.commit_log_read_only_paths:
        raise StorePathInvalid(root, "its log lies in other directories (storePathCommitLog); cut it by hand")
    with MessageStore.open(root, settings.replace(allow_unreplicated=True, delayed_delivery=False)) as store:
        end, messages, aside = store.max_physical, 0, None
        if end > master.start:
            if master.start < store.min_physical:
                raise ReplicationError(
                    f"the log here begins at {store.min_physical}, epoch {master.number} at {master.start}: nothing of"
                    " it is shared; use --resync"
                )
            aside, messages = _keep_tail(store, master.start, end)
    lock = take_directory(RealFiles(), root)
    try:
        if aside is not None:
            _cut(root, master.start, aside)
        save_epoch(root, Epoch(master.number, master.start))
    finally:
        lock.release()
    return Demoted(Epoch(master.number, master.start), master.start, end, messages, aside)


def _keep_tail(store: MessageStore, start: int, end: int) -> tuple[Path, int]:
    files = RealFiles()
    aside = store.path / ASIDE / f"tail-{start:020d}-{end:020d}"
    files.make_directory(aside)
    raw = bytearray()
    with open(aside / "messages.jsonl", "wb") as lines, open(aside / "log.bin", "wb") as log:
        at = start
        while at < end:
            raw[:] = store.read_log(at, min(READ_BYTES, end - at))
            log.write(raw)
            at += len(raw)
        messages = 0
        for message in store.scan(start, end):
            lines.write(message_line(message)[0])
            messages += 1
    for name in ("messages.jsonl", "log.bin"):
        opened = files.open(aside / name, writable=True)
        opened.sync()
        opened.close()
    files.sync_directory(aside)
    files.sync_directory(store.path / ASIDE)
    return aside, messages


def _cut(root: Path, end: int, aside: Path) -> None:
    """Derived files first: without them the log alone decides, wherever this ends."""
    files = RealFiles()
    names = {entry.name for entry in files.list_directory(root)}
    if ABORT not in names:
        files.create(root / ABORT, 0, fallocate=False).close()
    for name in (*DERIVED, *_PROOFS):
        if name in names:
            files.rename(root / name, aside / name)
    files.sync_directory(root)
    log = root / COMMIT_LOG
    for entry in sorted(files.list_directory(log), key=lambda one: one.name, reverse=True):
        base = parse_segment_name(entry.name)
        if base is None:
            continue
        if base >= end and base > 0:
            files.rename(log / entry.name, aside / entry.name)
        elif base + entry.size > end:
            opened = files.open(log / entry.name, writable=True)
            opened.zero(max(0, end - base), entry.size)
            opened.sync()
            opened.close()
    files.sync_directory(log)
