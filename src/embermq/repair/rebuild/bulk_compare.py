"""Comparing what was built with the log, in pieces of work that others do; a reader for verify.py.

Each piece of work has a stretch of the log and reads it as `verify` does (store/compare/log_pieces.py), against the
files that were made aside; another one looks at the links of an index file. What comes back is small, and is put
together here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from embermq.columns import QueueName
from embermq.files import Files, RealFiles
from embermq.format.index import HEADER_BYTES, decode_header
from embermq.repair.rebuild.bulk import Site
from embermq.store.compare import CheckedPiece, Cut, IndexStream, LogPieces, VerifiedQueueFiles
from embermq.store.index import CheckedIndexFile, LinkFlaw, link_flaws
from embermq.store.layout import INDEX
from embermq.store.log import LogSegment

if TYPE_CHECKING:
    from embermq.repair.rebuild.bulk_build import PieceWorkers

CUT_BYTES = 32 << 20
_STRETCHES_PER_CORE = 2


@dataclass(frozen=True, slots=True)
class ComparedStretch:
    """Neighbouring parts of the log [start, end), for one piece of work."""

    segments: tuple[LogSegment, ...]
    start: int
    end: int
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one index file."""

    name: str


@dataclass(frozen=True, slots=True)
class Compared:
    """What came out of one piece of work."""

    links: list[LinkFlaw] = field(default_factory=list)
    pieces: list[CheckedPiece | None] = field(default_factory=list)  # of each cut


class PiecesElsewhere:
    """Reads [start, end) of the log; a LogReader of `verify`."""

    def __init__(
        self,
        site: Site,
        workers: "PieceWorkers",
        segments: Sequence[LogSegment],
        start: int,
        end: int,
        files: Files,
        queues: VerifiedQueueFiles,
        index: IndexStream,
    ) -> None:
        self._site, self._workers, self._index = site, workers, index
        self._segments, self._start, self._end = tuple(segments), start, end
        self._here = LogPieces(segments, start, end, files, queues, index)
        self._names: set[QueueName] = set()
        self.links: dict[str, list[LinkFlaw]] = {}

    @property
    def names(self) -> Iterable[QueueName]:
        return self._names

    def __iter__(self) -> Iterator[CheckedPiece]:
        links = [Links(part.name) for part in self._index.parts]
        found = self._workers(partial(compare, self._site), [*links, *self._stretches()], "comparing")
        pieces = [piece for one in found for piece in one.pieces]
        self.links = {link.name: one.links for link, one in zip(links, found, strict=False)}
        cuts = [cut for stretch in self._stretches() for cut in stretch.cuts]
        for piece in self._here.chained((cut, partial(_given, one)) for cut, one in zip(cuts, pieces, strict=True)):
            self._names.update(piece.names)
            yield piece

    def _stretches(self) -> list[ComparedStretch]:
        cuts = list(self._cuts())
        count = max(1, -(-len(cuts) // (self._workers.cores * _STRETCHES_PER_CORE)))
        found = []
        for at in range(0, len(cuts), count):
            some = tuple(cuts[at : at + count])
            segments = tuple(dict.fromkeys(cut.segment for cut in some))
            found.append(ComparedStretch(segments, self._start, self._end, some))
        return found

    def _cuts(self) -> Iterator[Cut]:
        for segment in self._segments:
            end = min(segment.end, self._end)
            for at in range(max(segment.start, self._start), end, CUT_BYTES):
                yield Cut(segment, at, min(at + CUT_BYTES, end))


def _given(piece: CheckedPiece | None) -> CheckedPiece | None:
    return piece


def compare(site: Site, piece: Links | ComparedStretch) -> Compared:
    """Any process."""
    files = RealFiles()
    if isinstance(piece, Links):
        (part,) = _index_parts(site, files, [piece.name])
        return Compared(links=link_flaws(part))
    queues = VerifiedQueueFiles(site.target, files, site.queue_file_bytes, piece.start, store=site.root)
    queues.load()
    index = IndexStream(_index_parts(site, files, _index_names(site, files)))
    reader = LogPieces(piece.segments, piece.start, piece.end, files, queues, index)
    try:
        return Compared(pieces=[reader.read_cut(cut) for cut in piece.cuts])
    finally:
        queues.close()


def _index_names(site: Site, files: Files) -> list[str]:
    path = site.target / INDEX
    return [entry.name for entry in files.list_directory(path)] if files.exists(path) else []


def _index_parts(site: Site, files: Files, names: Iterable[str]) -> list[CheckedIndexFile]:
    parts = []
    for name in sorted(names):
        file = files.open(site.target / INDEX / name, False)
        header = decode_header(file.pread(HEADER_BYTES, 0))
        parts.append(
            CheckedIndexFile(name, file, header, site.settings.index_slots_max, site.settings.index_entries_max)
        )
    return parts
