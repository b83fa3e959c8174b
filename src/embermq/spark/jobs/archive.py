"""Archive: the logs of stores into a lake, a piece at a time, each read back before it counts; and the guard that
keeps retention from deleting what is not archived yet.

    archive(spark, ["/data/broker-a"], "/data/lake")
    MessageStore.open(path, retention_guard=archive_guard("/data/lake", "broker-a"))

A lake made here has every record, those of system topics too: it stands in for the log. Running it again goes on
where the last run ended, whether that one finished or was killed. Driver side; the guard is for the store's process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from embermq.files import RealFiles
from embermq.inspect import Survey
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake import Lake
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.json_schemas import JsonSchemas, read_schemas
from embermq.spark.planning.store_paths import LogOptions
from embermq.spark.planning.stores import StorePlace, find_stores
from embermq.spark.runtime.error_parsing import our_errors
from embermq.store.layout import log_places
from embermq.store.services import OldSegment, RetentionGuard

COMMIT_BYTES = 1 << 30  # a commit every so often: a killed run loses at most this much work


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did for one store."""

    broker_name: str
    path: str
    start: int  # physical offsets, half-open; equal when there was nothing to do
    end: int
    records: int
    rows: int
    damaged_bytes: int
    files: int
    file_bytes: int
    undecoded: int = 0  # bodies that a schema for JSON did not fit
    damaged_bytes_before: int = 0  # in what earlier runs archived, as far as the log still has it


def archive(
    spark: SparkSession,
    paths: Iterable[str],
    lake_root: str,
    *,
    sealed_only: bool = False,
    compact: bool = True,
    on_progress: ProgressReport | None = None,
    lake_format: LakeFormat | None = None,
    catalog: str | None = None,
    json: JsonSchemas | None = None,
) -> list[Archived]:
    """Bring the lake up to date with these stores. `sealed_only` leaves the log file that is still written to.

    `lake_format`, `catalog` and `json` are as for a pipeline. Bodies always stay: the lake stands in for the log.
    """
    places = find_stores(paths)
    lake = Lake.open(
        lake_root,
        include_system=True,
        lake_format=lake_format,
        catalog=catalog,
        schemas=read_schemas(json),
        source="log",
    )
    with our_errors():
        done = [_archive_one(spark, place, lake, sealed_only, on_progress) for place in places]
        if compact:
            lake.compact(spark, on_progress)
    return done


def _archive_one(
    spark: SparkSession, place: StorePlace, lake: Lake, sealed_only: bool, on_progress: ProgressReport | None
) -> Archived:
    survey = place.survey()
    end = _sealed_end(survey) if sealed_only else survey.log_end
    known = lake.end_of(place.broker_name)
    start = at = survey.log_min if known is None else known
    before = sum(one.damaged_bytes for one in lake.ranges(place.broker_name) if one.end > survey.log_min)
    records = rows = damaged = files = file_bytes = undecoded = 0
    while at < end:
        target = end if end - at <= COMMIT_BYTES else survey.record_start(at + COMMIT_BYTES)
        commit = lake.add(spark, survey, place.broker_name, target, on_progress=on_progress)
        if commit is None:  # Another run archived it meanwhile.
            at = max(target, lake.end_of(place.broker_name) or 0)
            continue
        (added,) = commit.ranges
        records, rows, damaged = records + added.records, rows + added.rows, damaged + added.damaged_bytes
        files, file_bytes = files + len(commit.files), file_bytes + sum(one.bytes for one in commit.files)
        undecoded += added.undecoded
        at = added.end
    if at == start:
        lake.check_same_log(survey, place.broker_name)
    return Archived(
        place.broker_name, str(place.path), start, at, records, rows, damaged, files, file_bytes, undecoded, before
    )


def _sealed_end(survey: Survey) -> int:
    """Where the file begins that is still written to."""
    full = [segment.end for segment in survey.segments if segment.end <= survey.log_end]
    return max(full, default=survey.log_min)


def archive_guard(lake_root: str, broker_name: str) -> RetentionGuard:
    """May a log file go? Only if the lake has all of it. Looks at the lake anew when it does not.

    OptionInvalid if the lake is no archive. The guard raises StoreReplaced for a log file of another store.
    """
    lake = Lake.open(lake_root, include_system=True, make=False)
    compared: set[Path] = set()  # stores that the lake is of

    def guard(segment: OldSegment) -> bool:
        if not _holds(lake, broker_name, segment):
            lake.refresh()
            if not _holds(lake, broker_name, segment):
                return False
        if segment.store not in compared:
            lake.check_same_log(_survey_of(segment), broker_name)
            compared.add(segment.store)
        return True

    return guard


def _survey_of(segment: OldSegment) -> Survey:
    """Of the store of a log file. Settings that only the broker knows may have put the log outside of its directory."""
    store, place = segment.store, segment.path.parent
    if place in log_places(RealFiles(), store):
        return Survey.open(store)
    return Survey.open(store, files=LogOptions(log=str(place)).files(store))


def _holds(lake: Lake, broker_name: str, segment: OldSegment) -> bool:
    return any(one.start <= segment.start and segment.end <= one.end for one in lake.covered(broker_name))
