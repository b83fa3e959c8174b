"""Figures as a file in the text format of Prometheus, for node_exporter's textfile collector or anything that reads it.

    write_metrics("/var/lib/node_exporter/pipeline.prom", [Metric("embermq_pipeline_lag_bytes", "gauge", "...", [...])])

The file appears as a whole or not at all, as the collector wants it. Pure but for `write_metrics`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from embermq.errors import OptionInvalid

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Sample:
    """One value, and what it is of."""

    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """Samples under one name, whose end is the unit."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Sequence[Sample]


def metrics_text(metrics: Iterable[Metric]) -> str:
    """All of them; those without samples are left out, those of one name are together, as the format wants it."""
    found: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.samples:
            head = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            lines = found.setdefault(metric.name, head)
            lines += [f"{metric.name}{_labels(one.labels)} {_number(one.value)}" for one in metric.samples]
    return "".join(f"{line}\n" for lines in found.values() for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def check_metrics_place(path: str) -> Path:
    """OptionInvalid if no file can be written there: said before hours of work, not after."""
    target = Path(path).expanduser().absolute()
    if target.is_dir():
        raise OptionInvalid("metrics-file", "this is a directory; name a file", value=path)
    if not target.parent.is_dir():
        raise OptionInvalid("metrics-file", f"there is no directory {target.parent}", value=path)
    if not os.access(target.parent, os.W_OK):
        raise OptionInvalid("metrics-file", f"cannot be written: {target.parent} is read-only", value=path)
    return target


def write_metrics(target: Path, metrics: Iterable[Metric]) -> None:
    """OptionInvalid if the place cannot be written."""
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        half.write_text(metrics_text(metrics), encoding="utf-8", errors="replace")
        half.replace(target)
    except OSError as problem:
        half.unlink(missing_ok=True)
        raise OptionInvalid("metrics-file", f"cannot be written: {problem.strerror}", value=str(target)) from None
