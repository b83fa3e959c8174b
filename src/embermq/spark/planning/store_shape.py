"""What the files of a store say about the settings it was made with.

Opening a store with other sizes of files makes its queues and index again in those sizes, and a broker with the
old settings then refuses to start. A writer without settings therefore takes the sizes it finds. Looks, never
writes. Driver side, without the store's lock.
"""

from collections import Counter
from pathlib import Path

from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.files import Files, Segments
from embermq.format.index import index_file_bytes
from embermq.format.names import parse_segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.settings import StoreSettings
from embermq.store.index import load_index_proof
from embermq.store.layout import COMMIT_LOG, CONSUME_QUEUE, INDEX, check_directory, load_inventory

_LOOKED_AT_MAX = 16


def fit_to_files(settings: StoreSettings, said: frozenset[str], root: Path, files: Files) -> StoreSettings:
    """`settings` with the sizes of the files in `root`; OptionInvalid if `said` names other ones."""
    check_directory(files, root, read_only=False, has_log_elsewhere=bool(settings.commit_log_paths))
    try:
        settings = settings.replace(segment_bytes=_log_file_bytes(settings, root, files))
        queue_bytes = _queue_file_bytes(root / CONSUME_QUEUE, files)
        if queue_bytes is not None and queue_bytes != settings.queue_file_bytes:
            if "queue_file_bytes" in said:
                raise OptionInvalid(
                    "settings.mappedFileSizeConsumeQueue",
                    f"the queue files in {root} have {queue_bytes} bytes",
                    value=settings.queue_file_bytes,
                )
            settings = settings.replace(queue_file_bytes=queue_bytes)
        return _with_index_sizes(settings, said, root, files)
    except PermissionError as problem:
        raise StorePathInvalid(Path(str(problem.filename or root)), "no permission to read it") from None


def _log_file_bytes(settings: StoreSettings, root: Path, files: Files) -> int:
    """The store adopts the size of log files by itself; this is for limits that follow from it."""
    paths = settings.commit_log_paths or (root / COMMIT_LOG,)
    segments = Segments(
        list(paths),
        files,
        settings.segment_bytes,
        read_only=True,
        read_only_directories=settings.commit_log_read_only_paths,
    )
    try:
        segments.load()
        return segments.segment_bytes
    finally:
        segments.close()


def _queue_file_bytes(queues: Path, files: Files) -> int | None:
    """The length most of the queue files have; one of them may be cut short."""
    sizes = Counter(
        entry.size
        for topic in _directories(queues, files)
        for queue in _directories(topic, files)
        for entry in files.list_directory(queue)
        if entry.is_file and entry.size % ENTRY_BYTES == 0 and parse_segment_name(entry.name) is not None
    )
    del sizes[0]
    return sizes.most_common(1)[0][0] if sizes else None


def _directories(path: Path, files: Files) -> list[Path]:
    """Some of the directories in `path`: enough to see what is usual."""
    if not files.exists(path):
        return []
    return [path / entry.name for entry in files.list_directory(path) if entry.is_directory][:_LOOKED_AT_MAX]


def _with_index_sizes(settings: StoreSettings, said: frozenset[str], root: Path, files: Files) -> StoreSettings:
    index = root / INDEX
    if not settings.index or not files.exists(index):
        return settings
    sizes = [entry.size for entry in files.list_directory(index) if entry.is_file and entry.size]
    if not sizes or sizes[0] == index_file_bytes(settings.index_slots_max, settings.index_entries_max):
        return settings
    known = _known_index_sizes(root, files)
    if known is None or index_file_bytes(*known) != sizes[0] or said & {"index_slots_max", "index_entries_max"}:
        raise OptionInvalid(
            "settings.maxHashSlotNum",
            f"the index files in {root} have {sizes[0]:,} bytes, which {settings.index_slots_max:,} slots and"
            f" {settings.index_entries_max:,} entries do not make; give maxHashSlotNum and maxIndexNum as in the"
            " broker.conf they were made with",
        )
    return settings.replace(index_slots_max=known[0], index_entries_max=known[1])


def _known_index_sizes(root: Path, files: Files) -> tuple[int, int] | None:
    """Slots and entries as an earlier run of ours wrote them down."""
    proof, inventory = load_index_proof(files, root), load_inventory(files, root)
    for state in (proof.state if proof is not None else {}, inventory.index if inventory is not None else {}):
        if isinstance(state.get("slots_max"), int) and isinstance(state.get("entries_max"), int):
            return state["slots_max"], state["entries_max"]
    return None
