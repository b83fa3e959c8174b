"""What an audit found as a page. Pure."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from embermq.spark.jobs.audit import Audit, StoreAudit
from embermq.spark.jobs.audit_findings import KINDS, AuditFinding
from embermq.spark.jobs.stats import NO_TAG
from embermq.spark.report import Bar, Bars, DamagedStretch, DamageMap, KeyFigure, ReportPage, Section, Table, TimeSeries
from embermq.spark.report.charts import amount, moment
from embermq.spark.report.times import usual_span

K = TypeVar("K")

STORES_DRAWN_MAX = 20
FINDINGS_SHOWN_MAX = 500
_DIGITS = re.compile(r"\d[\d,.:]*")
_COUNT = 4  # the column


def audit_report(found: Audit, subject: str, made_ms: int) -> ReportPage:
    """What people look at first: is it sound; then what is wrong and where; then what there is."""
    findings = found.findings
    topics = _added([store.totals.topics() for store in found.stores])
    return ReportPage(
        "Store audit",
        subject,
        made_ms,
        _facts(found, len(topics)),
        [
            Section(
                "Findings",
                [
                    Table("By kind", ["kind", "faults", "notes", "meaning"], _by_kind(findings)),
                ],
                "A fault is not repaired by the next start of a broker; a note is for information.",
            ),
            Section(
                "Log integrity",
                [_map(store) for store in found.stores[:STORES_DRAWN_MAX]],
                "From the oldest byte to the newest. Damaged ranges are red.",
            ),
            Section(
                "Volume",
                [
                    *_volume(found),
                    Bars(
                        "Bytes by topic",
                        [Bar(topic, octets, f"{messages:,} records") for topic, (messages, octets) in topics.items()],
                        "bytes",
                    ),
                    Bars("Records by topic and tag", [Bar(name, count) for name, count in _tags(found).items()]),
                ],
            ),
            Section(
                "Details",
                [
                    Table(
                        "Faults first; findings that differ only in their place are one row",
                        ["severity", "kind", "where", "first offset", "count", "problem", "remedy"],
                        _aggregated([_finding(one, len(found.stores) > 1) for one in findings]),
                        FINDINGS_SHOWN_MAX,
                    ),
                ],
            ),
        ],
    )


def _facts(found: Audit, topics: int) -> list[KeyFigure]:
    stores, notes = found.stores, len(found.findings) - found.faults
    damaged = sum(store.damaged_bytes for store in stores)
    places = sum(len(store.damages) for store in stores)
    duplicates = sum(one.times for one in found.findings if one.kind == "duplicate")
    return [
        KeyFigure(
            "Status",
            "sound" if found.is_sound else f"{found.faults:,} faults",
            f"{notes:,} notes",
            "good" if found.is_sound else "bad",
        ),
        KeyFigure("Records", f"{found.records:,}", f"{topics:,} topics"),
        KeyFigure(
            "Log size",
            amount(sum(store.log_bytes for store in stores), "bytes"),
            f"{sum(len(store.segments) for store in stores):,} files",
        ),
        KeyFigure("Damaged", amount(damaged, "bytes"), f"{places:,} places", "bad" if damaged else "good"),
        KeyFigure("Duplicates", f"{duplicates:,}", "by unique key", "bad" if duplicates else "good"),
    ]


def _by_kind(findings: list[AuditFinding]) -> list[list[object]]:
    faults = Counter(one.kind for one in findings if one.is_fault)
    notes = Counter(one.kind for one in findings if not one.is_fault)
    return [[kind, faults[kind], notes[kind], words] for kind, words in KINDS.items() if faults[kind] or notes[kind]]


def _finding(one: AuditFinding, with_broker: bool) -> list[object]:
    where = one.file or one.topic or ""
    if with_broker:
        where = f"{one.broker_name}: {where}"
    fault = one.fault if one.start_ms is None else f"{one.fault}, since {moment(one.start_ms)}"
    place = f"{one.physical_offset:,}" if one.physical_offset is not None else ""
    return [one.severity, one.kind, where, place, one.times, fault, one.remedy]


def _aggregated(rows: list[list[object]]) -> list[list[object]]:
    """Rows whose texts are the same but for numbers become the first of them, with the sum of their counts."""
    found: dict[tuple[object, ...], list[object]] = {}
    for row in rows:
        severity, kind, where, _, times, fault, remedy = row
        same = severity, kind, *(_DIGITS.sub("#", str(text)) for text in (where, fault, remedy))
        if same in found:
            found[same][_COUNT] = int(str(found[same][_COUNT])) + int(str(times))
        else:
            found[same] = list(row)
    return list(found.values())


def _map(store: StoreAudit) -> DamageMap:
    damaged = [DamagedStretch(one.start, one.end, one.reason) for one in store.damages]
    title = f"{store.broker_name} ({len(store.segments):,} files)"
    return DamageMap(title, store.report.log_min, store.report.log_end, store.segments, damaged)


def _volume(found: Audit) -> list[TimeSeries]:
    step_ms = max((store.totals.step_ms for store in found.stores), default=1000)
    steps = _added([store.totals.volume for store in found.stores])
    start, end = usual_span(steps)
    counts = [steps.get(step, (0, 0)) for step in range(start, end)]
    return [
        TimeSeries("Records over time", start * step_ms, step_ms, [messages for messages, _ in counts]),
        TimeSeries("Bytes over time", start * step_ms, step_ms, [octets for _, octets in counts], "bytes"),
    ]


def _added(tables: list[dict[K, tuple[int, int]]]) -> dict[K, tuple[int, int]]:
    found: dict[K, tuple[int, int]] = {}
    for table in tables:
        for key, (messages, octets) in table.items():
            before = found.get(key, (0, 0))
            found[key] = before[0] + messages, before[1] + octets
    return found


def _tags(found: Audit) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for store in found.stores:
        for (topic, tag, _), (messages, _) in store.totals.counts.items():
            counts[f"{topic} {tag or NO_TAG}"] += messages
    return dict(counts.most_common(200))
