"""The note of deleted topics: `embermq.deleted.json`, which topics were deleted and where the log ended then.

The log keeps a deleted topic's records until their files go (topic_deletion.py). A start that walks over them makes
its queues again, because a walk knows nothing of deletions; `settle` then removes those that have nothing newer.

    topics   [topic, where the log ended] of each deleted topic; dropped once the log begins above that
    crc      CRC-32 of this object's JSON with crc 0

A file that cannot be read is as none: then a deleted topic may come back with what is still in the log. Deletion
writes, opening reads. Its bytes also go with a copy of the log to other places (spark/shipped/deletions.py).
"""

import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from embermq.files import Files

DELETED_TOPICS_FILE = "embermq.deleted.json"


class DeletedTopics(msgspec.Struct, frozen=True):
    topics: list[tuple[str, int]]
    version: int = 1
    crc: int = 0


def load_deleted_topics(files: Files, root: Path) -> dict[str, int]:
    """Deleted topics of the store at `root`, and where the log ended then; nothing if that cannot be read."""
    path = root / DELETED_TOPICS_FILE
    if not files.exists(path):
        return {}
    try:
        return parse_deleted_topics(files.read_all(path)) or {}
    except OSError:
        return {}


def save_deleted_topics(files: Files, root: Path, deleted: Mapping[str, int]) -> None:
    files.replace_file(root / DELETED_TOPICS_FILE, to_bytes(deleted))


def to_bytes(deleted: Mapping[str, int]) -> bytes:
    """The file. The same topics and places give the same bytes."""
    note = DeletedTopics(sorted(deleted.items()))
    return msgspec.json.encode(msgspec.structs.replace(note, crc=_crc_of(note)))


def parse_deleted_topics(data: bytes) -> dict[str, int] | None:
    """None if this is no such file, or a damaged one."""
    try:
        found = msgspec.json.decode(data, type=DeletedTopics)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return dict(found.topics) if found.version == 1 and found.crc == _crc_of(found) else None


def _crc_of(note: DeletedTopics) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(note, crc=0)))


def within(files: Files, root: Path, log_end: int, *, read_only: bool) -> dict[str, int]:
    """The note, with no place above the end of the log: one that lost its end goes on there, and what comes is of the
    topic's new incarnation."""
    noted = load_deleted_topics(files, root)
    deleted = {topic: min(end, log_end) for topic, end in noted.items()}
    if deleted != noted and not read_only:
        save_deleted_topics(files, root, deleted)
    return deleted
