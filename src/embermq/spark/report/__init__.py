"""One self-contained HTML page from the figures of a job: nothing is fetched, nothing runs.

    figures.py   what a page can show, as values
    charts.py    each of them as HTML or SVG
    times.py     steps of time
    page.py      the page around them, and the one place that writes it

Jobs build a `Report`; `write_report` makes the file. Pure but for that.
"""

from embermq.spark.report.figures import (
    Bar,
    Bars,
    DamageMap,
    Fact,
    Percentiles,
    Report,
    Section,
    Series,
    Spread,
    Steps,
    Stretch,
    Table,
)
from embermq.spark.report.page import check_report_place, render, write_report

__all__ = [
    "Bar", "Bars", "DamageMap", "Fact", "Percentiles", "Report", "Section", "Series", "Spread", "Steps", "Stretch",
    "Table", "check_report_place", "render", "write_report",
]  # fmt: skip
