"""Ship: the logs of stores to a place far from the broker, where `path` of the format reads them by ranges.

    ship(spark, ["/data/broker-a"], "s3://bucket/logs", tail=True)
    spark.read.format("rocketmq").load("s3://bucket/logs")

Whole log files go as they are, one object each; with `tail` also what the newest one has so far, each run a further
object with what came since. Only what a crash cannot take back is shipped (`Survey.log_end`). Tasks upload, read back
and sum up; the manifest that names the objects comes last. Killed anywhere, the next run goes on after the last
manifest: what no manifest names does not count, and is overwritten or removed. One run at a time for each store.
Driver side, but for `ship_pieces.py`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
from pyspark.sql import SparkSession

from embermq import errors
from embermq.clock import Clock, SystemClock
from embermq.errors import DataLost, OptionInvalid, StoreError, StorePathInvalid, StoreReplaced
from embermq.format.config_json import parse_config
from embermq.spark.jobs.ship_pieces import CONFIG, TAIL, Failed, PieceShipped, ShipPiece, find_pieces, ship_piece
from embermq.spark.jobs.work import Told, parallelism, run
from embermq.spark.shipped.manifests import (
    HEAD,
    KEEP_MS,
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
    write_manifest,
)
from embermq.spark.shipped.places import HALF, Place
from embermq.spark.shipped.summaries import STRETCH_BYTES
from embermq.spark.stores import StorePlace, find_stores
from embermq.store.survey import LogMatch, Survey

CONFIG_FILES = ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json")
_MANIFESTS_KEPT = 100  # besides being read, they tell the story
_GO_ON = "pass ignore_data_loss (--ignore-data-loss) to go on"


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


def ship(
    spark: SparkSession, paths: Iterable[str], target: str, *, tail: bool = False, ignore_data_loss: bool = False,
    told: Told | None = None, clock: Clock | None = None,
) -> list[Shipped]:  # fmt: skip
    """Bring `target` up to date with these stores: a folder each, named after the broker.

    `tail`: also what the log file has that is still written to. StoreReplaced if the target holds another log under
    the name of a broker; DataLost if the log no longer has what comes next, or its end was lost in a crash and written
    again (`ignore_data_loss` goes on with a gap, and ships the rewritten end again).
    """
    places = find_stores(paths)
    try:
        root = Place(target)
        runs = [_Run(spark, place, root.child(quote(place.broker_name, safe="")), clock, told) for place in places]
        for one in runs:
            one.prepare(ignore_data_loss)  # All of them first: a mistake shows before anything is written.
        return [one.ship(tail) for one in runs]
    except OptionInvalid as problem:
        raise OptionInvalid("to", problem.reason, value=problem.value) from None


class _Run:
    """One store on its way."""

    def __init__(
        self, spark: SparkSession, place: StorePlace, target: Place, clock: Clock | None, told: Told | None
    ) -> None:
        self._spark, self._store, self._target, self._told = spark, place, target, told
        self._clock = clock or SystemClock()
        self._survey = Survey.open(place.path)
        self._manifest = Manifest(0, 0, place.broker_name, "", [])
        self._head: Head | None = None
        self._old: list[str] = []  # counted no longer when this run began, and long enough

    # -- before anything is written ------------------------------------------------------------------------------

    def prepare(self, ignore_data_loss: bool) -> None:
        """See what is there already, and whether this log can go on after it."""
        head = load_head(self._target)
        self._head = head
        if head is None:
            if some := sorted(self._target.objects().keys() - {HEAD + HALF})[:3]:
                raise OptionInvalid(
                    "to", f"there are files here and no {HEAD} ({', '.join(some)}); choose another place",
                    value=self._target.shown,
                )  # fmt: skip
            return
        if head.broker_name != self._store.broker_name:
            raise StoreReplaced(self._target.shown, f"it holds what {head.broker_name} shipped; use another target")
        self._manifest = newest_manifest(self._target) or self._manifest
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
            manifest, segments=manifest.segments[:-2], cuts=manifest.cuts + 1,
            dropped=[*manifest.dropped, *self._dropped(name for one in gone for name in one.names)],
        )  # fmt: skip

    def _dropped(self, names: Iterable[str]) -> list[Dropped]:
        return [Dropped(name, self._clock.now_ms()) for name in names]

    # -- shipping ------------------------------------------------------------------------------------------------

    def ship(self, tail: bool) -> Shipped:
        if self._head is None or self._head.version != VERSION:
            made_ms = self._clock.now_ms() if self._head is None else self._head.made_ms
            self._head = Head(VERSION, self._store.broker_name, made_ms)
            self._target.write(HEAD, [msgspec.json.encode(self._head)])
        survey, before = self._survey, self._manifest
        pieces = find_pieces(
            survey.segments, before.segments, survey.log_end, self._target.address, tail=tail, cuts=before.cuts,
            stretch_bytes=STRETCH_BYTES,
        )  # fmt: skip
        done: list[PieceShipped] = []
        # A manifest every so often: a killed run loses at most one round.
        count = 2 * parallelism(self._spark)
        for at in range(0, len(pieces), count):
            results = self._upload(pieces[at : at + count])
            self._manifest = self._add(results)
            done += results
            if at + count < len(pieces):
                self._write()
        self._add_config()
        if self._manifest != before or not before.number:
            self._write()
            self._clean_up()
        return self._figures(done)

    def _upload(self, pieces: Sequence[ShipPiece]) -> list[PieceShipped]:
        results = run(self._spark, ship_piece, pieces, f"shipping {self._store.broker_name}", self._told)
        for result in results:
            if isinstance(result, Failed):
                kind = getattr(errors, result.kind, StoreError)
                error: Exception = kind.__new__(kind)
                Exception.__init__(error, result.text)
                raise error
        return [result for result in results if isinstance(result, PieceShipped)]

    def _add(self, results: Sequence[PieceShipped]) -> Manifest:
        """The manifest with these parts in it."""
        manifest = self._manifest
        segments = {segment.start: segment for segment in manifest.segments}
        replaced: list[str] = []
        for one in results:
            piece, known = one.piece, segments.get(one.piece.segment_start)
            goes_on = known is not None and not piece.is_sealed and known.end == piece.start
            kept = known.parts if known is not None and goes_on else []
            if known is not None and not goes_on:
                replaced += [name for part in known.parts for name in part.names]
            segments[piece.segment_start] = ShippedSegment(
                piece.segment_start, piece.file_bytes, piece.is_sealed, [*kept, one.part]
            )
        ordered = [segments[start] for start in sorted(segments)]
        return msgspec.structs.replace(
            manifest, segments=ordered, dropped=[*manifest.dropped, *self._dropped(replaced)],
            identity=self._survey.identity_at(ordered[-1].end) if ordered else "",
        )  # fmt: skip

    def _add_config(self) -> None:
        """Small files of the directory config, named after their content: the same is not shipped twice."""
        config = dict(self._manifest.config)
        for name in CONFIG_FILES:
            data = self._config_data(name)
            digest = hashlib.sha256(data or b"").hexdigest()
            if data is None or (name in config and config[name].sha256 == digest):
                continue
            made = ShippedObject(f"{CONFIG}/{digest[:16]}-{name}", len(data), digest)
            self._target.write(made.name, [data])
            if self._target.read(made.name) != data:
                raise StorePathInvalid(self._target.named(made.name), "is not what was written; try again")
            config[name] = made
        gone = {one.name for one in self._manifest.config.values()} - {one.name for one in config.values()}
        self._manifest = msgspec.structs.replace(
            self._manifest, config=config, dropped=[*self._manifest.dropped, *self._dropped(sorted(gone))]
        )

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
        young = [one for one in dropped if one.since_ms > now_ms - KEEP_MS]
        self._old += [one.name for one in dropped if one not in young]
        self._manifest = write_manifest(
            self._target, msgspec.structs.replace(manifest, number=manifest.number + 1, made_ms=now_ms, dropped=young)
        )

    def _clean_up(self) -> None:
        """Remove what counts no longer: parts of log files that are whole now, left-overs of killed runs, and old
        manifests, as soon as nobody can be reading them."""
        manifest = self._manifest
        kept = {one.name for one in manifest.dropped}
        kept |= {name for part in manifest.parts for name in part.names}
        kept |= {one.name for one in manifest.config.values()}
        there = [name for folder in (TAIL, CONFIG) for name in self._target.objects(folder)]
        for name in {*there, *self._old} - kept:
            self._target.remove(name)
        numbers = manifest_numbers(self._target.objects(MANIFESTS))
        for number in numbers[:-_MANIFESTS_KEPT]:
            self._target.remove(manifest_name(number))

    def _figures(self, done: Sequence[PieceShipped]) -> Shipped:
        parts = [one.part for one in done]
        end = self._manifest.end
        return Shipped(
            self._store.broker_name, str(self._store.path), self._target.shown,
            min((part.start for part in parts), default=end), end, len(parts),
            sum(part.object.bytes for part in parts), sum(part.records for part in parts),
            sum(part.damaged_bytes for part in parts), self._manifest.number,
        )  # fmt: skip
