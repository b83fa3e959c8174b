"""Audit: is what lies in stores sound and complete? All that `verify` compares, and what only the whole log tells.

    found = audit(spark, ["/data/broker-a"])
    found.is_sound, found.findings, found.frame(spark)

Sums, sizes and places of every record; queue offsets that go on; queue entries and index entries against records, and
the other way round; messages that a topic has twice; times without messages; records by topic, tag and hour.

The log is read once, by tasks over even slices (audit_pieces.py); they are put together by the code of `verify`, so
that both say the same. Nothing is written into a store. Of a store that is being written, what comes after the start of
the audit is left out. Driver side.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from embermq.columns import C_STORE_TIME
from embermq.inspect import Survey
from embermq.repair.verify import VerifyReport, verify
from embermq.spark.jobs import audit_findings
from embermq.spark.jobs.audit_duplicates import Duplicate, DuplicatesOfPart
from embermq.spark.jobs.audit_findings import AuditFinding, Owner
from embermq.spark.jobs.audit_pieces import SparkReading
from embermq.spark.jobs.audit_tally import ALWAYS, TimeWindow
from embermq.spark.jobs.audit_totals import Totals
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.planning.stores import StorePlace, find_stores
from embermq.store.compare import CheckedPiece, LogReader
from embermq.store.log import DamagedRange

STEPS_MAX = 240
_NEAR_END_BYTES = 1 << 20
_STEPS_MS = (100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000)
_COUNTS = pa.schema(
    [
        ("brokerName", pa.string()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("hour", pa.timestamp("ms", "UTC")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(slots=True)
class StoreAudit:
    """One store: what was looked at, what is wrong, what there is."""

    broker_name: str
    path: str
    report: VerifyReport  # of what `verify` compares
    totals: Totals
    damages: list[DamagedRange]  # ranges of the log that hold no record
    segments: list[int]  # where its files begin
    findings: list[AuditFinding] = field(default_factory=list)

    @property
    def damaged_bytes(self) -> int:
        return sum(damage.end - damage.start for damage in self.damages)

    @property
    def log_bytes(self) -> int:
        return self.report.log_end - self.report.log_min


@dataclass(slots=True)
class Audit:
    """All stores."""

    stores: list[StoreAudit]

    @property
    def findings(self) -> list[AuditFinding]:
        """Faults first."""
        return sorted((one for store in self.stores for one in store.findings), key=lambda one: not one.is_fault)

    @property
    def faults(self) -> int:
        return sum(one.is_fault for one in self.findings)

    @property
    def is_sound(self) -> bool:
        return self.faults == 0

    @property
    def records(self) -> int:
        return sum(store.report.records for store in self.stores)

    @property
    def counted(self) -> int:
        """Records of the window of time that was asked for."""
        return sum(messages for store in self.stores for messages, _ in store.totals.topics().values())

    def frame(self, spark: SparkSession) -> DataFrame:
        """The findings; audit_findings.py says what the columns are."""
        return audit_findings.frame(spark, self.findings)

    def counts(self) -> pa.Table:
        """Records and bytes by broker, topic, tag and hour."""
        rows = [
            (store.broker_name, topic, tag, hour, messages, octets)
            for store in self.stores
            for (topic, tag, hour), (messages, octets) in sorted(store.totals.counts.items())
        ]
        columns = zip(*rows, strict=True) if rows else ((),) * len(_COUNTS)
        return pa.table(
            [pa.array(list(column), kind.type) for column, kind in zip(columns, _COUNTS, strict=True)], schema=_COUNTS
        )

    def save(self, path: str) -> list[str]:
        """Findings as `*.parquet` or `*.jsonl`; into a directory findings and counts. The files written."""
        return audit_findings.save(path, self.findings, self.counts())


def audit(
    spark: SparkSession,
    paths: Iterable[str],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    on_progress: ProgressReport | None = None,
) -> Audit:
    """Look at every store behind `paths`. StorePathInvalid or OptionInvalid if there is none.

    With `since_ms` or `until_ms`, counts and findings are those of messages stored from the one and before the other;
    what is about no place of the log, such as a file of the config, is always reported. All of the log is read, too:
    queues and index can only be compared with the whole of it.
    """
    window = ALWAYS._replace(begin_ms=since_ms or 0, end_ms=ALWAYS.end_ms if until_ms is None else until_ms)
    places = find_stores(paths)
    surveys = [place.survey() for place in places]
    step_ms = _step_ms(surveys, window)
    pairs = zip(places, surveys, strict=True)
    return Audit([_audit_one(spark, place, survey, step_ms, window, on_progress) for place, survey in pairs])


def _audit_one(
    spark: SparkSession,
    place: StorePlace,
    survey: Survey,
    step_ms: int,
    window: TimeWindow,
    on_progress: ProgressReport | None,
) -> StoreAudit:
    passes: list[_AuditPass] = []

    def reader(*parts: Any) -> LogReader:
        """For each pass over the store: what another one saw does not count."""
        passes.append(_AuditPass(Totals(step_ms)))
        passes[-1].reading = SparkReading(spark, Path(place.path), step_ms, passes[-1].see, on_progress, window=window)
        return passes[-1].reading.make(*parts)

    report = verify(place.path, files=place.files, reader=reader)
    totals, reading = passes[-1].totals, passes[-1].reading
    assert reading is not None
    survey.refresh()
    damages = [one for one in _merged(passes[-1].damages) if one.start >= survey.log_min]  # Retention may be faster.
    segments = [one.start for one in survey.segments if one.start < report.log_end]
    done = StoreAudit(place.broker_name, str(place.path), report, totals, damages, segments)
    owner, ends = Owner(place.broker_name, str(place.path)), {one.start: one.end for one in damages}
    done.findings += [owner.of_flaw(flaw, ends) for flaw in report.flaws]
    done.findings += owner.of_duplicates(_really(reading))
    silences = totals.silences(_looked_until(report, totals), report.log_end)
    done.findings += [owner.of_silence(*silence, report.log_end) for silence in silences]
    if window != ALWAYS:
        done.findings = _inside(done.findings, survey, window)
    return done


def _inside(findings: list[AuditFinding], survey: Survey, window: TimeWindow) -> list[AuditFinding]:
    """Those that touch a window of time, by their own times, or by where the log was at these times."""
    begin, end = survey.physical_at(window.begin_ms), survey.physical_at(window.end_ms)

    def is_inside(one: AuditFinding) -> bool:
        if one.start_ms is not None:
            return one.start_ms < window.end_ms and (one.end_ms or one.start_ms) >= window.begin_ms
        if one.physical_offset is None:
            return True
        return one.physical_offset < end and max(one.end_offset or 0, one.physical_offset + 1) > begin

    return [one for one in findings if is_inside(one)]


def _looked_until(report: VerifyReport, totals: Totals) -> int:
    """Until when a topic can be silent: now if the store is being written, the newest message of any topic if not."""
    newest = max((rhythm.last_ms for rhythm in totals.rhythms.values()), default=0)
    return max(newest, int(time.time() * 1000)) if report.is_live else newest


@dataclass(slots=True)
class _AuditPass:
    """One pass over a store, as it goes."""

    totals: Totals
    damages: list[DamagedRange] = field(default_factory=list)
    reading: SparkReading | None = None

    def see(self, piece: CheckedPiece) -> None:
        self.damages.extend(piece.damages)
        if piece.tally is not None:
            self.totals.add(piece.tally)


def _step_ms(surveys: list[Survey], window: TimeWindow) -> int:
    """Steps of time as fine as can be shown, by the first and the last records there are in the window."""
    ends = [time for survey in surveys for time in _end_times(survey)]
    times = [min(max(time, window.begin_ms), window.end_ms) for time in ends]
    length = max(times, default=0) - min(times, default=0)
    return next((step for step in _STEPS_MS if length / step <= STEPS_MAX), _STEPS_MS[-1])


def _end_times(survey: Survey) -> Iterator[int]:
    for start in (survey.log_min, max(survey.log_end - _NEAR_END_BYTES, survey.log_min)):
        first = survey.record_start(start)
        for scanned in survey.scan(first, min(first + _NEAR_END_BYTES, survey.log_end), check_crc=False):
            if not isinstance(scanned, DamagedRange):
                yield from scanned.rows[[0, -1], C_STORE_TIME].tolist()


def _merged(damages: list[DamagedRange]) -> list[DamagedRange]:
    """Damage that was met in several pieces, as one."""
    found: list[DamagedRange] = []
    for one in damages:
        if found and found[-1].end == one.start:
            found[-1] = DamagedRange(found[-1].start, one.end, found[-1].reason)
        else:
            found.append(one)
    return found


def _really(reading: SparkReading) -> list[DuplicatesOfPart]:
    """Without records that only seemed to be some: a worker that begins in a body may take what lies there for one."""
    return [
        part._replace(found=[real for one in part.found if len((real := _only_real(one, reading)).places) > 1])
        for part in reading.duplicates
    ]


def _only_real(one: Duplicate, reading: SparkReading) -> Duplicate:
    wrong = {
        place
        for place in one.places
        for start, end in reading.rejected
        if start <= place < end and place not in reading.reread
    }
    places = tuple(place for place in one.places if place not in wrong)
    return one._replace(places=places, messages=one.messages - len(wrong))
