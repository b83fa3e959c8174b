"""The file sizes of a store that lies there already, as settings.

Opened with other sizes, a store's queue and index files would be made again; whoever opens a directory without
being told its settings takes these. Reads only. Any thread.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from embermq.errors import StorePathInvalid
from embermq.files.files import Files
from embermq.files.segments import size_of_files
from embermq.format.names import parse_index_name, parse_segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.store import directory
from embermq.store.log_places import log_places
from embermq.store.survey import Survey

_SAMPLES = 64


def sizes_found(files: Files, root: Path) -> dict[str, Any]:
    """Settings by Python name: those sizes that can be told from the files."""
    found: dict[str, Any] = {}
    if not files.exists(root):
        return found
    log_files = sorted(_log_files(files, root))
    if log_files:
        ((commonest, _),) = Counter(size for _, size in log_files).most_common(1)
        found["segment_bytes"] = size_of_files(log_files, commonest)
    queue_files = Counter(islice(_queue_sizes(files, root), _SAMPLES)).most_common(1)
    if queue_files:
        found["queue_file_bytes"] = queue_files[0][0]
    shape = _index_shape(files, root)
    if shape is not None:
        found["index_slots_max"], found["index_entries_max"] = shape
    return found


def _log_files(files: Files, root: Path) -> Iterator[tuple[int, int]]:
    """Start and length of each."""
    for place in log_places(files, root):
        for name, size in _files_of(files, place):
            start = parse_segment_name(name)
            if start is not None and size >= 1024:
                yield start, size


def _queue_sizes(files: Files, root: Path) -> Iterator[int]:
    top = root / directory.CONSUME_QUEUE
    for topic in _directories_of(files, top):
        for queue in _directories_of(files, top / topic):
            for name, size in _files_of(files, top / topic / queue):
                if parse_segment_name(name) is not None and size and size % ENTRY_BYTES == 0:
                    yield size


def _index_shape(files: Files, root: Path) -> tuple[int, int] | None:
    """Slots and entries of an index file: its length alone does not say."""
    names = [name for name, _ in _files_of(files, root / directory.INDEX) if parse_index_name(name) is not None]
    if not names:
        return None
    try:
        return Survey.open(root, files=files).index_shape()
    except StorePathInvalid:
        return None


def _files_of(files: Files, path: Path) -> list[tuple[str, int]]:
    if not files.exists(path):
        return []
    return [(entry.name, entry.size) for entry in files.list_directory(path) if entry.is_file]


def _directories_of(files: Files, path: Path) -> list[str]:
    if not files.exists(path):
        return []
    return [entry.name for entry in files.list_directory(path) if not entry.is_file]
