"""One store on its way to a target: what is there already, whether this log goes on after it, and shipping the rest.

A manifest is written after every few objects, so that a killed run loses at most those. Whatever was interrupted, by a
target that did not answer or by the end of the process, `prepare` looks at the target again and goes on from there.
Driver side; uploading is for tasks (ship_pieces.py). One thread.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
from pyspark.sql import SparkSession

from embermq import errors
from embermq.clock import Clock, SystemClock
from embermq.errors import DataLost, OptionInvalid, StoreError, StorePathInvalid, StoreReplaced
from embermq.format.config_json import parse_config
from embermq.inspect import LogMatch
from embermq.spark.jobs.cluster_tasks import ProgressReport, parallelism, run
from embermq.spark.jobs.ship_pieces import (
    CONFIG,
    TAIL,
    FailedPiece,
    PieceShipped,
    ShipPiece,
    find_pieces,
    is_left_over,
    ship_piece,
)
from embermq.spark.planning.stores import StorePlace
from embermq.spark.shipped.deletions import Deletions, merged
from embermq.spark.shipped.manifests import (
    HEAD,
    MANIFESTS,
    VERSION,
    Dropped,
    Head,
    Manifest,
    ShippedObject,
    ShippedSegment,
    load_head,
    manifest_name,
    manifest_numbers,
    newest_manifest,
    still_kept,
    write_manifest,
)
from embermq.spark.shipped.places import HALF, Place
from embermq.spark.shipped.summaries import STRETCH_BYTES
from embermq.store.layout import DELETED_TOPICS_FILE as DELETED
from embermq.store.layout import to_bytes

CONFIG_FILES = ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json")
_MANIFESTS_KEPT = 100  # besides being read, they tell the story
_GO_ON = "pass ignore_data_loss (--ignore-data-loss) to go on"

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Shipped:
    """What one run did for one store."""

    broker_name: str
    path: str
    target: str
    start: int  # physical offsets, half-open; equal when nothing was new
    end: int
    objects: int  # of the log, uploaded by this run
    bytes: int
    records: int
    damaged_bytes: int  # in what this run uploaded
    manifest: int  # the number of the one that counts now


def never() -> bool:
    """Never stop."""
    return False


class Shipment:
    """One store on its way, once or again and again: `prepare`, then `ship`."""

    def __init__(
        self,
        spark: SparkSession,
        place: StorePlace,
        target: Place,
        clock: Clock | None,
        on_progress: ProgressReport | None,
    ) -> None:
        self._spark, self._store, self._target, self._on_progress = spark, place, target, on_progress
        self._clock = clock or SystemClock()
        self._survey = place.survey()
        self._manifest = Manifest(0, 0, place.broker_name, "", [])
        self._head: Head | None = None
        self._old: list[str] = []  # counted no longer when this run began, and long enough
        self._is_settled = False  # Is `_manifest` what the target has?
        self._config_ms = 0
        self._shipped_deletions = Deletions(target)

    # -- before anything is written ------------------------------------------------------------------------------

    def prepare(self, ignore_data_loss: bool) -> None:
        """See what is there already, and whether this log can go on after it. Before every `ship`."""
        self._survey.refresh()
        head = load_head(self._target)
        known = self._manifest if self._is_settled else None
        self._head, self._old, self._is_settled = head, [], False
        self._manifest = Manifest(0, 0, self._store.broker_name, "", [])
        if head is None:
            if some := sorted(self._target.objects().keys() - {HEAD + HALF})[:3]:
                raise OptionInvalid(
                    "to",
                    f"there are files here and no {HEAD} ({', '.join(some)}); choose another place",
                    value=self._target.shown,
                )
            return
        if head.broker_name != self._store.broker_name:
            raise StoreReplaced(self._target.shown, f"it holds what {head.broker_name} shipped; use another target")
        self._manifest = newest_manifest(self._target, known) or self._manifest
        if self._manifest.segments:
            self._check_log(ignore_data_loss)

    def _check_log(self, ignore_data_loss: bool) -> None:
        manifest, survey, shown = self._manifest, self._survey, self._target.shown
        match survey.compare(manifest.identity):
            case LogMatch.OTHER:
                raise StoreReplaced(
                    survey.path, f"what was shipped to {shown} begins with other records; use another target"
                )
            case LogMatch.CUT:
                if not ignore_data_loss:
                    raise DataLost(
                        f"{survey.path}: records that were shipped to {shown} are not in the log any more: its end was"
                        f" lost in a crash; {_GO_ON} and ship that end again"
                    )
                self._manifest = self._without_end(manifest)
        known = self._manifest.end
        if survey.log_min > known and self._manifest.segments and not ignore_data_loss:
            raise DataLost(
                f"{survey.path}: shipped up to {known:,}, and the log now begins at {survey.log_min:,}; what lies"
                f" between is gone; {_GO_ON} with a gap"
            )

    def _without_end(self, manifest: Manifest) -> Manifest:
        """Without the newest two log files: what was not synced can reach over one border, not over two."""
        gone = [part for segment in manifest.segments[-2:] for part in segment.parts]
        return msgspec.structs.replace(
            manifest,
            segments=manifest.segments[:-2],
            cuts=manifest.cuts + 1,
            dropped=[*manifest.dropped, *self._dropped(name for one in gone for name in one.names)],
        )

    def _dropped(self, names: Iterable[str]) -> list[Dropped]:
        return [Dropped(name, self._clock.now_ms()) for name in names]

    # -- shipping ------------------------------------------------------------------------------------------------

    @property
    def lag_bytes(self) -> int:
        """What of the log is not shipped yet, as it was seen last."""
        return max(0, self._survey.log_end - max(self._manifest.end, self._survey.log_min))

    def look(self) -> None:
        """See how far the log is now."""
        self._survey.refresh()

    def is_behind(self) -> bool:
        """Is there something new in the log, was a topic deleted, or the last call interrupted? Looks at the store
        alone."""
        self._survey.refresh()
        if not self._is_settled or self._pieces(tail=True):
            return True
        return self._deletions() != self._shipped_deletions.of(self._manifest)

    def _pieces(self, *, tail: bool) -> list[ShipPiece]:
        survey, before = self._survey, self._manifest
        return find_pieces(
            survey.segments,
            before.segments,
            survey.log_end,
            self._target.address,
            tail=tail,
            cuts=before.cuts,
            stretch_bytes=STRETCH_BYTES,
        )

    def ship(self, tail: bool, *, stop: Stop = never, config_every_ms: int = 0) -> Shipped:
        """Ship what is new. Asked to `stop`, the objects in hand are the last. With `config_every_ms`, files of the
        directory config go along only so often: some change every few seconds."""
        if self._head is None or self._head.version != VERSION:
            made_ms = self._clock.now_ms() if self._head is None else self._head.made_ms
            self._head = Head(VERSION, self._store.broker_name, made_ms)
            self._target.write(HEAD, [msgspec.json.encode(self._head)])
        first = self._manifest.number
        written, pieces = self._manifest, self._pieces(tail=tail)
        self._add_deletions()
        done: list[PieceShipped] = []
        # A manifest every so often: a killed run loses at most one round.
        count = 2 * parallelism(self._spark) if stop is never else parallelism(self._spark)
        for at in range(0, len(pieces), count):
            if stop():
                break
            results = self._upload(pieces[at : at + count])
            self._manifest = self._add(results)
            done += results
            if at + count < len(pieces):
                self._write()
                written = self._manifest
        if self._clock.now_ms() - self._config_ms >= config_every_ms:
            self._add_config()
            self._config_ms = self._clock.now_ms()
        if self._manifest != written or not written.number:
            self._write()
        if self._manifest.number != first:
            self._clean_up()
        self._is_settled = True
        return self._figures(done)

    def _upload(self, pieces: Sequence[ShipPiece]) -> list[PieceShipped]:
        results = run(self._spark, ship_piece, pieces, f"shipping {self._store.broker_name}", self._on_progress)
        for result in results:
            if isinstance(result, FailedPiece):
                raise failure_of(result)
        return [result for result in results if isinstance(result, PieceShipped)]

    def _add(self, results: Sequence[PieceShipped]) -> Manifest:
        """The manifest with these parts in it."""
        manifest = self._manifest
        segments = {segment.start: segment for segment in manifest.segments}
        replaced: list[str] = []
        for one in results:
            piece, known = one.piece, segments.get(one.piece.segment_start)
            parts = known.parts if known is not None else []
            kept = [] if piece.is_sealed else [part for part in parts if part.end <= piece.start]
            replaced += [name for part in parts[len(kept) :] for name in part.names]
            segments[piece.segment_start] = ShippedSegment(
                piece.segment_start, piece.file_bytes, piece.is_sealed, [*kept, one.part]
            )
        ordered = [segments[start] for start in sorted(segments)]
        return msgspec.structs.replace(
            manifest,
            segments=ordered,
            dropped=[*manifest.dropped, *self._dropped(replaced)],
            identity=self._survey.identity_at(ordered[-1].end) if ordered else "",
        )

    def _add_config(self) -> None:
        """Small files of the directory config."""
        for name in CONFIG_FILES:
            data = self._config_data(name)
            if data is not None:
                self._add_file(name, data)

    def _add_file(self, name: str, data: bytes) -> None:
        """Named after its content: the same is not shipped twice."""
        manifest, digest = self._manifest, hashlib.sha256(data).hexdigest()
        known = manifest.config.get(name)
        if known is not None and known.sha256 == digest:
            return
        made = ShippedObject(f"{CONFIG}/{digest[:16]}-{name}", len(data), digest)
        self._target.write(made.name, [data])
        if self._target.read(made.name) != data:
            raise StorePathInvalid(self._target.named(made.name), "is not what was written; try again")
        self._manifest = msgspec.structs.replace(
            manifest,
            config={**manifest.config, name: made},
            dropped=[*manifest.dropped, *self._dropped([] if known is None else [known.name])],
        )

    def _deletions(self) -> dict[str, int]:
        """Deleted topics as the store and what was shipped before know them now."""
        before, survey = self._manifest, self._survey
        return merged(survey.deleted_topics(), self._shipped_deletions.of(before), before.end, survey.log_min)

    def _add_deletions(self) -> None:
        """The note goes with the first manifest of a call. It was read after the log was looked at: a deletion that
        anything in that log came after is in it. One that is about what comes later hides what there is so far."""
        found = self._deletions()
        if found != self._shipped_deletions.of(self._manifest):
            self._add_file(DELETED, to_bytes(found))
            self._shipped_deletions.of(self._manifest)

    def _config_data(self, name: str) -> bytes | None:
        """None if it is not there, or just being written: the one shipped before stays then."""
        try:
            text = self._survey.config_text(name)
            if text is None:
                return None
            parse_config(text)
        except (OSError, ValueError):
            return None
        return text.encode()

    def _write(self) -> None:
        now_ms, manifest = self._clock.now_ms(), self._manifest
        named = {name for part in manifest.parts for name in part.names}
        named |= {one.name for one in manifest.config.values()}
        dropped = [one for one in manifest.dropped if one.name not in named]
        young = still_kept(dropped, now_ms)
        self._old += [one.name for one in dropped if one not in young]
        self._manifest = write_manifest(
            self._target, msgspec.structs.replace(manifest, number=manifest.number + 1, made_ms=now_ms, dropped=young)
        )

    def _clean_up(self) -> None:
        """Remove what counts no longer: parts of log files that are whole now, left-overs of killed runs, and old
        manifests, as soon as no reader can still use them."""
        manifest = self._manifest
        kept = {one.name for one in manifest.dropped}
        kept |= {name for part in manifest.parts for name in part.names}
        kept |= {one.name for one in manifest.config.values()}
        there = [name for folder in (TAIL, CONFIG) for name in self._target.objects(folder) if is_left_over(name)]
        for name in {*there, *self._old} - kept:
            self._target.remove(name)
        numbers = manifest_numbers(self._target.objects(MANIFESTS))
        for number in numbers[:-_MANIFESTS_KEPT]:
            self._target.remove(manifest_name(number))

    def _figures(self, done: Sequence[PieceShipped]) -> Shipped:
        parts = [one.part for one in done]
        end = self._manifest.end
        return Shipped(
            self._store.broker_name,
            str(self._store.path),
            self._target.shown,
            min((part.start for part in parts), default=end),
            end,
            len(parts),
            sum(part.object.bytes for part in parts),
            sum(part.records for part in parts),
            sum(part.damaged_bytes for part in parts),
            self._manifest.number,
        )


def failure_of(result: FailedPiece) -> Exception:
    """What a worker could not do, as the error it was: of kinds that are but a text and a name."""
    kind = getattr(errors, result.kind, StoreError)
    if not (isinstance(kind, type) and issubclass(kind, StoreError)):
        return StoreError(result.text)
    error: StoreError = kind.__new__(kind)
    Exception.__init__(error, result.text)
    return error
