"""The shape of a store: how large its files are. One description, for all who open, check or make files of one.

Opened with other sizes, a store's queue and index files would be made again, and a broker with the old settings would
then refuse to start; opening a directory without its settings uses the sizes its files show. A size that is only a
guess is left out: then the settings count. Reads only. Any thread.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from embermq.errors import StorePathInvalid
from embermq.files import Files, entries_of, found_size
from embermq.format.frame import BLANK_BYTES, BLANK_MAGIC, MESSAGE_MAGIC, MESSAGE_MAGIC_V2, size_and_magic
from embermq.format.index import index_file_bytes
from embermq.format.names import parse_index_name, parse_segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.inspect.snapshot import Survey
from embermq.settings import StoreSettings
from embermq.store.layout import CONSUME_QUEUE, INDEX, load_inventory, log_places
from embermq.store.log import LogSegment

_SAMPLES = 64


class IndexShape(NamedTuple):
    """How many slots and entries an index file has; its length alone does not say."""

    slots_max: int
    entries_max: int

    @property
    def file_bytes(self) -> int:
        return index_file_bytes(self.slots_max, self.entries_max)


@dataclass(frozen=True, slots=True)
class StoreShape:
    """Sizes of a store's files; None where they are not known, or there are no such files."""

    segment_bytes: int | None = None
    queue_file_bytes: int | None = None
    index: IndexShape | None = None

    @classmethod
    def of(cls, settings: StoreSettings) -> "StoreShape":
        """What a store with these settings makes."""
        index = IndexShape(settings.index_slots_max, settings.index_entries_max)
        return cls(settings.segment_bytes, settings.queue_file_bytes, index)

    def as_settings(self) -> dict[str, int]:
        """What is known, by the Python names of settings."""
        slots, entries = (None, None) if self.index is None else self.index
        sizes = {
            "segment_bytes": self.segment_bytes,
            "queue_file_bytes": self.queue_file_bytes,
            "index_slots_max": slots,
            "index_entries_max": entries,
        }
        return {name: size for name, size in sizes.items() if size is not None}

    def applied_to(self, settings: StoreSettings) -> StoreSettings:
        """The settings with these sizes, where they are known."""
        return settings.replace(**self.as_settings())


def found_shape(
    files: Files, root: Path, *, survey: Survey | None = None, log_paths: Sequence[Path] = ()
) -> StoreShape:
    """The sizes that the files of the store at `root` show. `survey`: a look at it that was taken already.
    `log_paths`: where its log is, if settings say so."""
    if not files.exists(root):
        return StoreShape()
    look = _Look(files, root, survey)
    queue_files = Counter(islice(_queue_sizes(files, root), _SAMPLES)).most_common(1)
    return StoreShape(
        _log_file_size(look, log_paths) or None, queue_files[0][0] if queue_files else None, _index_shape(look)
    )


class _Look:
    """A survey that is taken when it is needed, once."""

    def __init__(self, files: Files, root: Path, survey: Survey | None) -> None:
        self.files, self.root, self._survey = files, root, survey

    def survey(self) -> Survey:
        if self._survey is None:
            self._survey = Survey.open(self.root, files=self.files)
        return self._survey


def _log_file_size(look: _Look, log_paths: Sequence[Path]) -> int:
    """0 if the files do not tell."""
    files, root = look.files, look.root
    by_start: dict[int, tuple[Path, int]] = {}
    for place in log_paths or log_places(files, root):
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
        return _size_of_lone_file(look, LogSegment(path, start, size), is_elsewhere=bool(log_paths))
    return found_size([(start, by_start[start][1]) for start in sorted(by_start)], written)


def _size_of_lone_file(look: _Look, only: LogSegment, *, is_elsewhere: bool) -> int:
    """A blank at its end says it exactly; else its length does, unless it is odd or ends in the middle of a record:
    then the file was cut. 0: unknown. Where the records of a log end that only settings lead to is not looked for."""
    if is_elsewhere:
        return found_size([(only.start, only.size)])
    try:
        at = max(look.survey().log_end - only.start, 0)
        file = look.files.open(only.path, False)
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
    return 0 if is_cut else found_size([(only.start, only.size)])


def _queue_sizes(files: Files, root: Path) -> Iterator[int]:
    top = root / CONSUME_QUEUE
    for topic in _directories_of(files, top):
        for queue in _directories_of(files, top / topic):
            for name, size in _files_of(files, top / topic / queue):
                if parse_segment_name(name) is not None and size and size % ENTRY_BYTES == 0:
                    yield size


def _index_shape(look: _Look) -> IndexShape | None:
    if not any(parse_index_name(name) is not None for name, _ in _files_of(look.files, look.root / INDEX)):
        return None
    try:
        found = look.survey().index_shape()
    except StorePathInvalid:
        return None
    return None if found is None else IndexShape(*found)


def _files_of(files: Files, path: Path) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry in entries_of(files, path) if entry.is_file]


def _directories_of(files: Files, path: Path) -> list[str]:
    return [entry.name for entry in entries_of(files, path) if entry.is_directory]
