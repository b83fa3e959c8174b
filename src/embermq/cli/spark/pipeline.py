"""`embermq spark pipeline`: follow logs and derive from them."""

import json
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes, show_seconds
from embermq.cli.quantities import Duration, Size
from embermq.cli.spark.common import cluster_options, log_options, master_option, shown_paths, working
from embermq.cli.spark.lake_options import lake_options
from embermq.cli.spark.ship import StopSignals
from embermq.cli.store import BadInput
from embermq.cli.store.options import settings_for, writing_options
from embermq.clock import SystemClock
from embermq.errors import OptionInvalid, StoreError
from embermq.spark.lake import LakeFormat, TopicFilter, schemas_in_words
from embermq.spark.pipelines import BatchProgress, ReportSink, RunMetrics, pipeline_report
from embermq.spark.pipelines import pipeline as make_pipeline
from embermq.spark.planning import plain_path
from embermq.spark.report import check_metrics_place, check_report_place, write_metrics, write_report

_BATCHES_KEPT = 5_000
_BATCHES_SHOWN = 50  # of a pipeline that goes on for ever
_DAMAGES_SHOWN = 1_000
_PAGE_SECONDS = 10.0
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@click.command()
@click.argument("paths", nargs=-1, metavar="[DIR]...")
@cluster_options
@click.option("--group", metavar="GROUP", help="With --name-server: consumer group whose progress is committed.")
@click.option(
    "--into",
    metavar="LAKE",
    help="Directory or URI of the lake; statistics and the checkpoint are stored there as well.",
)
@click.option(
    "--derive", default="lake,stats", show_default=True, help="Comma-separated list of queues, index, lake, stats."
)
@click.option("--follow/--once", default=None, help="Run until stopped, or stop at the end of the logs (the default).")
@click.option(
    "--every",
    type=Duration(0.5),
    metavar="DURATION",
    help="Follow with one batch per interval (60s, 5m); a full batch starts at once. Creates fewer, larger files.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Include only these topics: name or pattern (orders*). Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="TOPIC", help="Exclude these topics: name or pattern. Repeatable.")
@click.option("--checkpoint", metavar="DIR", help="Directory of the checkpoint; the default is in the lake.")
@click.option(
    "--batch-bytes",
    default=512 << 20,
    show_default="512MiB",
    type=Size(1 << 16),
    metavar="SIZE",
    help="Maximum size of a batch.",
)
@click.option(
    "--file-size",
    type=Size(),
    metavar="SIZE",
    help="Target size of the files of the lake (128MiB); small files are merged.",
)
@lake_options
@click.option("--drop-bodies", is_flag=True, help="Omit bodies that were decoded as JSON.")
@click.option("--report", metavar="FILE.html", help="Write an HTML report; with --follow it is updated regularly.")
@click.option("--metrics-file", metavar="FILE", help="Write metrics in the text format of Prometheus after each batch.")
@click.option("--ignore-data-loss", is_flag=True, help="Continue if the next range is no longer in the log.")
@log_options
@writing_options
@master_option
@output_option
def pipeline(
    output: Output,
    config_file: Path | None,
    changes: tuple[str, ...],
    paths: tuple[str, ...],
    name_server: str | None,
    access: dict[str, str],
    group: str | None,
    into: str | None,
    derive: str,
    follow: bool | None,
    every: float | None,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    checkpoint: str | None,
    batch_bytes: int,
    file_size: int | None,
    ignore_data_loss: bool,
    master: str | None,
    lake_format: LakeFormat | None,
    catalog: str | None,
    json_words: tuple[str, ...],
    drop_bodies: bool,
    report: str | None,
    metrics_file: str | None,
) -> None:
    """Derive from the logs of stores, or from a running cluster: a lake, statistics, or the queues and index of
    log-only stores.

    After a kill, the next run continues where the last one ended. With --output json each batch is one line.
    Ctrl-C and SIGTERM stop it after the current batch; a second signal stops it at once.

    \b
    embermq spark pipeline /data/broker-a --into /data/lake --follow
    embermq spark pipeline /data/broker-a --into /data/lake --every 60s --topic 'orders*' --exclude '*-test'
    embermq spark pipeline /data/broker-a --into /data/lake --json orders='id string, amount decimal(10,2)'
    embermq spark pipeline /data/log-only --derive queues,index --checkpoint /data/progress
    embermq spark pipeline --name-server 127.0.0.1:9876 --into /data/lake --follow --group lake
    """
    _check_source(paths, name_server, group, report)
    if every is not None and follow is False:
        raise OptionInvalid("every", "has no meaning with --once")
    follow = follow or every is not None
    run = _RunSummary()
    settings = settings_for(Path(plain_path(paths[0])), config_file, changes) if paths else None
    schemas = schemas_in_words(json_words)
    page = _Page(report, shown_paths(paths)) if report is not None else None
    figures = _MetricsFile(metrics_file) if metrics_file is not None else None
    with working(output, master, "embermq pipeline") as (spark, on_progress):
        made = make_pipeline(
            spark,
            list(paths),
            name_server=name_server,
            access=access if group is None else access | {"groupId": group},
            into=into,
            derive=[name.strip() for name in derive.split(",") if name.strip()],
            checkpoint=checkpoint,
            settings=settings,
            batch_bytes_max=batch_bytes,
            fail_on_data_loss=not ignore_data_loss,
            on_progress=on_progress,
            lake_format=lake_format,
            catalog=catalog,
            json=schemas,
            drop_bodies=drop_bodies,
            topics=TopicFilter.of(topics, exclude) if topics or exclude else None,
            every_seconds=every or 0.0,
            file_bytes=file_size,
            sinks=[page.sink] if page is not None else [],
        )
        if page is not None:
            page.sink.topics = made.topics
        try:
            made.check()
        except StoreError as problem:
            raise BadInput(str(problem)) from None
        with Live(console=output.notes, transient=True, auto_refresh=False) as view, StopSignals() as asked:

            def stop() -> bool:
                if page is not None:
                    page.keep_fresh()
                return asked()

            for progress in made.follow(stop=stop) if follow else made.work_off(stop=stop):
                run.add(progress, _BATCHES_SHOWN if follow else None)
                if page is not None:
                    page.add(progress)
                if figures is not None:
                    figures.add(progress)
                if output.as_json:
                    click.echo(json.dumps(asdict(progress)), err=True)
                elif output.notes.is_terminal:
                    view.update(_view(run.done), refresh=True)
    _tell(output, run, page)
    if run.damage_count:
        raise click.exceptions.Exit(1)
    if asked() and not follow:  # It was to come to an end, and did not.
        raise click.exceptions.Exit(_INTERRUPTED)


def _check_source(paths: tuple[str, ...], name_server: str | None, group: str | None, report: str | None) -> None:
    if not paths and name_server is None:
        raise OptionInvalid("store", "name at least one store, or a name server")
    if group is not None and name_server is None:
        raise OptionInvalid("group", "has no meaning without --name-server")
    if report is not None and name_server is not None:
        raise OptionInvalid(
            "report",
            "shows what was read of logs; `embermq spark stats --name-server ADDRESSES --report FILE.html` shows the"
            " messages of a cluster",
        )


class _RunSummary:
    """What is shown in the end: of very many batches the last ones, and what all of them found."""

    def __init__(self) -> None:
        self.done: list[BatchProgress] = []
        self.undecoded = self.damage_count = 0
        self.damages: list[str] = []  # the first ones

    def add(self, progress: BatchProgress, kept_max: int | None) -> None:
        self.done.append(progress)
        if kept_max is not None:
            del self.done[:-kept_max]
        for figures in progress.sinks.values():
            self.undecoded += figures.undecoded
            self.damage_count += len(figures.damages)
            self.damages += figures.damages[: max(_DAMAGES_SHOWN - len(self.damages), 0)]


def _tell(output: Output, run: _RunSummary, page: "_Page | None") -> None:
    output.record("batches", [asdict(one) for one in run.done])
    output.record("undecoded", run.undecoded)
    output.record("damages", run.damages)
    if not output.as_json:
        _show(output, run.done)
    if page is not None:
        place = page.write()
        output.record("report", str(place))
        output.say(f"report: {place}")
    if run.undecoded:
        output.say(f"{run.undecoded:,} bodies are no JSON that fits; their rows have no value")
    for text in run.damages:
        output.say(f"damaged: {text}")
    if run.damage_count > len(run.damages):
        output.say(f"and {run.damage_count - len(run.damages):,} more damaged ranges")


class _MetricsFile:
    """Figures for Prometheus, written anew with each batch; when it begins as well, so that they are there."""

    def __init__(self, path: str) -> None:
        self._place, self._clock = check_metrics_place(path), SystemClock()
        self._run = RunMetrics(self._clock.now_ms())
        write_metrics(self._place, self._run.metrics())

    def add(self, progress: BatchProgress) -> None:
        self._run.add(progress, self._clock.now_ms())
        write_metrics(self._place, self._run.metrics())


class _Page:
    """The page of a run: made anew every few seconds, so that one may look while it goes on."""

    def __init__(self, report: str, subject: str) -> None:
        self._place, self._subject = check_report_place(report), subject
        self.sink = ReportSink()
        self._done: deque[BatchProgress] = deque(maxlen=_BATCHES_KEPT)
        self._written = time.monotonic()

    def add(self, progress: BatchProgress) -> None:
        self._done.append(progress)

    def keep_fresh(self) -> None:
        """Called many times a second."""
        if time.monotonic() - self._written >= _PAGE_SECONDS:
            self.write()

    def write(self) -> Path:
        made = pipeline_report(self.sink.figures(), list(self._done), self._subject, SystemClock().now_ms())
        self._written = time.monotonic()
        return write_report(made, self._place)


_COLUMNS = ["batch", "records", "log", "took", "rate", "behind"]


def _cells(one: BatchProgress) -> list[str]:
    rate = f"{show_bytes(one.bytes_per_second)}/s"
    return [
        str(one.batch),
        f"{one.records:,}",
        show_bytes(one.bytes),
        show_seconds(one.seconds),
        rate,
        show_bytes(one.lag_bytes) if one.lag_messages is None else f"{one.lag_messages:,} messages",
    ]


def _view(done: list[BatchProgress]) -> Table:
    table = Table(*_COLUMNS)
    for one in done[-10:]:
        table.add_row(*_cells(one))
    return table


def _show(output: Output, done: list[BatchProgress]) -> None:
    columns = [TableColumn(_COLUMNS[0], _COLUMNS[0]), *(number(name, name, str) for name in _COLUMNS[1:])]
    output.show(Rows("batches", "batches", columns, [_cells(one) for one in done], empty="nothing new"))
