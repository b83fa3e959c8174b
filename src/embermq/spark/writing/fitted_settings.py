"""The settings of a writer, with the sizes of the files that are there.

A writer without settings takes the sizes it finds (inspect/store_shape.py); one whose settings contradict the files is
refused, since opening the store would make its queues and index again. Looks, never writes. Driver side, without the
store's lock.
"""

from dataclasses import replace
from pathlib import Path

from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.files import Files, entries_of
from embermq.inspect import StoreShape, found_shape
from embermq.settings import StoreSettings
from embermq.store.layout import INDEX, check_directory


def fit_to_files(settings: StoreSettings, said: frozenset[str], root: Path, files: Files) -> StoreSettings:
    """`settings` with the sizes of the files in `root`; OptionInvalid if `said` names other ones."""
    check_directory(files, root, read_only=False, has_log_elsewhere=bool(settings.commit_log_paths))
    log_paths = (*settings.commit_log_paths, *settings.commit_log_read_only_paths)
    try:
        found = found_shape(files, root, log_paths=log_paths)
        wanted = StoreShape.of(settings)
        if "queue_file_bytes" in said and found.queue_file_bytes not in (None, wanted.queue_file_bytes):
            raise OptionInvalid(
                "settings.mappedFileSizeConsumeQueue",
                f"the queue files in {root} have {found.queue_file_bytes} bytes",
                value=settings.queue_file_bytes,
            )
        if not settings.index:
            found = replace(found, index=None)
        elif found.index is None or said & {"index_slots_max", "index_entries_max"}:
            _check_index_files(settings, wanted, root, files)
            found = replace(found, index=None)
    except PermissionError as problem:
        raise StorePathInvalid(Path(str(problem.filename or root)), "no permission to read it") from None
    return found.applied_to(settings)


def _check_index_files(settings: StoreSettings, wanted: StoreShape, root: Path, files: Files) -> None:
    """Index files must have the length that the settings make."""
    sizes = [entry.size for entry in entries_of(files, root / INDEX) if entry.is_file and entry.size]
    if sizes and (wanted.index is None or sizes[0] != wanted.index.file_bytes):
        raise OptionInvalid(
            "settings.maxHashSlotNum",
            f"the index files in {root} have {sizes[0]:,} bytes, which {settings.index_slots_max:,} slots and"
            f" {settings.index_entries_max:,} entries do not make; give maxHashSlotNum and maxIndexNum as in the"
            " broker.conf they were made with",
        )
