"""What of a log is to be shipped, piece by piece, and shipping a piece: upload, take checksums, read back.

`find_pieces` is pure, on the driver. `ship_piece` runs in a task, in bounded memory; done twice it writes the same
object under the same name. What goes wrong there comes back as a value: an exception would reach the driver as a page
of a call stack.
"""

import hashlib
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from embermq.errors import EmberError, PlaceUnavailable, StorePathInvalid
from embermq.format.names import segment_name
from embermq.spark.shipped.key_lists import KeyListMaker
from embermq.spark.shipped.manifests import ShippedObject, ShippedPart, ShippedSegment
from embermq.spark.shipped.places import HALF, Place
from embermq.spark.shipped.summaries import STRETCH_BYTES, SummaryMaker, to_bytes
from embermq.store.layout import COMMIT_LOG
from embermq.store.log import MISSING, DamagedRange, LogSegment, scan_segments

TAIL = "tail"
SUMMARIES = "summaries"
CONFIG = "config"
SUMMARY_SUFFIX, KEYS_SUFFIX = ".parquet", ".keys"
CHUNK_BYTES = 4 << 20
_SHIPPED = re.compile(
    rf"{TAIL}/\d{{20}}/\d{{20}}-\d{{20}}(-cut\d+)?({re.escape(SUMMARY_SUFFIX)}|{re.escape(KEYS_SUFFIX)})?"
    rf"|{CONFIG}/[0-9a-f]{{16}}-[A-Za-z.]+"
)
# Every part of a tail is a round trip for who reads it, and every part that is shipped again costs once more. So there
# are sizes of parts, each 8 times the one below, and where 8 of a size or smaller follow one another, they become one:
# a byte is shipped about once for each size, and of a log file of 1 GiB there are 42 parts at most.
TIER_PARTS = 8
TIER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ShipPiece:
    """[start, end) of the log, from one log file, to one object."""

    target: str  # an address
    path: Path
    segment_start: int
    file_bytes: int
    start: int
    end: int
    is_sealed: bool
    name: str
    summary_name: str
    stretch_bytes: int = STRETCH_BYTES

    @property
    def keys_name(self) -> str:
        return self.summary_name.removesuffix(SUMMARY_SUFFIX) + KEYS_SUFFIX


@dataclass(frozen=True, slots=True)
class PieceShipped:
    piece: ShipPiece
    part: ShippedPart


@dataclass(frozen=True, slots=True)
class FailedPiece:
    """An error of ours, by the name of its class."""

    kind: str
    text: str


def find_pieces(
    segments: Sequence[LogSegment],
    shipped: Sequence[ShippedSegment],
    log_end: int,
    target: str,
    *,
    tail: bool,
    cuts: int = 0,
    stretch_bytes: int = STRETCH_BYTES,
) -> list[ShipPiece]:
    """What is not shipped yet: whole log files; with `tail` also what was added to the one that is written to."""
    known = {one.start: one for one in shipped}
    again = f"-cut{cuts}" if cuts else ""  # What another manifest names is never written again.
    pieces = []
    for segment in segments:
        before = known.get(segment.start)
        if segment.start >= log_end or (before is not None and before.is_sealed):
            continue
        file = segment_name(segment.start)
        if segment.end <= log_end:
            name, summary = f"{COMMIT_LOG}/{file}{again}", f"{SUMMARIES}/{file}{again}{SUMMARY_SUFFIX}"
            start, end, is_sealed = segment.start, segment.end, True
        elif tail:
            start = tail_start([] if before is None else before.parts, segment.start, log_end)
            end, is_sealed = log_end, False
            if before is not None and before.end >= end:
                continue
            name = f"{TAIL}/{file}/{start:020d}-{end:020d}{again}"
            summary = f"{name}{SUMMARY_SUFFIX}"
        else:
            continue
        pieces.append(
            ShipPiece(
                target, segment.path, segment.start, segment.size, start, end, is_sealed, name, summary, stretch_bytes
            )
        )
    return pieces


def is_left_over(name: str) -> bool:
    """Has an object a name that shipping gives to parts of a tail and to small files? Others are not ours to remove."""
    return _SHIPPED.fullmatch(name.removesuffix(HALF)) is not None


