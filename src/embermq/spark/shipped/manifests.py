"""What a shipped store says about itself: a head, written first, and numbered manifests, the newest of which counts.

A manifest is complete by itself and never changed: object stores can neither rename nor append. It is written after
everything it names was read back. `crc` guards against one edited by hand: of its JSON with crc 0. Objects that a
manifest no longer names are kept for a day, for readers that began with an older one; where there are many, as behind
one who ships all the time, for an hour. Values, and their JSON.
"""

import re
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from embermq.errors import StoreError
from embermq.spark.shipped.places import Place

VERSION = 2  # 1: parts have no lists of keys. Both are read.
_KNOWN = (1, 2)
HEAD = "embermq-shipped.json"
MANIFESTS = "manifests"
KEEP_MS = 24 * 3_600_000
KEEP_AT_LEAST_MS = 3_600_000
KEEP_MANY = 1_000

_NAME = re.compile(rf"{MANIFESTS}/(\d{{20}})\.json")


class ShippedObject(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class ShippedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log from `start` to `end` (half-open, physical offsets), as it is in one object."""

    start: int
    end: int
    object: ShippedObject
    summary: ShippedObject
    records: int
    damaged_bytes: int
    begin_ms: int  # store times of its records, half-open; both 0 without records
    end_ms: int
    keys: ShippedObject | None = None  # where each key is; not in the JSON if there is none, as in version 1

    @property
    def names(self) -> list[str]:
        """All its objects."""
        return [one.name for one in (self.object, self.summary, self.keys) if one is not None]


class ShippedSegment(msgspec.Struct, frozen=True):
    """A log file: whole, in one part, when `is_sealed`; else what of it there is so far, in parts that follow."""

    start: int
    file_bytes: int
    is_sealed: bool
    parts: list[ShippedPart]

    @property
    def end(self) -> int:
        return self.parts[-1].end


class Dropped(msgspec.Struct, frozen=True):
    """An object that counts no longer, and since when."""

    name: str
    since_ms: int


def still_kept(dropped: Sequence[Dropped], now_ms: int) -> list[Dropped]:
    """Those that may still be read: of the newest ones those of a day, of all others those of an hour."""
    newest = sorted(dropped, key=lambda one: one.since_ms)[-KEEP_MANY:]
    many_since_ms = newest[0].since_ms if len(dropped) > KEEP_MANY else 0
    since_ms = max(now_ms - KEEP_MS, min(many_since_ms, now_ms - KEEP_AT_LEAST_MS))
    return [one for one in dropped if one.since_ms > since_ms]


class Manifest(msgspec.Struct, frozen=True):
    number: int
    made_ms: int
    broker_name: str
    identity: str  # of the log, as Survey.identity_at gives it for `end`
    segments: list[ShippedSegment]
    config: dict[str, ShippedObject] = {}  # by file name
    dropped: list[Dropped] = []
    cuts: int = 0  # how often the end of the log was lost in a crash and shipped again
    crc: int = 0

    @property
    def end(self) -> int:
        """Up to where the log is shipped."""
        return self.segments[-1].end if self.segments else 0

    @property
    def parts(self) -> list[ShippedPart]:
        return [part for segment in self.segments for part in segment.parts]

    def sealed(self) -> "Manifest":
        bare = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(bare, crc=zlib.crc32(msgspec.json.encode(bare)))


class Head(msgspec.Struct, frozen=True):
    """embermq-shipped.json: that here is a shipped store, and whose."""

    version: int
    broker_name: str
    made_ms: int


def is_shipped(place: Place) -> bool:
    return place.size(HEAD) is not None


def manifest_name(number: int) -> str:
    return f"{MANIFESTS}/{number:020d}.json"


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """Of all manifests among some objects, ascending."""
    found = [_NAME.fullmatch(name) for name in names]
    return sorted(int(one[1]) for one in found if one is not None)


def load_head(place: Place) -> Head | None:
    """StoreError if it cannot be read, None if there is none."""
    try:
        head = msgspec.json.decode(place.read(HEAD), type=Head)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise StoreError(f"{place.named(HEAD)}: {problem}; restore it") from None
    if head.version not in _KNOWN:
        raise StoreError(f"{place.named(HEAD)}: version {head.version} is not known here; a newer EmberMQ wrote it")
    return head


def newest_manifest(place: Place, known: Manifest | None = None) -> Manifest | None:
    """The manifest that counts; None if nothing was shipped yet. `known` is given back if it still is the newest."""
    numbers = manifest_numbers(place.objects(MANIFESTS))
    if not numbers:
        return None
    if known is not None and known.number == numbers[-1]:
        return known
    name = manifest_name(numbers[-1])
    try:
        manifest = msgspec.json.decode(place.read(name), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise StoreError(f"{place.named(name)}: is no manifest: {problem}; restore it, or remove it") from None
    if manifest.sealed() != manifest or manifest.number != numbers[-1]:
        raise StoreError(
            f"{place.named(name)}: was changed after it was written (its checksum is wrong); restore it, or remove it"
            " to go back to the one before"
        )
    return manifest


def write_manifest(place: Place, manifest: Manifest) -> Manifest:
    """Make it the one that counts. StoreError if another process was faster."""
    manifest = manifest.sealed()
    name = manifest_name(manifest.number)
    if place.size(name) is not None:
        raise StoreError(f"{place.named(name)}: another process ships this store right now; only one may")
    place.write(name, [msgspec.json.encode(manifest)])
    return manifest
