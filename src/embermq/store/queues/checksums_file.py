"""Checksums of full queue files: `embermq.queues.json`, compared in the background after each opening.

A fetch checks what a queue entry leads to, but not its tag code, and a queue file has no checksum of its own. So the
CRC-32 of each full file is kept here: taken when this process filled it, or when a round of the scrub found all entries
right. With each goes the place that its first entry leads to, so that a file of a topic that was deleted and used again
is not taken for the old one.

    files    [path below consumequeue/, place of the first entry, CRC-32]
    crc      CRC-32 of this object's JSON with crc 0

A file that cannot be read keeps nothing. The scrub's thread, or the one that closes the store.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from embermq.files import Files
from embermq.format.names import segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.store.layout.directory import QUEUE_CHECKSUMS_FILE
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.consume_queues import ConsumeQueues


class _Kept(msgspec.Struct, frozen=True):
    files: list[tuple[str, int, int]]
    version: int = 1
    crc: int = 0


class FullFile(NamedTuple):
    """A queue file whose entries do not change any more: those from queue offset `start` on."""

    queue: ConsumeQueue
    start: int

    @property
    def name(self) -> str:
        return f"{self.queue.topic}/{self.queue.queue_id}/{segment_name(self.start * ENTRY_BYTES)}"


class QueueChecksums:
    """The checksums of one running store's full queue files."""

    def __init__(self, files: Files, root: Path, queues: ConsumeQueues) -> None:
        self._files, self._path, self._queues = files, root / QUEUE_CHECKSUMS_FILE, queues
        self._per_file = queues.file_bytes // ENTRY_BYTES
        here = {file.name for file in self._full_files()}
        self._kept = {name: rest for name, rest in self._load().items() if name in here}
        self._doubtful = here - self._kept.keys()  # Full before this process began, and never compared.

    def _load(self) -> dict[str, tuple[int, int]]:
        try:
            if not self._files.exists(self._path):
                return {}
            found = msgspec.json.decode(self._files.read_all(self._path), type=_Kept)
        except (msgspec.DecodeError, UnicodeDecodeError, OSError):
            return {}
        if found.version != 1 or found.crc != _crc_of(found):
            return {}
        return {name: (place, crc) for name, place, crc in found.files}

    def _full_files(self) -> Iterator[FullFile]:
        for queue in self._queues.all():
            written = queue.written_offset
            for start in sorted(queue.file_starts.copy()):
                if start + self._per_file <= written:
                    yield FullFile(queue, start)

    def kept_files(self) -> list[FullFile]:
        """Those that have a checksum."""
        return [file for file in self._full_files() if file.name in self._kept]

    def is_right(self, file: FullFile) -> bool:
        """Is a file what it was? So is one that is gone, or another one of its name."""
        known, now = self._kept.get(file.name), self._sum(file)
        return known is None or now is None or now == known or (now[0] != known[0] and now[0] > 0)

    def _sum(self, file: FullFile) -> tuple[int, int] | None:
        """Place of the first entry, and CRC-32; None if the file is gone."""
        entries = file.queue.entries_on_disk(file.start, self._per_file)
        if len(entries) < self._per_file:
            return None
        return int(entries[0]["physical_offset"]), zlib.crc32(entries.tobytes())

    def take(self, *, all_compared: bool = False) -> None:
        """Take the checksums that are not there yet, of files that this process filled, or of all; and write them down.
        Call it when queues are synced."""
        if all_compared:
            self._doubtful = set()
        now: dict[str, tuple[int, int]] = {}
        for file in self._full_files():
            name = file.name
            known = self._kept.get(name)
            if known is None and name not in self._doubtful:
                known = self._sum(file)
            if known is not None:
                now[name] = known
        if now != self._kept:
            self._kept = now
            kept = _Kept([(name, *rest) for name, rest in sorted(now.items())])
            kept = msgspec.structs.replace(kept, crc=_crc_of(kept))
            self._files.replace_file(self._path, msgspec.json.encode(kept))


def _crc_of(kept: _Kept) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(kept, crc=0)))
