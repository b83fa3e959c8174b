"""`embermq demo`: the acts in order, and the verdict.

    traffic   a broker, two producers and a consumer group over sockets; the broker is killed and comes back
    check     every acknowledged message is there with its bytes, in order, and was consumed
    query     the history of one order by its key, messages by time, by tag and by id
    Spark     with_spark.py, where pyspark is installed

The exit code is 1 if a check finds anything wrong.
"""

import importlib
import importlib.util
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import embermq.spark
from embermq.cli.demo.check import Findings, check
from embermq.cli.demo.orders import order_events
from embermq.cli.demo.questions import ask_questions
from embermq.cli.demo.settings import demo_settings
from embermq.cli.demo.traffic import CONSUMERS, PRODUCERS, Traffic, run_traffic
from embermq.cli.output import (
    Output,
    Rows,
    TableColumn,
    number,
    output_option,
    show_bytes,
    show_count,
    show_seconds,
    show_yes,
)
from embermq.store import MessageStore

MESSAGES, MESSAGES_FAST = 12_000, 3_000
# The producers spread their orders over so long, where the machine is fast enough.
TRAFFIC_SECONDS, TRAFFIC_SECONDS_FAST = 10.0, 3.0
MESSAGES_PER_SECOND_MIN = 1000


@click.command()
@click.option("--fast", is_flag=True, help="A shorter stream, and less of Spark: within a minute.")
@click.option(
    "--messages",
    type=click.IntRange(min=100, max=1_000_000),
    help=f"Length of the stream. [default: {MESSAGES:,}; with --fast {MESSAGES_FAST:,}]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the store goes: a new or empty directory. Default: a temporary one.",
)
@click.option("--keep", is_flag=True, help="Leave the store there for you to look at.")
@click.option("--spark/--no-spark", default=None, help="Whether Spark takes part; it does if it is installed.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("embermq-demo.html"),
    show_default=True,
    help="Where the page goes that Spark makes.",
)
@output_option
def demo(
    output: Output,
    fast: bool,
    messages: int | None,
    directory: Path | None,
    keep: bool,
    spark: bool | None,
    report: Path,
) -> None:
    """See a broker with producers and consumers being killed, and nothing lost; then Spark on its store."""
    if spark is None:
        spark = importlib.util.find_spec("pyspark") is not None
    count = messages or (MESSAGES_FAST if fast else MESSAGES)
    began = time.monotonic()
    with _place(directory, keep) as place:
        root = place / "store"
        spread = min(TRAFFIC_SECONDS_FAST if fast else TRAFFIC_SECONDS, count / MESSAGES_PER_SECOND_MIN)
        found = run_demo(output, place, count, spread)
        good = found.good
        if spark:
            good &= _spark_act(output, place, count, len(found.again), report, fast=fast)
    seconds = time.monotonic() - began
    output.record("demo", {"good": good, "seconds": seconds, "path": str(root) if keep else None})
    if keep:
        output.say(f"The store is in {root}; look around with: embermq store info {root}")
    if not good:
        output.say("✘ The store does not hold what it acknowledged.", style="bold red")
        click.get_current_context().exit(1)
    output.say("")
    promise = "Every acknowledged message is there, its bytes and its order, and was consumed."
    output.say(f"✔ {promise} All of this took {show_seconds(seconds)}.", style="bold green")


def _spark_act(output: Output, place: Path, count: int, stored_again: int, report: Path, *, fast: bool) -> bool:
    embermq.spark.require_extra()
    act = importlib.import_module("embermq.cli.demo.with_spark").run_spark_demo
    return bool(act(output, place, order_events(2 * count), count, stored_again, report, fast=fast))


@contextmanager
def _place(directory: Path | None, keep: bool) -> Iterator[Path]:
    """The directory for the store; what the demo made goes again, unless it is to be kept."""
    if directory is None:
        root = Path(tempfile.mkdtemp(prefix="embermq-demo-"))
    else:
        root = directory
        if root.is_symlink() and not keep:
            raise click.UsageError(f"{root} is a link, and the demo removes its directory at the end; give --keep")
        if root.exists() and any(root.iterdir()):
            raise click.UsageError(f"{root} is not empty; the demo wants a directory of its own")
        root.mkdir(parents=True, exist_ok=True)
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root)


def run_demo(output: Output, place: Path, count: int, seconds: float) -> Findings:
    """All but Spark; what was found."""
    events = order_events(count)
    output.say(
        f"A broker, {PRODUCERS} producers and a consumer group of {CONSUMERS}, a process each, over sockets:"
        f" {count:,} order events,\nacknowledged when they are on the disk, consumed in order.\n",
        style="bold",
    )
    traffic = run_traffic(output, place, count, seconds)
    _record(output, traffic)
    with MessageStore.open(place / "store", demo_settings()) as store:
        found = check(store, events, traffic.acknowledged, traffic.consumed)
        output.show(_comparison(found))
        killed_at = traffic.recovery["logEnd"]
        assert isinstance(killed_at, int)
        ask_questions(output, store, events, killed_at)
    return found


def _record(output: Output, traffic: Traffic) -> None:
    recovery = traffic.recovery
    output.record("timeline", [line._asdict() for line in traffic.timeline])
    output.record(
        "kill",
        {
            "pid": traffic.killed_pid,
            "acknowledged_messages": traffic.acknowledged_at_kill,
            "back_seconds": traffic.back_seconds,
            "recovery": recovery,
        },
    )
    records, scanned, torn = recovery["records"], recovery["scannedBytes"], recovery["truncatedBytes"]
    assert isinstance(records, int)
    assert isinstance(scanned, int)
    assert isinstance(torn, int)
    output.say(
        f"\n  The killed broker's log was walked: {show_count(records)} records, {show_bytes(scanned)},"
        f" torn tail {show_bytes(torn)}."
    )


def _comparison(found: Findings) -> Rows:
    rows: list[tuple[str, int, bool | None]] = [
        ("acknowledged", found.acknowledged, None),
        ("missing in the store", len(found.missing), not found.missing),
        ("stored with other bytes, or elsewhere", len(found.altered), not found.altered),
        ("stored out of order", len(found.out_of_order), not found.out_of_order),
        ("stored twice: killed before it could say so, and sent again", len(found.again), None),
        ("not sent by us", found.foreign, not found.foreign),
        ("consumed", found.consumed, not found.unconsumed),
        ("consumed out of order", found.consumed_out_of_order, not found.consumed_out_of_order),
        ("consumed twice", found.consumed_again, None),
    ]
    columns = (
        TableColumn("what", "messages that are"),
        number("messages", "count"),
        TableColumn("good", "as promised", show_yes),
    )
    return Rows("check", "Read back, queue by queue, and compared with what was sent and consumed", columns, rows)
