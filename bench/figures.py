"""What a benchmark says: numbers with their unit, the target they were held to, and a hash of the answer.

Values only; nothing here measures or prints. The verdict is given on the median of the rounds, and is part of
the figure whether it pleases or not. The hash stands for the work done: a faster run with another hash did
something else.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["met", "missed", "not measured", ""]


@dataclass(frozen=True, slots=True)
class Target:
    """A limit the median must keep."""

    limit: float
    at_most: bool = False

    def is_kept_by(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"


def at_least(limit: float) -> Target:
    return Target(limit)


def at_most(limit: float) -> Target:
    return Target(limit, at_most=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of one case: a value per round."""

    case: str
    measure: str
    unit: str
    rounds: Sequence[float]
    target: Target | None = None
    answer: str = ""
    why_not: str = ""  # Why there are no rounds.

    @property
    def median(self) -> float | None:
        return statistics.median(self.rounds) if self.rounds else None

    @property
    def verdict(self) -> Verdict:
        median = self.median
        if median is None:
            return "not measured"
        if self.target is None:
            return ""
        return "met" if self.target.is_kept_by(median) else "missed"

    def as_json(self, scenario: str) -> dict[str, Any]:
        return {
            "scenario": scenario,
            "case": self.case,
            "measure": self.measure,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.rounds, default=None),
            "max": max(self.rounds, default=None),
            "rounds": list(self.rounds),
            "target": str(self.target) if self.target is not None else None,
            "verdict": self.verdict,
            "answer": self.answer,
            "why_not": self.why_not,
        }


def as_markdown(scenario: str, figures: Sequence[Figure]) -> str:
    """A table to copy into a page; a figure that was not measured has the reason in place of its range."""
    lines = [
        f"### {scenario}",
        "",
        "| case | measure | median | range | target | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures:
        target = "" if one.target is None else str(one.target)
        middle, spread = "-", one.why_not
        if one.median is not None:
            middle = f"{show_number(one.median)} {one.unit}"
            spread = f"{show_number(min(one.rounds))}..{show_number(max(one.rounds))}"
        lines.append(f"| {one.case} | {one.measure} | {middle} | {spread} | {target} | {one.verdict} |")
    return "\n".join([*lines, "", ""])


def show_number(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
