"""The file sizes of a store that lies there already, as settings.

Opened with other sizes, a store's queue and index files would be made again; opening a directory without
its settings uses these. A size that is only a guess is left out: then the settings count.
Reads only. Any thread.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from embermq.errors import StorePathInvalid
from embermq.files import Files, entries_of, size_told
from embermq.format.frame import BLANK_BYTES, BLANK_MAGIC, MESSAGE_MAGIC, MESSAGE_MAGIC_V2, size_and_magic
from embermq.format.names import parse_index_name, parse_segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.inspect.snapshot import Survey
from embermq.store.layout import CONSUME_QUEUE, INDEX, load_inventory, log_places
from embermq.store.log import LogSegment

_SAMPLES = 64


def sizes_found(files: Files, root: Path) -> dict[str, Any]:
    """Settings by Python name: those sizes that the files show."""
    found: dict[str, Any] = {}
    if not files.exists(root):
        return found
    segment_bytes = _log_file_size(files, root)
    if segment_bytes:
        found["segment_bytes"] = segment_bytes
    queue_files = Counter(islice(_queue_sizes(files, root), _SAMPLES)).most_common(1)
    if queue_files:
        found["queue_file_bytes"] = queue_files[0][0]
    shape = _index_shape(files, root)
    if shape is not None:
        found["index_slots_max"], found["index_entries_max"] = shape
    return found


def _log_file_size(files: Files, root: Path) -> int:
    """0 if the files do not tell."""
    by_start: dict[int, tuple[Path, int]] = {}
    for place in log_places(files, root):
        for name, size in _files_of(files, place):
            start = parse_segment_name(name)
            if start is not None:
                by_start.setdefault(start, (place / name, size))
    inventory = load_inventory(files, root)
    written = inventory.segment_bytes if inventory is not None else 0
    if len(by_start) == 1:
        ((start, (path, size)),) = by_start.items()
        if written and start % written == 0:
            return written
        return _size_of_lone_file(files, root, LogSegment(path, start, size))
    return size_told([(start, by_start[start][1]) for start in sorted(by_start)], written)


def _size_of_lone_file(files: Files, root: Path, only: LogSegment) -> int:
    """A blank at its end says it exactly; else its length does, unless it is odd or ends in the middle of a record:
    then the file was cut. 0: unknown."""
    try:
        at = max(Survey.open(root, files=files).log_end - only.start, 0)
        file = files.open(only.path, False)
    except (StorePathInvalid, OSError):
        return 0
    try:
        head = file.pread(BLANK_BYTES, at)
    finally:
        file.close()
    if len(head) < BLANK_BYTES:
        return 0  # A record leaves room for a blank behind it.
    size, magic = size_and_magic(head, 0)
    if magic == BLANK_MAGIC and size >= BLANK_BYTES:
        return at + int(size)
    is_cut = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and size > only.size - at
    return 0 if is_cut else size_told([(only.start, only.size)])


def _queue_sizes(files: Files, root: Path) -> Iterator[int]:
    top = root / CONSUME_QUEUE
    for topic in _directories_of(files, top):
        for queue in _directories_of(files, top / topic):
            for name, size in _files_of(files, top / topic / queue):
                if parse_segment_name(name) is not None and size and size % ENTRY_BYTES == 0:
                    yield size


def _index_shape(files: Files, root: Path) -> tuple[int, int] | None:
    """Slots and entries of an index file: its length alone does not say."""
    names = [name for name, _ in _files_of(files, root / INDEX) if parse_index_name(name) is not None]
    if not names:
        return None
    try:
        return Survey.open(root, files=files).index_shape()
    except StorePathInvalid:
        return None


def _files_of(files: Files, path: Path) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry in entries_of(files, path) if entry.is_file]


def _directories_of(files: Files, path: Path) -> list[str]:
    return [entry.name for entry in entries_of(files, path) if entry.is_directory]
