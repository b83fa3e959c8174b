"""One self-contained HTML page from the figures of a job: nothing is fetched, nothing runs.

    figures.py   what a page can show, as values
    charts.py    each of them as HTML or SVG
    times.py     steps of time
    page.py      the page around them, and the one place that writes it

Jobs build a `Report`; `write_report` makes the file. Pure but for that.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.report.figures import (
        Bar,
        Bars,
        DamagedStretch,
        DamageMap,
        KeyFigure,
        Percentiles,
        ReportPage,
        Section,
        Spread,
        StackedSeries,
        Steps,
        Table,
        TimeSeries,
    )
    from embermq.spark.report.metrics import Metric, Sample, check_metrics_place, metrics_text, write_metrics
    from embermq.spark.report.page import check_report_place, render, write_report

__all__ = [
    "Bar",
    "Bars",
    "DamageMap",
    "DamagedStretch",
    "KeyFigure",
    "Metric",
    "Percentiles",
    "ReportPage",
    "Sample",
    "Section",
    "TimeSeries",
    "Spread",
    "StackedSeries",
    "Steps",
    "Table",
    "check_metrics_place",
    "check_report_place",
    "metrics_text",
    "render",
    "write_metrics",
    "write_report",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Bar": "embermq.spark.report.figures",
            "Bars": "embermq.spark.report.figures",
            "DamageMap": "embermq.spark.report.figures",
            "DamagedStretch": "embermq.spark.report.figures",
            "KeyFigure": "embermq.spark.report.figures",
            "Metric": "embermq.spark.report.metrics",
            "Sample": "embermq.spark.report.metrics",
            "check_metrics_place": "embermq.spark.report.metrics",
            "metrics_text": "embermq.spark.report.metrics",
            "write_metrics": "embermq.spark.report.metrics",
            "Percentiles": "embermq.spark.report.figures",
            "ReportPage": "embermq.spark.report.figures",
            "Section": "embermq.spark.report.figures",
            "TimeSeries": "embermq.spark.report.figures",
            "Spread": "embermq.spark.report.figures",
            "StackedSeries": "embermq.spark.report.figures",
            "Steps": "embermq.spark.report.figures",
            "Table": "embermq.spark.report.figures",
            "check_report_place": "embermq.spark.report.page",
            "render": "embermq.spark.report.page",
            "write_report": "embermq.spark.report.page",
        },
    )
