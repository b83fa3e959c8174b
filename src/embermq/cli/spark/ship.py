"""`embermq spark ship`: logs to a place far from the broker, once or for as long as it is wanted."""

import json
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from types import FrameType

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes, show_seconds
from embermq.cli.quantities import Duration
from embermq.cli.spark.common import log_options, master_option, stores_argument, working
from embermq.cli.store import BadInput
from embermq.errors import OptionInvalid, StoreError
from embermq.spark import ship as job_ship
from embermq.spark.jobs import EVERY_SECONDS, FollowRound, ProgressReport, Shipped, keep_shipping
from embermq.spark.shipped import shown


@click.command()
@stores_argument
@click.option(
    "--to", "--into", "target", required=True, metavar="URI", help="Target: s3://, gs://, hdfs://, or a directory."
)
@click.option("--tail", is_flag=True, help="Include the log file that is still being written.")
@click.option("--follow", is_flag=True, help="Run until Ctrl-C or SIGTERM; ships whole log files and the tail.")
@click.option(
    "--every",
    type=Duration(0.1),
    metavar="DURATION",
    help=f"Interval of --follow; the default is {EVERY_SECONDS:g}s.",
)
@click.option("--ignore-data-loss", is_flag=True, help="Continue with a gap if the next range is no longer in the log.")
@log_options
@master_option
@output_option
def ship(
    output: Output,
    paths: tuple[str, ...],
    target: str,
    tail: bool,
    follow: bool,
    every: float | None,
    ignore_data_loss: bool,
    master: str | None,
) -> None:
    """Copy the logs of stores to another file system, from which Spark reads ranges.

    Every object is read back before the manifest names it. Run it again and again: only what is new is shipped. Or let
    it go on with --follow: a target that does not answer is tried again; with --output json each round that shipped
    something is a line of its own while it works. Credentials for S3 are best given as AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY; endpoint and region as options.

    \b
    embermq spark ship /data/broker-a --to s3://bucket/logs
    embermq spark ship '/data/broker-*' --to 's3://bucket/logs?region=eu-west-1' --tail
    embermq spark ship /data/broker-a --to s3://bucket/logs --follow --every 5
    """
    if every is not None and not follow:
        raise OptionInvalid("every", "has no meaning without --follow")
    try:
        with working(output, master, "embermq ship") as (spark, on_progress):
            if follow:
                with StopSignals() as asked:
                    done = _follow(
                        output,
                        on_progress,
                        asked,
                        keep_shipping(
                            spark,
                            list(paths),
                            target,
                            every_seconds=every or EVERY_SECONDS,
                            ignore_data_loss=ignore_data_loss,
                            stop=asked,
                        ),
                    )
            else:
                done = job_ship(
                    spark, list(paths), target, tail=tail, ignore_data_loss=ignore_data_loss, on_progress=on_progress
                )
    except StoreError as problem:  # Another log, one with a gap, a manifest that was changed: nothing was shipped.
        raise BadInput(str(problem)) from problem
    output.record("shipped", [asdict(one) for one in done])
    if not output.as_json:
        _show(output, done, target)
    if any(one.damaged_bytes for one in done):
        raise click.exceptions.Exit(1)


class StopSignals:
    """Whether Ctrl-C or SIGTERM asked to stop. The second time that means what it always did."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._is_asked = False

    def __call__(self) -> bool:
        return self._is_asked

    def __enter__(self) -> "StopSignals":
        for one in (signal.SIGINT, signal.SIGTERM):
            self._before[one] = signal.signal(one, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
        self._restore()

    def _restore(self) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
        self._before.clear()


def _follow(
    output: Output, on_progress: ProgressReport, asked: StopSignals, rounds: Iterable[FollowRound]
) -> list[Shipped]:
    """Tell what happens, and add up what was shipped of each store."""
    totals: dict[str, Shipped] = {}
    on_progress("waiting for new data", 0, 1)
    for one in rounds:
        for shipped in one.shipped:
            before = totals.get(shipped.broker_name)
            totals[shipped.broker_name] = shipped if before is None else _sum(before, shipped)
        if output.as_json:
            if one.shipped or one.failure:
                click.echo(json.dumps(asdict(one) | {"bytes_per_second": one.bytes_per_second}), err=True)
        elif one.failure:
            output.say(f"{one.failure}; trying again in {show_seconds(one.pause_seconds)}")
        if one.damaged_bytes and not output.as_json:
            output.say(f"{show_bytes(one.damaged_bytes)} of the log are damaged and shipped unchanged")
        on_progress(_line(one, list(totals.values())), 0, 1)
    if asked():
        on_progress("stopping", 1, 1)
    return list(totals.values())


def _line(one: FollowRound, done: Sequence[Shipped]) -> str:
    shipped = f"{show_bytes(sum(each.bytes for each in done))} in {sum(each.objects for each in done):,} objects"
    rate = f"{show_bytes(one.bytes_per_second)}/s"
    state = "waiting for the target" if one.failure else rate
    return f"behind {show_bytes(one.lag_bytes)}, {state}, shipped {shipped}"


def _sum(one: Shipped, other: Shipped) -> Shipped:
    """Two runs of one store as one."""
    return Shipped(
        other.broker_name,
        other.path,
        other.target,
        min(one.start, other.start),
        other.end,
        one.objects + other.objects,
        one.bytes + other.bytes,
        one.records + other.records,
        one.damaged_bytes + other.damaged_bytes,
        other.manifest,
    )


def _show(output: Output, done: Sequence[Shipped], target: str) -> None:
    columns = [
        TableColumn("broker", "broker"),
        number("start", "log from"),
        number("end", "to"),
        number("records", "records"),
        number("objects", "objects"),
        number("bytes", "shipped", show_bytes),
        number("damaged", "damaged", show_bytes),
        number("manifest", "manifest"),
    ]
    rows = [
        [one.broker_name, one.start, one.end, one.records, one.objects, one.bytes, one.damaged_bytes, one.manifest]
        for one in done
    ]
    output.show(Rows("shipped", f"shipped to {shown(target)}", columns, rows, empty="nothing new"))
