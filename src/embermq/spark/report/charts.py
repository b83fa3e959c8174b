"""Figures as HTML and SVG. Pure: values in, text out.

Bars and percentiles are HTML boxes, so that their labels stay readable on a phone; time runs in one SVG that is
stretched to the width there is, with its labels outside. Every mark carries its exact value as a title, and every
chart its numbers in words for those who cannot see it.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from embermq.spark.report.figures import Bars, DamageMap, Figure, Percentiles, Series, Table, Unit

_COLUMNS_MAX = 240  # more columns than this are not told apart
_MAP_CELLS = 160
_HEIGHT = 160


def draw(figure: Figure) -> str:
    """One figure with its title."""
    return f"<figure><figcaption>{escape(figure.title)}</figcaption>{_body(figure)}</figure>"


def _body(figure: Figure) -> str:
    match figure:
        case Series():
            return _series(figure)
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
            if value < 1000:
                return f"{value:.0f} ms"
            return f"{value / 1000:.1f} s" if value < 120_000 else f"{value / 60_000:.0f} min"
        case "count":
            return f"{value:,.0f}" if abs(value) < 1e6 else _scaled(value, 1000, ["", "k", "M", "G", "T"])


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


def _series(series: Series) -> str:
    values, step_ms = _merged(series.values, series.step_ms)
    top = max(values, default=0)
    if not values or top <= 0:
        return _nothing()
    width = 1000 / len(values)
    gap = width * 0.15 if len(values) <= 120 else 0
    marks = []
    for number, value in enumerate(values):
        height = value / top * _HEIGHT
        told = f"{moment(series.start_ms + number * step_ms, step_ms)}: {amount(value, series.unit)}"
        marks.append(
            f'<rect x="{number * width + gap / 2:.2f}" y="{_HEIGHT - height:.2f}" width="{width - gap:.2f}"'
            f' height="{height:.2f}"><title>{escape(told)}</title></rect>'
        )
    first, last = series.start_ms, series.start_ms + len(values) * step_ms
    words = f"{series.title}: {len(values)} steps, at most {amount(top, series.unit)}"
    return (
        f'<div class="series"><span class="top">{amount(top, series.unit)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f'<line x1="0" y1="{_HEIGHT / 2}" x2="1000" y2="{_HEIGHT / 2}"/>{"".join(marks)}</svg>'
        f'<div class="ends"><span>{moment(first, step_ms)}</span><span>each column {_span(step_ms)}</span>'
        f"<span>{moment(last, step_ms)}</span></div></div>"
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
    ordered = sorted(bars.bars, key=lambda bar: -bar.value)
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
        told = ", ".join(
            f"{name} {amount(value, percentiles.unit)}"
            for name, value in (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("most", spread.most))
        )
        left, right = place(spread.p50), place(spread.p99)
        rows.append(
            f'<div class="row"><span class="label">{escape(spread.label)}</span>'
            f'<span class="track" title="{escape(told)}">'
            f'<span class="range" style="left:{left:.2f}%;width:{max(right - left, 0.5):.2f}%"></span>'
            f'<span class="dot" style="left:{left:.2f}%"></span>'
            f'<span class="tick" style="left:{place(spread.p90):.2f}%"></span>'
            f'<span class="tick" style="left:{place(spread.most):.2f}%"></span></span>'
            f'<span class="value">{escape(told)}</span></div>'
        )
    return f'<div class="bars spreads">{"".join(rows)}</div>'


def _damage_map(log: DamageMap) -> str:
    size = log.end - log.start
    if size <= 0:
        return _nothing("the log is empty")
    cells = []
    for number in range(_MAP_CELLS):
        start, end = log.start + size * number // _MAP_CELLS, log.start + size * (number + 1) // _MAP_CELLS
        inside = [bad for bad in log.damaged if bad.start < max(end, start + 1) and bad.end > start]
        border = any(start <= at < end for at in log.segments) and number > 0
        names = " ".join(name for name, holds in (("bad", bool(inside)), ("file", border)) if holds)
        told = f"{start:,} to {end:,}" + "".join(f"; {bad.start:,} to {bad.end:,}: {bad.reason}" for bad in inside[:3])
        cells.append(f'<i class="{names}" title="{escape(told)}"></i>')
    lost = sum(bad.end - bad.start for bad in log.damaged)
    places = f"{len(log.damaged):,} damaged place{'' if len(log.damaged) == 1 else 's'}"
    words = f"{places}, {amount(lost, 'bytes')}" if log.damaged else "no damage"
    return (
        f'<div class="map" role="img" aria-label="{escape(words)}">{"".join(cells)}</div>'
        f'<div class="ends"><span>{log.start:,}</span><span>{escape(words)}; lines are file borders</span>'
        f"<span>{log.end:,}</span></div>"
    )


def _table(table: Table) -> str:
    if not table.rows:
        return _nothing("none")
    numeric = [isinstance(cell, int | float) for cell in table.rows[0]]
    head = "".join(
        f'<th class="number">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(table.names, numeric, strict=True)
    )
    body = "".join(_table_row(row) for row in table.rows[: table.shown_max])
    rest = _rest(len(table.rows) - table.shown_max)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}'


def _table_row(row: Iterable[object]) -> str:
    cells = []
    for cell in row:
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            text = f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}"
            cells.append(f'<td class="number">{text}</td>')
        else:
            cells.append(f"<td>{escape('' if cell is None else str(cell))}</td>")
    return f"<tr>{''.join(cells)}</tr>"
