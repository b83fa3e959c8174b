"""Directories where files of a store should be: `checkpoint`, the state files, config, index files.

No store makes such directories, and what is in them may be needed. The files are derived or small, so a store starts
without them: an opening for writing puts the directories aside (files/misplaced.py) and makes the files again; readers
and tools ignore them. Queue files are looked after where they are loaded (loading.py). Any thread.
"""

from collections.abc import Iterator
from pathlib import Path

from embermq.errors import StorePathInvalid
from embermq.files import Files, PathKind, Segments, entries_of, put_aside
from embermq.format.names import parse_index_name, parse_segment_name
from embermq.store.layout import directory
from embermq.store.layout.deleted_topics import DELETED_TOPICS_FILE as DELETED_TOPICS
from embermq.store.layout.directory import INDEX_PROOF_FILE as INDEX_PROOF
from embermq.store.layout.directory import QUARANTINE, QUARANTINE_REPORT
from embermq.store.layout.directory import QUEUE_CHECKSUMS_FILE as QUEUE_CHECKSUMS
from embermq.store.layout.directory import SCRUB_STATE_FILE as SCRUB
from embermq.store.layout.inventory import INVENTORY_FILE as INVENTORY
from embermq.store.layout.kept_offsets import KEPT_OFFSETS_FILE as KEPT_OFFSETS
from embermq.store.layout.state_page import STATE_FILE as STATE_PAGE
from embermq.store.tables import DELAY_OFFSETS

IS_DIRECTORY = "is a directory where a file should be"
_TEMPORARY = ".tmp"
# By directory: the files that a store makes there, each of which it also writes under a temporary name first.
_FILES = {
    "": (
        directory.CHECKPOINT,
        directory.ABORT,
        STATE_PAGE,
        INDEX_PROOF,
        INVENTORY,
        KEPT_OFFSETS,
        DELETED_TOPICS,
        SCRUB,
        QUEUE_CHECKSUMS,
    ),
    directory.CONFIG: (DELAY_OFFSETS.file, f"{DELAY_OFFSETS.file}.bak"),
    QUARANTINE: (QUARANTINE_REPORT,),
}


def misplaced_files(files: Files, root: Path) -> Iterator[Path]:
    """Directories that have the name of a file, but for queue files."""
    for place, names in _FILES.items():
        ours = {*names, *(name + _TEMPORARY for name in names)}
        for entry in entries_of(files, root / place):
            if entry.is_directory and entry.name in ours:
                yield root / place / entry.name
    for entry in entries_of(files, root / directory.INDEX):
        if entry.is_directory and parse_index_name(entry.name) is not None:
            yield root / directory.INDEX / entry.name


def refuse_misplaced_log(files: Files, segments: Segments) -> None:
    """StorePathInvalid for a directory that has the name of a log file: the file may lie elsewhere, and a writer that
    goes on without it would give its places in the log to other messages."""
    for path in segments.foreign:
        start = parse_segment_name(path.name)
        if start is not None and start % segments.segment_bytes == 0 and files.kind(path) is PathKind.DIRECTORY:
            raise StorePathInvalid(
                path,
                "is a directory where a log file should be; move it away, and put the log file back if there was one",
            )


def clear_misplaced(files: Files, root: Path, *, read_only: bool) -> list[str]:
    """Put them aside, unless nothing may be written; a line about each."""
    found = []
    for path in list(misplaced_files(files, root)):
        done = "ignored" if read_only else f"put aside as {_aside(files, root, path)}"
        found.append(f"{path}: {IS_DIRECTORY}; {done}")
    return found


def _aside(files: Files, root: Path, path: Path) -> Path:
    """Apache RocketMQ does not start with a foreign name in index/."""
    into = root / QUARANTINE if path.parent.name == directory.INDEX else None
    return put_aside(files, path, into).relative_to(root)
