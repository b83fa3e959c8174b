"""`embermq spark lag`: how far streams and pipelines are behind. Starts no Spark."""

import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes, show_seconds, show_time
from embermq.cli.quantities import Duration
from embermq.cli.spark.common import log_options
from embermq.cli.spark.ship import StopSignals
from embermq.clock import SystemClock
from embermq.errors import OptionInvalid
from embermq.spark.jobs import CheckpointLag, StreamLag, lag_metrics, stream_lag
from embermq.spark.report import check_metrics_place, write_metrics

_WAIT_SECONDS = 0.2


@click.command()
@click.option(
    "--checkpoint",
    "checkpoints",
    required=True,
    multiple=True,
    metavar="DIR",
    help="Of a stream or pipeline; repeatable.",
)
@click.option(
    "--store", "paths", required=True, multiple=True, metavar="DIR", help="Store directory or glob; repeatable."
)
@click.option("--metrics-file", metavar="FILE", help="Also write the figures there, in the text format of Prometheus.")
@click.option(
    "--every", type=Duration(1.0), metavar="DURATION", help="With --metrics-file: again and again, until Ctrl-C."
)
@log_options
@output_option
def lag(
    output: Output,
    checkpoints: tuple[str, ...],
    paths: tuple[str, ...],
    metrics_file: str | None,
    every: float | None,
) -> None:
    """Show how far streams and pipelines are behind the stores they read, by their checkpoints. They may be running.

    Exit code 1 if a log no longer has what comes next, or is not the one that was read.

    \b
    embermq spark lag --checkpoint /data/lake/_checkpoint --store /data/broker-a
    embermq spark lag --checkpoint /data/progress --store '/data/broker-*' \\
        --metrics-file /var/lib/node_exporter/spark.prom --every 15s
    """
    if every is not None and metrics_file is None:
        raise OptionInvalid("every", "has no meaning without --metrics-file")
    place = check_metrics_place(metrics_file) if metrics_file is not None else None
    found = _look(checkpoints, paths, place)
    if every is not None:
        with StopSignals() as asked:
            while not _wait(every, asked):
                found = _look(checkpoints, paths, place)
    output.record("checkpoints", [asdict(one) for one in found])
    if not output.as_json:
        for one in found:
            _show(output, one)
    if not all(one.is_sound for one in found):
        raise click.exceptions.Exit(1)


def _look(checkpoints: Sequence[str], paths: Sequence[str], place: Path | None) -> list[CheckpointLag]:
    now_ms = SystemClock().now_ms()
    found = [stream_lag(one, paths, now_ms=now_ms) for one in checkpoints]
    if place is not None:
        write_metrics(place, [metric for one in found for metric in lag_metrics(one, now_ms)])
    return found


def _wait(seconds: float, asked: StopSignals) -> bool:
    """Whether it was asked to stop meanwhile."""
    never, left = threading.Event(), seconds
    while left > 0 and not asked():
        never.wait(min(left, _WAIT_SECONDS))
        left -= _WAIT_SECONDS
    return asked()


def _show(output: Output, found: CheckpointLag) -> None:
    batch = "no batch yet" if found.batch is None else f"batch {found.batch:,}, {show_time(found.batch_ms)}"
    columns = [
        TableColumn("broker", "broker"),
        TableColumn("topic", "topic"),
        TableColumn("queue", "queue"),
        number("position", "position"),
        number("end", "end"),
        TableColumn("behind", "behind", right=True),
        TableColumn("since", "waiting for", right=True),
        TableColumn("state", "state"),
    ]
    rows = [
        [
            one.broker_name,
            one.topic or "(log)",
            one.queue_id,
            one.position,
            one.end,
            _behind(one),
            _waits(one),
            one.state,
        ]
        for one in found.lags
    ]
    output.show(Rows("lags", f"{found.checkpoint}: {batch}", columns, rows, empty="nothing was read yet"))


def _behind(one: StreamLag) -> str | None:
    if one.behind_bytes is not None:
        return show_bytes(one.behind_bytes)
    return None if one.behind_messages is None else f"{one.behind_messages:,}"


def _waits(one: StreamLag) -> str | None:
    return None if not one.behind_seconds else show_seconds(one.behind_seconds)
