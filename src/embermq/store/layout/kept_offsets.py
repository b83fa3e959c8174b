"""Kept offsets: `embermq.offsets.json`, where queues go on whose messages have all left the log.

A queue offset that was given once must not be given again: a consumer that is past it would never see the
new message. As long as a queue has a record in the log, the log knows how far it was. Before retention deletes
the file with its last record, the next offset is written here. The queue's own files know it too (the last one
is never deleted), but those are derived, and what is derived may be deleted at any time.

    queues   [topic, queue id, next offset] of each such queue
    crc      CRC-32 of this object's JSON with crc 0

A file that cannot be read keeps nothing and is no reason to refuse to start. Retention writes, opening reads.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from embermq.files import Files

KEPT_OFFSETS_FILE = "embermq.offsets.json"
NextOffset = tuple[str, int, int]  # topic, queue id, next offset


class KeptOffsets(msgspec.Struct, frozen=True):
    queues: list[NextOffset]
    version: int = 1
    crc: int = 0


def load_kept_offsets(files: Files, root: Path) -> list[NextOffset]:
    """What was kept for the store at `root`; nothing if there is no file, or none that can be read."""
    path = root / KEPT_OFFSETS_FILE
    if not files.exists(path):
        return []
    try:
        found = msgspec.json.decode(files.read_all(path), type=KeptOffsets)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return []
    return found.queues if found.version == 1 and found.crc == _crc_of(found) else []


def save_kept_offsets(files: Files, root: Path, queues: Iterable[NextOffset]) -> None:
    """Keep these from now on, durably."""
    kept = KeptOffsets(sorted(queues))
    files.replace_file(root / KEPT_OFFSETS_FILE, msgspec.json.encode(msgspec.structs.replace(kept, crc=_crc_of(kept))))


def _crc_of(kept: KeptOffsets) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(kept, crc=0)))


def raised_offsets(known: Iterable[NextOffset], kept: Iterable[NextOffset]) -> list[NextOffset]:
    """`known` next offsets, none below what was kept, and the queues that only `kept` knows."""
    offsets = {(topic, queue_id): next_offset for topic, queue_id, next_offset in known}
    for topic, queue_id, next_offset in kept:
        offsets[topic, queue_id] = max(offsets.get((topic, queue_id), 0), next_offset)
    return [(topic, queue_id, next_offset) for (topic, queue_id), next_offset in offsets.items()]
