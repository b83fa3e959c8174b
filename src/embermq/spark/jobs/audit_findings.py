"""What an audit finds, as a table: one row for each finding, in columns that can be saved and asked.

    brokerName, store   whose it is, and where it lies
    severity            fault: the next start would not mend it, or a reader is misled; note: worth knowing
    kind                what kind of thing is wrong (KINDS)
    file                of the store, where it is about one
    topic, queueId      where it is about one
    physicalOffset, endOffset    place in the log; half-open where it is a range
    queueOffset, byteOffset      in the queue; in the file
    startTime, endTime  of a silence
    times               how many such places, of which this is the first
    fault, remedy       for people

Saved as Parquet or as JSON Lines, by the suffix. Driver side.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from embermq.errors import OptionInvalid
from embermq.repair.verify import Flaw, Severity
from embermq.spark.jobs.audit_duplicates import Duplicate, DuplicatesOfPart
from embermq.spark.jobs.audit_tally import Gap

KINDS = {
    "log": "bytes of the log that are no whole record: a wrong checksum, size, magic or place, a missing file",
    "queue": "consume queue against log: entries and records without each other, offsets given twice or lost",
    "index": "key index against log: entries and keys without each other, links, slots, headers",
    "state": "small files: checkpoint, config, proofs, quarantine",
    "duplicate": "one unique key more than once in a topic",
    "silence": "a topic without messages for much longer than usual",
}
_FAMILIES = {"commitlog": "log", "consumequeue": "queue", "consumequeue_ext": "queue", "index": "index"}
_QUEUE_FAMILIES = ("consumequeue", "consumequeue_ext")
_MS = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema(
    [
        ("brokerName", pa.string()),
        ("store", pa.string()),
        ("severity", pa.string()),
        ("kind", pa.string()),
        ("file", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("physicalOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("queueOffset", pa.int64()),
        ("byteOffset", pa.int64()),
        ("startTime", _MS),
        ("endTime", _MS),
        ("times", pa.int64()),
        ("fault", pa.string()),
        ("remedy", pa.string()),
    ]
)
SUFFIXES = {".parquet": "Parquet", ".jsonl": "JSON Lines", ".json": "JSON Lines"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One row. What does not apply is None."""

    broker_name: str
    store: str
    severity: str
    kind: str
    fault: str
    remedy: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    physical_offset: int | None = None
    end_offset: int | None = None
    queue_offset: int | None = None
    byte_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    times: int = 1

    @property
    def is_fault(self) -> bool:
        return self.severity == Severity.FAULT


@dataclass(frozen=True, slots=True)
class Owner:
    """The store that findings are about; makes them from what the checks say."""

    broker_name: str
    path: str

    def of_flaw(self, flaw: Flaw, damage_ends: dict[int, int]) -> AuditFinding:
        """What `verify` would say, with topic and queue, and for damage its end."""
        words = flaw.file.split("/")
        is_queue = flaw.family in _QUEUE_FAMILIES and len(words) >= 3
        end = damage_ends.get(flaw.physical_offset) if flaw.physical_offset is not None else None
        return AuditFinding(
            broker_name=self.broker_name,
            store=self.path,
            severity=str(flaw.severity),
            kind=_FAMILIES.get(flaw.family, "state"),
            fault=flaw.fault,
            remedy=flaw.remedy,
            file=flaw.file,
            topic=words[1] if is_queue else None,
            queue_id=int(words[2]) if is_queue and words[2].isdigit() else None,
            physical_offset=flaw.physical_offset,
            end_offset=end if flaw.family == "commitlog" else None,
            queue_offset=flaw.queue_offset,
            byte_offset=flaw.byte_offset,
            times=flaw.count,
        )

    def of_duplicates(self, parts: Sequence[DuplicatesOfPart]) -> Iterator[AuditFinding]:
        remedy = "consumers see it as often; let them remember what they had, by unique key"
        found = sorted((one for part in parts for one in part.found), key=lambda one: one.places)
        yield from (self._duplicate(one, remedy) for one in found)
        more = sum(part.more for part in parts)
        if more:
            yield AuditFinding(
                broker_name=self.broker_name,
                store=self.path,
                severity=str(Severity.FAULT),
                kind="duplicate",
                fault=f"{more:,} further unique keys are there more than once, by their hashes",
                remedy=remedy,
                times=sum(part.more_messages for part in parts),
            )

    def _duplicate(self, one: Duplicate, remedy: str) -> AuditFinding:
        places = ", ".join(f"{place:,}" for place in one.places)
        rest = f" and {one.messages - len(one.places):,} more" if one.messages > len(one.places) else ""
        return AuditFinding(
            broker_name=self.broker_name,
            store=self.path,
            severity=str(Severity.FAULT),
            kind="duplicate",
            fault=f"the unique key {one.unique_key} is there {one.messages:,} times: at {places}{rest}",
            remedy=remedy,
            topic=one.topic,
            queue_id=one.queue_id,
            physical_offset=one.places[1],
            queue_offset=one.queue_offset,
            times=one.messages - 1,
        )

    def of_silence(self, topic: str, gap: Gap, usual_ms: int, log_end: int) -> AuditFinding:
        since = ", and none since" if gap.place == log_end else ""
        return AuditFinding(
            broker_name=self.broker_name,
            store=self.path,
            severity=str(Severity.NOTE),
            kind="silence",
            topic=topic,
            fault=f"no message for {_duration(gap.length_ms)}{since}; usual are gaps of up to {_duration(usual_ms)}",
            remedy="ask the producers of the topic what happened then",
            physical_offset=gap.place,
            start_ms=gap.start_ms,
            end_ms=gap.end_ms,
        )


