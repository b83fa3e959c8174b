"""Removing a store: its log, and everything that was derived from it or says something about it.

config/ and quarantine/ stay, and so does every file that neither RocketMQ nor EmberMQ makes. What proves files
goes before them: after a crash in between, the next opening believes nothing that is not there.
"""

from collections.abc import Sequence
from pathlib import Path

from embermq.files import Files, PathKind, entries_of, remove_tree
from embermq.store.layout import directory
from embermq.store.layout.owned_names import DERIVED, in_log, is_root_file


def destroy_files(files: Files, root: Path, log_directories: Sequence[Path]) -> list[Path]:
    """Remove the files of a store that no process has open; what was left because it is not the store's."""
    lock = directory.take_directory(files, root)
    try:
        for entry in entries_of(files, root):
            if (
                entry.name != directory.LOCK
                and is_root_file(entry.name)
                and files.kind(root / entry.name) is PathKind.FILE
            ):
                files.remove(root / entry.name)
        files.sync_directory(root)
        left: list[Path] = []
        for name, ours in DERIVED.items():
            left += remove_tree(files, root / name, ours)
        for path in log_directories:
            left += remove_tree(files, path, in_log)
        return left
    finally:
        lock.release()
