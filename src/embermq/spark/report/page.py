"""The page around the figures: head, style, facts, sections. Light and dark as the reader's system says.

No script and nothing fetched: the page can be mailed, archived, and opened in ten years.
"""

import os
from html import escape
from pathlib import Path

from embermq.errors import OptionInvalid
from embermq.spark.report.charts import draw, moment
from embermq.spark.report.figures import KeyFigure, ReportPage, Section

_STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf8; --ink: #1f1d1a; --soft: #6f6a62; --line: #e4dfd6; --card: #ffffff;
  --mark: #c2491d; --quiet: #f0ebe3; --good: #2d7a3e; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #171614; --ink: #ece8e1; --soft: #a49d92; --line: #35322d;
  --card: #201e1b; --mark: #f08a4b; --quiet: #2c2925; --good: #7bc98a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 18px 60px; }
h1 { font-size: 1.6rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.1rem; margin: 36px 0 10px; padding-top: 14px; border-top: 1px solid var(--line); }
p { margin: 6px 0 12px; max-width: 72ch; }
header p, .none, small { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 22px 0 8px; }
.fact { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.fact b { display: block; font-size: 1.45rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.fact.good b { color: var(--good); } .fact.bad b { color: var(--bad); }
.fact span { color: var(--soft); font-size: 0.85rem; }
figure { margin: 0 0 22px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px; }
figcaption { font-weight: 600; margin-bottom: 10px; }
.series { position: relative; }
.series svg { width: 100%; height: 160px; display: block; border-bottom: 1px solid var(--line); }
.series rect { fill: var(--mark); } .series rect:hover { fill: var(--ink); }
.series line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.top { position: absolute; top: -6px; left: 0; font-size: 0.78rem; color: var(--soft); background: var(--card);
  padding-right: 6px; }
.ends { display: flex; justify-content: space-between; gap: 8px; color: var(--soft); font-size: 0.78rem;
  margin-top: 4px; }
.row { display: grid; grid-template-columns: minmax(90px, 24%) 1fr minmax(84px, 22%); gap: 10px; align-items: center;
  padding: 3px 0; }
.spreads .row { grid-template-columns: minmax(90px, 20%) 1fr minmax(84px, 38%); }
.label { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.value { text-align: right; font-variant-numeric: tabular-nums; font-size: 0.86rem; }
.track { position: relative; display: block; height: 14px; background: var(--quiet); border-radius: 3px; }
.fill { display: block; height: 100%; background: var(--mark); border-radius: 3px; }
.range { position: absolute; top: 4px; height: 6px; background: var(--mark); opacity: 0.55; border-radius: 3px; }
.dot { position: absolute; top: 2px; width: 10px; height: 10px; margin-left: -5px; border-radius: 50%;
  background: var(--mark); }
.tick { position: absolute; top: 1px; width: 2px; height: 12px; background: var(--ink); opacity: 0.5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--soft); font-size: 0.82rem; margin: 6px 0; }
.key { display: inline-block; position: static; width: 12px; height: 12px; margin: 0 6px 0 0; border-radius: 3px;
  vertical-align: -1px; }
.key.dot { width: 10px; height: 10px; border-radius: 50%; } .key.tick { width: 2px; }
.key.range { width: 22px; height: 6px; vertical-align: 2px; }
.key.p0 { background: #c2491d; } .key.p1 { background: #2a6f97; }
.key.p2 { background: #6a994e; } .key.p3 { background: #b08900; }
.key.p4 { background: #7b5ea7; } .key.p5 { background: #8d8d8d; }
.series rect.p0 { fill: #c2491d; } .series rect.p1 { fill: #2a6f97; } .series rect.p2 { fill: #6a994e; }
.series rect.p3 { fill: #b08900; } .series rect.p4 { fill: #7b5ea7; } .series rect.p5 { fill: #8d8d8d; }
.map { width: 100%; height: 34px; display: block; border-radius: 4px; }
.map .log { fill: var(--good); opacity: 0.7; } .map .bad { fill: var(--bad); } .map .bad:hover { fill: var(--ink); }
.map line { stroke: var(--card); stroke-width: 2; vector-effect: non-scaling-stroke; }
.files { margin-top: 14px; } .files .row { grid-template-columns: minmax(170px, 26%) 1fr minmax(84px, 26%); }
.files .map { height: 18px; } .files .label { font-family: ui-monospace, monospace; font-size: 0.82rem; }
.wide { overflow-x: auto; }
td.text { min-width: 14ch; } td.long { min-width: 22ch; overflow-wrap: anywhere; }
td.path { min-width: 20ch; font-family: ui-monospace, monospace; font-size: 0.94em; }
td.fault { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; min-width: 50%; font-size: 0.88rem; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 560px) { .row, .spreads .row, .files .row { grid-template-columns: 1fr auto; }
  td, td.text, td.long, td.path { min-width: 0; overflow-wrap: anywhere; } th { white-space: normal; }
  .stack thead { display: none; } .stack tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
  .stack td, .stack td.number { display: block; border: 0; padding: 1px 0; min-width: 0; text-align: left; }
  .stack td:empty { display: none; } .stack td::before { content: attr(data-name); color: var(--soft); }
  .track, .files .map { grid-column: 1 / -1; grid-row: 2; } .spreads .value { grid-column: 1 / -1; text-align: left; } }
@media print { body { background: #fff; } figure { break-inside: avoid; } }
"""


def render(report: ReportPage) -> str:
    """The whole page as text."""
    facts = "".join(map(_fact, report.facts))
    sections = "".join(map(_section, report.sections))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body><main>"
        f"<header><h1>{escape(report.title)}</h1>"
        f"<p>{escape(report.subject)}<br>made {moment(report.made_ms)} UTC by EmberMQ; times are UTC</p></header>"
        f'<div class="facts">{facts}</div>{sections}</main></body></html>\n'
    )


def _fact(fact: KeyFigure) -> str:
    note = f"<span>{escape(fact.note)}</span>" if fact.note else ""
    return f'<div class="fact {fact.mood}"><span>{escape(fact.label)}</span><b>{escape(fact.value)}</b>{note}</div>'


def _section(section: Section) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    return f"<section><h2>{escape(section.title)}</h2>{text}{''.join(map(draw, section.figures))}</section>"


def check_report_place(path: str | Path) -> Path:
    """OptionInvalid if no page can be written there: said before hours of work, not after."""
    target = Path(path).expanduser().absolute()
    if target.is_dir():
        raise OptionInvalid("report", "this is a directory; name a file", value=str(path))
    if not target.parent.is_dir():
        raise OptionInvalid("report", f"there is no directory {target.parent}", value=str(path))
    if not os.access(target.parent, os.W_OK):
        raise OptionInvalid("report", f"cannot be written: {target.parent} is read-only", value=str(path))
    return target


def write_report(report: ReportPage, path: str | Path) -> Path:
    """Write the page as a whole or not at all; OptionInvalid if the place cannot be written."""
    target = check_report_place(path)
    half = target.with_name(f".{target.name}.part")
    try:
        half.write_text(render(report), encoding="utf-8", errors="replace")  # A topic may be no text at all.
        half.replace(target)
    except OSError as problem:
        half.unlink(missing_ok=True)
        raise OptionInvalid("report", f"cannot be written: {problem.strerror or problem}", value=str(path)) from None
    return target
