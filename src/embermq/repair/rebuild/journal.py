"""The journal of a rebuild: `embermq.rebuild/journal.json`, how far it is and what it is about.

    settings    sizes and levels that decide the bytes of derived files; with others, building begins anew
    log         where the log begins, and what lies at the places that matter: another log is another rebuild
    position    while building: all records below are in the files, which are synced
    slices      of a build in slices (bulk_build.py): where they begin, and what became of those that are done
    ready       building and comparing are over: only the swap is left
    queues, index, inventory    what the proofs will say then
    crc         CRC-32 of this object's JSON with crc 0

One process, which holds the store's lock.
"""

import zlib
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from embermq.errors import StorePathInvalid
from embermq.files import Files, remove_tree
from embermq.store.layout import REBUILD, in_rebuild

WORK = REBUILD
JOURNAL_FILE = "journal.json"


class Family(StrEnum):
    QUEUES = "queues"
    INDEX = "index"


class RebuildJournal(msgspec.Struct, frozen=True, kw_only=True):
    families: list[Family]
    settings: dict[str, Any]
    position: int
    log: dict[str, Any]
    end: int = 0
    ready: bool = False
    queues: dict[str, Any] = {}
    index: dict[str, Any] = {}
    inventory: dict[str, Any] | None = None
    slices: dict[str, Any] = {}
    version: int = 1
    crc: int = 0


def load_journal(files: Files, work: Path) -> RebuildJournal | None:
    """The journal in `work`, or None if there is none that can be read."""
    path = work / JOURNAL_FILE
    if not files.exists(path):
        return None
    try:
        found = msgspec.json.decode(files.read_all(path), type=RebuildJournal)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return None
    return found if found.version == 1 and found.crc == _crc_of(found) else None


def save_journal(files: Files, work: Path, journal: RebuildJournal) -> None:
    """Durable when this returns."""
    files.make_directory(work)
    files.replace_file(work / JOURNAL_FILE, msgspec.json.encode(msgspec.structs.replace(journal, crc=_crc_of(journal))))


def clear_work(files: Files, work: Path) -> None:
    """Remove what a rebuild made below its working directory; StorePathInvalid if anything else lies there."""
    if left := remove_tree(files, work, in_rebuild):
        raise StorePathInvalid(left[0], "is in the way, and was not made by a rebuild; move it away")


def _crc_of(journal: RebuildJournal) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(journal, crc=0)))
