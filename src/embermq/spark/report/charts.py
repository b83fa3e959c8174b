"""Figures as HTML and SVG. Pure: values in, text out.

Bars and percentiles are HTML boxes, so that their labels stay readable on a phone; time runs in one SVG that is
stretched to the width there is, with its labels outside. Every mark carries its exact value as a title, and every
chart its numbers in words for those who cannot see it.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from embermq.spark.report.figures import (
    Bars,
    DamagedStretch,
    DamageMap,
    Figure,
    Percentiles,
    StackedSeries,
    Steps,
    Table,
    TimeSeries,
    Unit,
)

_COLUMNS_MAX = 240  # more columns than this cannot be distinguished
_MAP_WIDTH = 1000.0
_MARK_WIDTH = 3.0  # the least that is seen of a damaged byte
_BORDERS_MAX = 200
_DAMAGED_FILES_MAX = 24
_NUMBER_DIGITS = 20
_HEIGHT = 160
_COLOURS = 6  # of parts that differ in colour, as the style has them
_LONG_TEXT = 60
_COLUMNS_SIDE_BY_SIDE = 4  # more do not fit on a phone


def draw(figure: Figure) -> str:
    """One figure with its title."""
    return f"<figure><figcaption>{escape(figure.title)}</figcaption>{_body(figure)}</figure>"


def _body(figure: Figure) -> str:
    match figure:
        case TimeSeries():
            return _series(figure)
        case StackedSeries():
            return _stacked(figure)
        case Steps():
            return _steps(figure)
        case Bars():
            return _bars(figure)
        case Percentiles():
            return _percentiles(figure)
        case DamageMap():
            return _damage_map(figure)
        case Table():
            return _table(figure)


def amount(value: float, unit: Unit) -> str:
    """A number for people, with its unit."""
    match unit:
        case "bytes":
            return _scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
        case "ms":
            return f"-{_duration(-value)}" if value < 0 else _duration(value)
        case "bytes/s":
            return f"{amount(value, 'bytes')}/s"
        case "count":
            return f"{value:,.0f}" if abs(value) < 1e6 else _scaled(value, 1000, ["", "k", "M", "G", "T"])


def _duration(ms: float) -> str:
    """At least two of the unit it is in, so that rounding takes little; a clock that stood at 1970 is off by days."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    for length, name in ((86_400_000, "d"), (3_600_000, "h")):
        if ms >= 2 * length:
            return f"{ms / length:,.0f} {name}"
    return f"{ms / 60_000:.0f} min"


def _scaled(value: float, base: int, names: Sequence[str]) -> str:
    size, step = float(value), 0
    while abs(size) >= base and step + 1 < len(names):
        size /= base
        step += 1
    number = f"{size:.0f}" if step == 0 or size >= 100 else f"{size:.1f}"
    return f"{number} {names[step]}".strip()


def moment(time_ms: int, step_ms: int = 1000) -> str:
    """A time in UTC, as fine as its step."""
    form = "%Y-%m-%d" if step_ms >= 86_400_000 else "%Y-%m-%d %H:%M" if step_ms >= 60_000 else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)


def _nothing(text: str = "nothing to show") -> str:
    return f'<p class="none">{escape(text)}</p>'


def _series(series: TimeSeries) -> str:
    values, step_ms = _merged(series.values, series.step_ms)
    if max(values, default=0) <= 0:
        return _nothing()
    names = [moment(series.start_ms + number * step_ms, step_ms) for number in range(len(values) + 1)]
    return _columns(series.title, names, values, series.unit, (names[0], f"each column {_span(step_ms)}", names[-1]))


def _steps(steps: Steps) -> str:
    if max(steps.values, default=0) <= 0:
        return _nothing("none" if steps.values else "nothing to show")
    names, values = steps.names[-_COLUMNS_MAX:], steps.values[-_COLUMNS_MAX:]
    more = len(steps.values) - len(values)
    middle = f"the last {len(values):,} of {len(steps.values):,}" if more else ""
    return _columns(steps.title, names, values, steps.unit, (names[0], middle, names[-1]))


def _columns(title: str, names: Sequence[str], values: Sequence[float], unit: Unit, ends: Sequence[str]) -> str:
    """Columns side by side, stretched to the width there is."""
    top = max(values)
    width = 1000 / len(values)
    gap = width * 0.15 if len(values) <= 120 else 0
    marks = []
    for number, value in enumerate(values):
        height = value / top * _HEIGHT
        marks.append(
            f'<rect x="{number * width + gap / 2:.2f}" y="{_HEIGHT - height:.2f}" width="{width - gap:.2f}"'
            f' height="{height:.2f}"><title>{escape(f"{names[number]}: {amount(value, unit)}")}</title></rect>'
        )
    words = f"{title}: {len(values)} steps, at most {amount(top, unit)}"
    label = "".join(f"<span>{escape(end)}</span>" for end in ends)
    return (
        f'<div class="series"><span class="top">{amount(top, unit)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f'<line x1="0" y1="{_HEIGHT / 2}" x2="1000" y2="{_HEIGHT / 2}"/>{"".join(marks)}</svg>'
        f'<div class="ends">{label}</div></div>'
    )


