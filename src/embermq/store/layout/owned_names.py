"""Which names this store makes below its directories: what may be removed with a whole directory, and nothing else.

Each function answers for a path below one kind of directory, as `remove_tree` asks (files/trees.py). A name that it
does not know was put there by the operator or another program. Pure.
"""

import re
from collections.abc import Container

from embermq.files import Ours, PathKind
from embermq.format.names import parse_index_name, parse_queue_id, parse_segment_name
from embermq.store.layout import directory

Parts = tuple[str, ...]

_JOURNAL_FILES = frozenset(("journal.json", "journal.json.tmp", "turn"))
_KEY_FILE = re.compile(r"[0-9]{8}")
_PART_FILE = re.compile(r"[0-9]{17}-[0-9a-f]{8}")
_ODD = re.compile(r"odd-[0-9a-f]+")
# In the root of a store: RocketMQ's and ours.
_ROOT_FILE = re.compile(r"abort|lock|checkpoint|embermq\.[a-z0-9.]+")


def in_queues(parts: Parts, kind: PathKind) -> bool:
    """Below consumequeue/ and consumequeue_ext/: topic, queue id, file."""
    if len(parts) == 3:
        return kind is PathKind.FILE and parse_segment_name(parts[2]) is not None
    return kind is PathKind.DIRECTORY and (len(parts) == 1 or parse_queue_id(parts[1]) is not None)


def in_one_queue(parts: Parts, kind: PathKind) -> bool:
    """Below the directory of one queue."""
    return len(parts) == 1 and kind is PathKind.FILE and parse_segment_name(parts[0]) is not None


def in_index(parts: Parts, kind: PathKind) -> bool:
    """Below index/."""
    return len(parts) == 1 and kind is PathKind.FILE and parse_index_name(parts[0]) is not None


# The directories that hold derived files, and what is ours below each.
DERIVED = {
    directory.CONSUME_QUEUE: in_queues,
    directory.CONSUME_QUEUE_EXT: in_queues,
    directory.INDEX: in_index,
}


def in_derived(parts: Parts, kind: PathKind) -> bool:
    """Below a directory with nothing but derived files: consumequeue/, consumequeue_ext/, index/."""
    if parts[0] not in DERIVED:
        return False
    return kind is PathKind.DIRECTORY if len(parts) == 1 else DERIVED[parts[0]](parts[1:], kind)


def in_rebuild(parts: Parts, kind: PathKind) -> bool:
    """Below the working directory of a rebuild (rebuild.py, bulk.py)."""
    first, below = parts[0], parts[1:]
    if kind is PathKind.FILE and not below:
        return first in _JOURNAL_FILES
    if first in ("new", "old"):
        return in_derived(below, kind) if below else kind is PathKind.DIRECTORY
    if first in ("keys", "parts"):
        name = _KEY_FILE if first == "keys" else _PART_FILE
        return kind is PathKind.DIRECTORY if not below else len(below) == 1 and name.fullmatch(below[0]) is not None
    return _ODD.fullmatch(first) is not None and (in_rebuild(below, kind) if below else kind is PathKind.DIRECTORY)


def in_log(parts: Parts, kind: PathKind) -> bool:
    """Below commitlog/."""
    return len(parts) == 1 and kind is PathKind.FILE and parse_segment_name(parts[0]) is not None


def in_quarantine(parts: Parts, kind: PathKind) -> bool:
    """Below quarantine/."""
    name = parts[0].removesuffix(".tmp")
    return len(parts) == 1 and kind is PathKind.FILE and (name.endswith(".bad") or name == "report.jsonl")


def is_root_file(name: str) -> bool:
    """In the root of a store."""
    return _ROOT_FILE.fullmatch(name) is not None


def in_new_store(config_names: Container[str]) -> Ours:
    """Below a store that is being made with these files in its config/ (salvage.py)."""
    folders = {directory.COMMIT_LOG: in_log, directory.QUARANTINE: in_quarantine, **DERIVED}

    def ours(parts: Parts, kind: PathKind) -> bool:
        first, below = parts[0], parts[1:]
        if not below and kind is PathKind.FILE:
            return is_root_file(first)
        if first == directory.CONFIG:
            name = below[0].removesuffix(".tmp") if below else ""
            return kind is PathKind.FILE and len(below) == 1 and name in config_names if below else True
        if first not in folders:
            return False
        return folders[first](below, kind) if below else True

    return ours
