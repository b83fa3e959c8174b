"""Epochs: which of two stores was made the master last. A number in config/replication.json that a promotion raises.

    {"epoch": 3, "start": 1048576}     this log is that of epoch 3; up to `start` it is that of the master before

A store without the file is of epoch 0. A master that sees another one of its name with a higher epoch is fenced
(broker/replicas/fencing.py). The store must be closed for `promote` and `demote`; their lock is held meanwhile. Any
thread.
"""

import json
from pathlib import Path
from typing import NamedTuple

from embermq.errors import ReplicationError
from embermq.files import Files, RealFiles
from embermq.settings import StoreSettings
from embermq.store import MessageStore
from embermq.store.layout import CONFIG, take_directory

EPOCH_FILE = "replication.json"


class Epoch(NamedTuple):
    """The number of a promotion, and where in the log it happened."""

    number: int = 0
    start: int = 0


def load_epoch(root: Path, files: Files | None = None) -> Epoch:
    """The epoch of a store; ReplicationError if its file cannot be read."""
    files, path = files or RealFiles(), root / CONFIG / EPOCH_FILE
    if not files.exists(path):
        return Epoch()
    try:
        document = json.loads(files.read_all(path))
        return Epoch(int(document["epoch"]), int(document["start"]))
    except (ValueError, LookupError, TypeError) as problem:
        raise ReplicationError(f"{path} cannot be read ({problem}); restore it, or remove it for epoch 0") from None


def save_epoch(root: Path, epoch: Epoch, files: Files | None = None) -> None:
    """Write it down durably."""
    files = files or RealFiles()
    files.make_directory(root / CONFIG)
    text = json.dumps({"epoch": epoch.number, "start": epoch.start}) + "\n"
    files.replace_file(root / CONFIG / EPOCH_FILE, text.encode())


def promote(root: Path, settings: StoreSettings) -> Epoch:
    """Give the store in `root` the next epoch, from the end of its log on: the next broker on it is the master."""
    with MessageStore.open(root, settings.replace(allow_unreplicated=True, delayed_delivery=False)) as store:
        end = store.max_physical  # Recovered: whole records only.
    lock = take_directory(RealFiles(), root)
    try:
        epoch = Epoch(load_epoch(root).number + 1, end)
        save_epoch(root, epoch)
        return epoch
    finally:
        lock.release()