def _stacked(series: StackedSeries) -> str:
    """Columns of several parts, and a legend that says which colour is whose, and how much it is in all."""
    merged = [(name, *_merged(values, series.step_ms)) for name, values in series.parts]
    sums = [sum(column) for column in zip(*(values for _, values, _ in merged), strict=True)]
    top = max(sums, default=0)
    if top <= 0:
        return _nothing()
    step_ms, width = merged[0][2], 1000 / len(sums)
    names = [moment(series.start_ms + number * step_ms, step_ms) for number in range(len(sums) + 1)]
    marks, floor = [], [0.0] * len(sums)
    for place, (part, values, _) in enumerate(merged):
        for number, value in enumerate(values):
            if value > 0:
                low, height = floor[number] / top * _HEIGHT, value / top * _HEIGHT
                floor[number] += value
                label = f"{names[number]}, {part}: {amount(value, series.unit)}"
                marks.append(
                    f'<rect class="p{place % _COLOURS}" x="{number * width:.2f}" y="{_HEIGHT - low - height:.2f}"'
                    f' width="{width:.2f}" height="{height:.2f}"><title>{escape(label)}</title></rect>'
                )
    keys = "".join(
        f'<span><i class="key p{place % _COLOURS}"></i>{escape(part)} {amount(sum(values), series.unit)}</span>'
        for place, (part, values, _) in enumerate(merged)
    )
    words = f"{series.title}: {len(sums)} steps, at most {amount(top, series.unit)}"
    return (
        f'<div class="series"><span class="top">{amount(top, series.unit)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f'{"".join(marks)}</svg><div class="ends"><span>{names[0]}</span><span>each column {_span(step_ms)}</span>'
        f'<span>{names[-1]}</span></div></div><div class="legend">{keys}</div>'
    )


def _merged(values: Sequence[float], step_ms: int) -> tuple[list[float], int]:
    """No more columns than can be seen: neighbours are added up."""
    together = math.ceil(len(values) / _COLUMNS_MAX) or 1
    merged = [float(sum(values[at : at + together])) for at in range(0, len(values), together)]
    return merged, step_ms * together


def _span(step_ms: int) -> str:
    for length, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if step_ms >= length and step_ms % length == 0:
            return f"{step_ms // length} {name}"
    return f"{step_ms} ms"


def _bars(bars: Bars) -> str:
    ordered = list(bars.bars) if bars.in_order else sorted(bars.bars, key=lambda bar: -bar.value)
    top = max((bar.value for bar in ordered), default=0)
    if top <= 0:
        return _nothing()
    rows = []
    for bar in ordered[: bars.shown_max]:
        note = f" <small>{escape(bar.note)}</small>" if bar.note else ""
        width = max(bar.value / top * 100, 0.3)
        rows.append(
            f'<div class="row"><span class="label">{escape(bar.label)}</span>'
            f'<span class="track"><span class="fill" style="width:{width:.2f}%"></span></span>'
            f'<span class="value">{amount(bar.value, bars.unit)}{note}</span></div>'
        )
    return f'<div class="bars">{"".join(rows)}</div>{_rest(len(ordered) - bars.shown_max)}'


def _rest(count: int) -> str:
    return f'<p class="none">and {count:,} more</p>' if count > 0 else ""


def _percentiles(percentiles: Percentiles) -> str:
    spreads = percentiles.spreads
    top = max((spread.most for spread in spreads), default=0)
    if not spreads:
        return _nothing()

    def place(value: float) -> float:
        return math.log1p(max(value, 0)) / math.log1p(top) * 100 if top > 0 else 0

    rows = []
    for spread in spreads:
        label = ", ".join(
            f"{name} {amount(value, percentiles.unit)}"
            for name, value in (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("max", spread.most))
        )
        left, right = place(spread.p50), place(spread.p99)
        rows.append(
            f'<div class="row"><span class="label">{escape(spread.label)}</span>'
            f'<span class="track" title="{escape(label)}">'
            f'<span class="range" style="left:{left:.2f}%;width:{max(right - left, 0.5):.2f}%"></span>'
            f'<span class="dot" style="left:{left:.2f}%"></span>'
            f'<span class="tick" style="left:{place(spread.p90):.2f}%"></span>'
            f'<span class="tick" style="left:{place(spread.most):.2f}%"></span></span>'
            f'<span class="value">{escape(label)}</span></div>'
        )
    legend = (
        '<span><i class="key dot"></i>p50 (median)</span><span><i class="key range"></i>p50 to p99</span>'
        '<span><i class="key tick"></i>p90, and maximum</span><span>logarithmic scale</span>'
    )
    return f'<div class="legend">{legend}</div><div class="bars spreads">{"".join(rows)}</div>'