def _duration(length_ms: int) -> str:
    if length_ms < 1000:
        return f"{length_ms} ms"
    seconds = length_ms / 1000
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {name}"
    return f"{seconds:,.1f} s"


# -- as a table --------------------------------------------------------------------------------------------------


def table(findings: Sequence[AuditFinding]) -> pa.Table:
    columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
    for one in findings:
        for name, value in zip(SCHEMA.names, _row(one), strict=True):
            columns[name].append(value)
    return pa.table(columns, SCHEMA)


def _row(one: AuditFinding) -> tuple[object, ...]:
    return (
        one.broker_name,
        one.store,
        one.severity,
        one.kind,
        one.file,
        one.topic,
        one.queue_id,
        one.physical_offset,
        one.end_offset,
        one.queue_offset,
        one.byte_offset,
        one.start_ms,
        one.end_ms,
        one.times,
        one.fault,
        one.remedy,
    )


def frame(spark: SparkSession, findings: Sequence[AuditFinding]) -> DataFrame:
    """The findings as a DataFrame, in the columns of the table."""
    made: DataFrame = spark.createDataFrame(table(findings))
    return made


def check_place(path: str) -> None:
    """OptionInvalid if nothing can be saved there, before anything was read for it."""
    target = Path(path).expanduser().absolute()
    if target.suffix and target.suffix not in SUFFIXES:
        raise OptionInvalid("save", f"a directory, or a file that ends in {', '.join(SUFFIXES)}", value=path)
    if target.exists() and target.is_dir() != (not target.suffix):
        kind = "a directory" if target.is_dir() else "a file"
        raise OptionInvalid("save", f"there is {kind} of this name", value=path)
    if not target.parent.is_dir():
        raise OptionInvalid("save", f"there is no directory {target.parent}", value=path)


def save(path: str, findings: Sequence[AuditFinding], counts: pa.Table) -> list[str]:
    """Write the findings into a file, or findings and counts into a directory; each whole or not at all."""
    check_place(path)
    target = Path(path).expanduser().absolute()
    try:
        if target.suffix:
            return [_write(target, table(findings), findings)]
        target.mkdir(exist_ok=True)
        return [
            _write(target / "findings.parquet", table(findings), findings),
            _write(target / "records.parquet", counts, ()),
        ]
    except OSError as problem:
        raise OptionInvalid("save", f"cannot be written: {problem.strerror or problem}", value=path) from None


def _write(target: Path, content: pa.Table, findings: Sequence[AuditFinding]) -> str:
    half = target.with_name(f".{target.name}.part")
    if target.suffix == ".parquet":
        pq.write_table(content, half, compression="zstd")
    else:
        half.write_text("".join(json.dumps(_record(one), ensure_ascii=False) + "\n" for one in findings), "utf-8")
    half.replace(target)
    return str(target)


def _record(one: AuditFinding) -> dict[str, object]:
    """A line of JSON: the columns of the table, times as text."""
    row = dict(zip(SCHEMA.names, _row(one), strict=True))
    for name in ("startTime", "endTime"):
        if row[name] is not None:
            row[name] = datetime.fromtimestamp(row[name] / 1000, UTC).isoformat(timespec="milliseconds")
    return row
