"""The journal of commits: small files in the store that say what Spark wrote, and what it was about to write.

    embermq.commits/append.json        the one append that is under way: what, and where in the log it began
    embermq.commits/<write>.json       the newest batch of a write that is in the store as a whole; of a stream for
                                       good, of a batch job without a name only until it has cleared up

Both are replaced durably (temporary file, fsync, rename, directory fsync), so after a crash each is the old or the
new one. `append.json` is written before the first record of a batch and removed after the last is durable and noted
in the other one. Written only by the process that has the store's lock; read by any process. A damaged one is an error
and never a reason to forget.
"""

import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from embermq.errors import StoreError
from embermq.files import Files
from embermq.spark.writing.staging import StagedFile

DIRECTORY = "embermq.commits"
APPEND = "append.json"


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is decided: it will be in the store as a whole."""

    write: str
    batch: int
    label: str  # for people: query id, or the name of a batch write
    staging: str  # where the files are; relative to the store if it lies in it
    files: list[StagedFile]
    start: int  # physical offset from which on records of this batch were appended
    done: int  # records of this batch that lie before `start`
    version: int = 1
    crc: int = 0  # CRC-32 of this object's JSON with crc 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """The newest batch of a write that is in the store; so are all before it."""

    write: str
    batch: int
    label: str
    rows: int
    version: int = 1
    crc: int = 0


Entry = TypeVar("Entry", Append, Committed)


class CommitJournal:
    """The journal of one store."""

    def __init__(self, files: Files, store: Path) -> None:
        self._files, self._store = files, store
        self.directory = store / DIRECTORY
        self.append_path = self.directory / APPEND

    def load_append(self) -> Append | None:
        """The append that is under way, or was when its process died."""
        return self._load(self.append_path, Append)

    def save_append(self, append: Append) -> None:
        self._files.make_directory(self.directory)
        self._files.replace_file(self.append_path, _encode(append))

    def drop_append(self) -> None:
        self._files.remove(self.append_path)
        self._files.sync_directory(self.directory)

    def is_committed(self, write: str, batch: int) -> bool:
        """Whether this batch of this write is in the store as a whole."""
        found = self._load(self._path(write), Committed)
        return found is not None and found.batch >= batch

    def save_committed(self, committed: Committed) -> None:
        self._files.replace_file(self._path(committed.write), _encode(committed))

    def forget(self, write: str) -> None:
        """Remove the note of a write that cannot be repeated."""
        try:
            self._files.remove(self._path(write))
        except FileNotFoundError:
            pass

    def forget_old(self, prefix: str, before_ms: int) -> None:
        """Remove notes of such writes whose process died before it could."""
        if not self._files.exists(self.directory):
            return
        for entry in self._files.list_directory(self.directory):
            is_note = entry.name.startswith(prefix) and entry.name.endswith(".json") and not entry.is_link
            if is_note and entry.mtime_ns < before_ms * 1_000_000:
                self.forget(entry.name.removesuffix(".json"))

    def staging_text(self, staging: Path) -> str:
        return str(staging.relative_to(self._store) if staging.is_relative_to(self._store) else staging)

    def staging_path(self, append: Append) -> Path:
        return self._store / append.staging  # An absolute one stays what it is.

    def _path(self, write: str) -> Path:
        assert "/" not in write, write
        return self.directory / f"{write}.json"

    def _load(self, path: Path, kind: type[Entry]) -> Entry | None:
        try:
            data = self._files.read_all(path)
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreError(f"{path} is damaged: it cannot be known which rows were written") from None
        if found.version != 1:
            raise StoreError(f"{path} was written by a newer version; write with that one")
        if found.crc != zlib.crc32(msgspec.json.encode(msgspec.structs.replace(found, crc=0))):
            raise StoreError(f"{path} is damaged: it cannot be known which rows were written")
        return found


def _encode(entry: Append | Committed) -> bytes:
    crc = zlib.crc32(msgspec.json.encode(msgspec.structs.replace(entry, crc=0)))
    return msgspec.json.encode(msgspec.structs.replace(entry, crc=crc))
