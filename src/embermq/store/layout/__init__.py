"""The directory of a store: its files by name, and the small files of ours that say how far each family is proven.

    directory.py        may it be a store, which process has it open, was it closed cleanly
    state_page.py       embermq.state: how far log, queues and index are proven
    inventory.py        embermq.inventory.json: what a clean close left behind
    deleted_topics.py   embermq.deleted.json: topics that were deleted, and where the log ended then
    kept_offsets.py     embermq.offsets.json: where queues go on whose messages have all left the log
    destroying.py       removing a store
    log_location.py     where the log lies, if broker.conf says elsewhere
    owner.py, fence.py  which process has it open; a writer that has lost it stops
    owned_names.py, misplaced.py   names of files that EmberMQ makes and may remove; files of another store
    state_view.py       the state page as a reader sees it

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.layout.deleted_topics import DELETED_TOPICS_FILE, load_deleted_topics, parse_deleted_topics, to_bytes
from embermq.store.layout.directory import (
    ABORT,
    CHECKPOINT,
    CHECKPOINT_BYTES_MAX,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    FOLDERS,
    INDEX,
    INDEX_PROOF_FILE,
    LOCK,
    QUARANTINE,
    QUARANTINE_REPORT,
    REBUILD,
    check_directory,
    check_lock,
    checkpoint_times,
    mark_running,
    real_path,
    rebuild_beside,
    take_directory,
    was_closed_cleanly,
)
from embermq.store.layout.inventory import INVENTORY_FILE, Inventory, load_inventory, save_inventory
from embermq.store.layout.kept_offsets import KEPT_OFFSETS_FILE, load_kept_offsets, raised_offsets, save_kept_offsets
from embermq.store.layout.log_location import BROKER_CONF, ConfiguredFiles, log_places, places_said
from embermq.store.layout.misplaced import IS_DIRECTORY, clear_misplaced, misplaced_files
from embermq.store.layout.owned_names import DERIVED, in_index, in_new_store, in_one_queue, in_rebuild, is_root_file
from embermq.store.layout.owner import is_ours, lock_holder, must_be_flushed
from embermq.store.layout.state_page import STATE_FILE, load_state_page
from embermq.store.layout.state_view import PageNumbers, PageReader

__all__ = [
    "ABORT",
    "BROKER_CONF",
    "CHECKPOINT",
    "CHECKPOINT_BYTES_MAX",
    "COMMIT_LOG",
    "CONFIG",
    "CONSUME_QUEUE",
    "CONSUME_QUEUE_EXT",
    "DELETED_TOPICS_FILE",
    "ConfiguredFiles",
    "DERIVED",
    "FOLDERS",
    "INDEX",
    "INDEX_PROOF_FILE",
    "INVENTORY_FILE",
    "IS_DIRECTORY",
    "Inventory",
    "KEPT_OFFSETS_FILE",
    "LOCK",
    "PageNumbers",
    "PageReader",
    "QUARANTINE",
    "QUARANTINE_REPORT",
    "REBUILD",
    "STATE_FILE",
    "check_directory",
    "check_lock",
    "checkpoint_times",
    "clear_misplaced",
    "in_index",
    "in_new_store",
    "in_one_queue",
    "in_rebuild",
    "is_ours",
    "is_root_file",
    "load_deleted_topics",
    "load_inventory",
    "load_kept_offsets",
    "load_state_page",
    "lock_holder",
    "log_places",
    "mark_running",
    "misplaced_files",
    "must_be_flushed",
    "parse_deleted_topics",
    "places_said",
    "raised_offsets",
    "real_path",
    "rebuild_beside",
    "save_inventory",
    "save_kept_offsets",
    "take_directory",
    "to_bytes",
    "was_closed_cleanly",
]
