"""What a report can show, as plain values. Texts are texts, not HTML: charts.py escapes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Mood = Literal["plain", "good", "bad"]
Unit = Literal["count", "bytes", "ms", "bytes/s"]


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One large number at the top of the page."""

    label: str
    value: str
    note: str = ""
    mood: Mood = "plain"


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Something counted in equal steps of time, drawn as columns: `values[i]` belongs to start_ms + i * step_ms."""

    title: str
    start_ms: int
    step_ms: int
    values: Sequence[float]
    unit: Unit = "count"


@dataclass(frozen=True, slots=True)
class StackedSeries:
    """The same of several things, one above the other: `parts` are their names and values, most important first."""

    title: str
    start_ms: int
    step_ms: int
    parts: Sequence[tuple[str, Sequence[float]]]
    unit: Unit = "count"


@dataclass(frozen=True, slots=True)
class Steps:
    """Something measured again and again, drawn as columns; the last ones if they are many. Names are of the steps."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    unit: Unit = "count"


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Things by size, largest first, or in the order they have; the drawer cuts the list and says so."""

    title: str
    bars: Sequence[Bar]
    unit: Unit = "count"
    shown_max: int = 20
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of one thing."""

    label: str
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Spreads side by side on one logarithmic scale."""

    title: str
    spreads: Sequence[Spread]
    unit: Unit = "ms"


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """A half-open range of the log that is not sound."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class DamageMap:
    """The log from its first byte to its last as one strip, damaged places marked, and each damaged file by itself.
    `segments` are the places where files begin."""

    title: str
    start: int
    end: int
    segments: Sequence[int]
    damaged: Sequence[DamagedStretch]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under names; numbers stand to the right."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    shown_max: int = 200


Figure = TimeSeries | StackedSeries | Steps | Bars | Percentiles | DamageMap | Table


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    figures: Sequence[Figure]
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page: what it is about, the numbers that matter, and the sections below them."""

    title: str
    subject: str
    made_ms: int
    facts: Sequence[KeyFigure] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
