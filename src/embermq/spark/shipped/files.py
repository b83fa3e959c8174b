"""Shipped objects as the log files they were: a read-only `Files`, for everything that scans logs.

Only opening log files for reading and looking at them works; nothing else is asked of it. Picklable, with the
address and the parts that are needed and no open handle, so that it goes to tasks within a slice. One thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from embermq.errors import DataLost
from embermq.files import DirectoryEntry, Files, OpenFile
from embermq.format.names import segment_name
from embermq.spark.shipped.manifests import ShippedSegment
from embermq.spark.shipped.places import Place
from embermq.spark.shipped.streams import ObjectStream
from embermq.store.layout import COMMIT_LOG
from embermq.store.log import LogSegment

_STREAMS_MAX = 16
_NOWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class ShippedPiece:
    """Bytes [start, end) of a log file, as one object; places are within the file."""

    start: int
    end: int
    name: str


class ShippedFile:
    """An open log file. Closing it keeps its streams: it is opened again and again."""

    writable = False

    def __init__(self, path: Path, pieces: Sequence[ShippedPiece], files: "ShippedFiles") -> None:
        self.path, self.size = path, pieces[-1].end
        self._pieces, self._files = pieces, files

    def pread(self, count: int, at: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        found = []
        for piece in self._pieces:
            start, end = max(at, piece.start), min(at + count, piece.end)
            if start < end:
                found.append(self._read(piece, end - start, start - piece.start))
        return found[0] if len(found) == 1 else b"".join(found)

    def _read(self, piece: ShippedPiece, count: int, at: int) -> bytes:
        try:
            return self._files.stream(self.path, piece).read(count, at)
        except FileNotFoundError:
            raise DataLost(
                f"{self._files.named(piece.name)}: was shipped and is gone; restore it, or read with a newer manifest"
            ) from None

    def data_end(self, start: int) -> int:
        """Everything was written."""
        return max(start, self.size)

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        """All of it in memory: for small files only."""
        assert not writable
        return memoryview(self.pread(self.size if size is None else size, 0))

    def close(self) -> None:
        pass


class ShippedFiles:
    """The log files of one shipped store below `root`, which is no path on any disk."""

    def __init__(
        self, address: str, root: Path, logs: dict[str, tuple[int, tuple[ShippedPiece, ...]]], ahead_end: int = _NOWHERE
    ) -> None:
        self._address, self._root, self._logs, self._ahead_end = address, root, logs, ahead_end
        self._place: Place | None = None
        self._streams: OrderedDict[str, ObjectStream] = OrderedDict()
        self._read_before = 0

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return ShippedFiles, (self._address, self._root, self._logs, self._ahead_end)

    @classmethod
    def of(cls, address: str, root: Path, segments: Sequence[ShippedSegment]) -> "ShippedFiles":
        logs = {}
        for one in segments:
            pieces = tuple(
                ShippedPiece(part.start - one.start, part.end - one.start, part.object.name) for part in one.parts
            )
            logs[segment_name(one.start)] = one.start, pieces
        return cls(address, root, logs)

    @property
    def as_files(self) -> Files:
        return cast(Files, self)

    def only(self, segments: Sequence[LogSegment], ahead_end: int) -> Files:
        """The same for some log files, with nothing fetched ahead behind a place in the log."""
        logs = {one.path.name: self._logs[one.path.name] for one in segments}
        return ShippedFiles(self._address, self._root, logs, ahead_end).as_files

    @property
    def place(self) -> Place:
        if self._place is None:
            self._place = Place(self._address)
        return self._place

    def named(self, name: str) -> str:
        return self.place.named(name)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        folder = self._root / COMMIT_LOG
        return tuple(LogSegment(folder / name, start, pieces[-1].end) for name, (start, pieces) in self._logs.items())

    @property
    def bytes_read(self) -> int:
        """How many bytes came over the wire."""
        return self._read_before + sum(stream.bytes_read for stream in self._streams.values())

    def open(self, path: Path, writable: bool) -> OpenFile:
        assert not writable
        found = self._logs.get(path.name) if path.parent == self._root / COMMIT_LOG else None
        if found is None:
            raise FileNotFoundError(f"{path} was not shipped")
        if len(found[1]) == 1:
            self.stream(path, found[1][0]).open()  # That it is gone is known now, where it is asked for.
        return cast(OpenFile, ShippedFile(path, found[1], self))

    def exists(self, path: Path) -> bool:
        """Log files only: no queue files, no state page, and no mark of a crash either."""
        return path in (self._root, self._root / COMMIT_LOG) or self._is_log(path)

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        if path != self._root / COMMIT_LOG:
            raise FileNotFoundError(f"{path} was not shipped")
        return [DirectoryEntry(name, pieces[-1].end, True, 0) for name, (_, pieces) in self._logs.items()]

    def _is_log(self, path: Path) -> bool:
        return path.parent == self._root / COMMIT_LOG and path.name in self._logs

    def stream(self, path: Path, piece: ShippedPiece) -> ObjectStream:
        """The stream of a piece; those not used for a while are closed."""
        stream = self._streams.pop(piece.name, None)
        if stream is None:
            ahead_end = self._ahead_end - self._logs[path.name][0] - piece.start
            stream = ObjectStream(self.place, piece.name, piece.end - piece.start, max(0, ahead_end))
        self._streams[piece.name] = stream
        if len(self._streams) > _STREAMS_MAX:
            _, oldest = self._streams.popitem(last=False)
            self._read_before += oldest.bytes_read
            oldest.close()
        return stream