def tail_start(parts: Sequence[ShippedPart], segment_start: int, end: int) -> int:
    """Where the next part of a tail begins, that is to end at `end`: after the others, or where some of them begin,
    that it takes the place of."""
    kept = len(parts)
    while True:
        start = parts[kept - 1].end if kept else segment_start
        low = kept
        while low and tier_of(parts[low - 1].end - parts[low - 1].start) <= tier_of(end - start):
            low -= 1
        if kept - low < TIER_PARTS - 1:
            return start
        kept = low


def tier_of(size: int) -> int:
    """0 for up to 64 KiB, 1 for up to 8 times that, and so on."""
    tier = 0
    while size > TIER_BYTES:
        size, tier = size // TIER_PARTS, tier + 1
    return tier


def ship_piece(piece: ShipPiece) -> PieceShipped | FailedPiece:
    """In a task: upload a piece and its summary, and read both back."""
    try:
        return PieceShipped(piece, _ship(piece))
    except EmberError as problem:
        return FailedPiece(type(problem).__name__, str(problem))


def _ship(piece: ShipPiece) -> ShippedPart:
    place = Place(piece.target)
    digest, size = hashlib.sha256(), piece.end - piece.start
    place.write(piece.name, _summed(_chunks(piece), digest))
    summary, keys = _summarise(piece)
    beside = [_put(place, piece.summary_name, to_bytes(summary.table()))]
    if keys is not None:
        beside.append(_put(place, piece.keys_name, keys))
    _check(place, piece.name, size, digest.hexdigest())
    for one in beside:
        _check(place, one.name, one.bytes, one.sha256)
    return ShippedPart(
        piece.start,
        piece.end,
        ShippedObject(piece.name, size, digest.hexdigest()),
        beside[0],
        summary.records,
        summary.damaged_bytes,
        *summary.times_ms,
        beside[1] if keys is not None else None,
    )


def _put(place: Place, name: str, data: bytes) -> ShippedObject:
    place.write(name, [data])
    return ShippedObject(name, len(data), hashlib.sha256(data).hexdigest())


def _chunks(piece: ShipPiece) -> Iterator[bytes]:
    """The bytes of a piece, a few MiB at a time."""
    at, end = piece.start - piece.segment_start, piece.end - piece.segment_start
    try:
        with piece.path.open("rb", buffering=0) as file:
            file.seek(at)
            while at < end:
                chunk = file.read(min(CHUNK_BYTES, end - at))
                if not chunk:
                    raise PlaceUnavailable(piece.path, "became shorter while it was shipped; run it again")
                yield chunk
                at += len(chunk)
    except FileNotFoundError:
        raise _gone(piece) from None
    except PermissionError:
        raise StorePathInvalid(piece.path, "no permission to read it; check its owner and mode") from None


def _gone(piece: ShipPiece) -> PlaceUnavailable:
    return PlaceUnavailable(
        piece.path,
        f"is not there, as the worker on {socket.gethostname()} sees it: deleted by retention just now (run it again),"
        " or not mounted at the same path on every machine",
    )


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def _summed(chunks: Iterator[bytes], digest: _Digest) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _summarise(piece: ShipPiece) -> tuple[SummaryMaker, bytes | None]:
    """What lies where, and the list of keys, if they are not too many."""
    segment = LogSegment(piece.path, piece.segment_start, piece.file_bytes)
    maker, keys = SummaryMaker(piece.start, piece.end, piece.stretch_bytes), KeyListMaker(piece.start, piece.end)
    for scanned in scan_segments([segment], piece.start, piece.end):
        if isinstance(scanned, DamagedRange) and scanned.reason == MISSING:
            raise _gone(piece)
        maker.take(scanned)
        if not isinstance(scanned, DamagedRange):
            keys.take(scanned)
    return maker, keys.to_bytes()


def _check(place: Place, name: str, size: int, sha256: str) -> None:
    """StorePathInvalid unless the object is what was written."""
    wrong = PlaceUnavailable(place.named(name), "is not what was written, read back it differs; try again")
    try:
        if place.size(name) != size:
            raise wrong
        digest = hashlib.sha256()
        with place.open(name) as file:
            at = 0
            while at < size:
                chunk = place.read_at(file, name, min(CHUNK_BYTES, size - at), at)
                if not chunk:
                    raise wrong
                digest.update(chunk)
                at += len(chunk)
    except FileNotFoundError:
        raise wrong from None
    if digest.hexdigest() != sha256:
        raise wrong