def _damage_map(log: DamageMap) -> str:
    if log.end <= log.start:
        return _nothing("the log is empty")
    lost = sum(bad.end - bad.start for bad in log.damaged)
    words = f"{_places(len(log.damaged))}, {amount(lost, 'bytes')}" if log.damaged else "no damage"
    borders = [at for at in log.segments if log.start < at < log.end]
    lines = "; lines are file borders" if borders and len(borders) <= _BORDERS_MAX else ""
    return (
        _strip(log.start, log.end, log.damaged, borders if lines else [], words)
        + f'<div class="ends"><span>{log.start:,}</span><span>{escape(words + lines)}</span>'
        f"<span>{log.end:,}</span></div>{_damaged_files(log)}"
    )


def _places(count: int) -> str:
    return f"{count:,} damaged place{'' if count == 1 else 's'}"


def _strip(start: int, end: int, damaged: Iterable[DamagedStretch], borders: Iterable[int], words: str) -> str:
    """A range of the log from left to right, what is damaged in it marked where it is."""
    scale = _MAP_WIDTH / (end - start)
    lines = "".join(
        f'<line x1="{(at - start) * scale:.2f}" y1="0" x2="{(at - start) * scale:.2f}" y2="40"/>' for at in borders
    )
    marks = []
    for bad in damaged:
        low, high = (max(bad.start, start) - start) * scale, (min(bad.end, end) - start) * scale
        width = max(high - low, _MARK_WIDTH)
        label = f"{bad.start:,} to {bad.end:,}: {bad.reason}"
        marks.append(
            f'<rect class="bad" x="{min(low, _MAP_WIDTH - width):.2f}" y="0" width="{width:.2f}" height="40">'
            f"<title>{escape(label)}</title></rect>"
        )
    return (
        f'<svg class="map" viewBox="0 0 {_MAP_WIDTH:.0f} 40" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(words)}"><rect class="log" x="0" y="0" width="{_MAP_WIDTH:.0f}" height="40"/>'
        f"{lines}{''.join(marks)}</svg>"
    )


def _damaged_files(log: DamageMap) -> str:
    """Each file that has damage, as long as the others: a bad record of a gigabyte is seen."""
    if not log.damaged:
        return ""
    starts = sorted({log.start, *(at for at in log.segments if log.start < at < log.end)})
    rows = []
    for start, end in zip(starts, [*starts[1:], log.end], strict=True):
        inside = [bad for bad in log.damaged if bad.start < end and bad.end > start]
        if inside:
            lost = sum(min(bad.end, end) - max(bad.start, start) for bad in inside)
            rows.append(
                f'<div class="row"><span class="label">{start:0{_NUMBER_DIGITS}d}</span>'
                f"{_strip(start, end, inside, [], _places(len(inside)))}"
                f'<span class="value">{amount(lost, "bytes")} <small>{_places(len(inside))}</small></span></div>'
            )
    return f'<div class="files">{"".join(rows[:_DAMAGED_FILES_MAX])}</div>{_rest(len(rows) - _DAMAGED_FILES_MAX)}'


def _table(table: Table) -> str:
    if not table.rows:
        return _nothing("none")
    numeric = [isinstance(cell, int | float) for cell in table.rows[0]]
    head = "".join(
        f'<th class="number">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(table.names, numeric, strict=True)
    )
    # On a phone, a row of many columns becomes lines with the columns' names before them.
    is_wide = len(table.names) > _COLUMNS_SIDE_BY_SIDE
    names = [f"{name}: " if name else "" for name in table.names] if is_wide else [""] * len(table.names)
    body = "".join(_table_row(row, names) for row in table.rows[: table.shown_max])
    rest = _rest(len(table.rows) - table.shown_max)
    opening = '<table class="stack">' if is_wide else "<table>"
    return f'<div class="wide">{opening}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}'


def _table_row(row: Iterable[object], names: Sequence[str]) -> str:
    return f"<tr>{''.join(_cell(cell, name) for cell, name in zip(row, names, strict=True))}</tr>"


def _cell(cell: object, name: str) -> str:
    label = f' data-name="{escape(name)}"' if name else ""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return f'<td class="number"{label}>{f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}"}</td>'
    text = "" if cell is None else str(cell)
    kind, html = _text_kind(text), escape(text)
    if kind == "path":
        html = html.replace("/", "/<wbr>")
    return f'<td class="{kind}"{label}>{html}</td>' if kind else f"<td{label}>{html}</td>"


def _text_kind(text: str) -> str:
    """Text of many words is given room, a path may be broken behind each slash, one word stays one."""
    if "/" in text and " /" not in text and "`" not in text:
        return "path"
    if len(text) > _LONG_TEXT:
        return "long"
    return "text" if " " in text else "fault" if text == "fault" else ""
