"""`embermq demo`: a store is written, killed, recovered, checked, continued and queried; then Spark follows it.

    write     a child process appends orders, each acknowledged only when it is on the disk
    kill      SIGKILL, somewhere in the middle
    recover   this process opens what is left
    check     every acknowledged message is there with its bytes, in order and once
    go on     the rest of the stream is appended where the log ends
    query     the history of one order by its key, messages by time, by tag and by id
    Spark     demo_spark.py, where pyspark is installed

The exit code is 1 if the check finds anything wrong.
"""

import importlib
import importlib.util
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn

import embermq.spark
from embermq import StoredMessage
from embermq.cli.killed_writer import KilledWriter
from embermq.cli.order_check import Findings, check, iter_queue
from embermq.cli.order_writer import demo_settings
from embermq.cli.orders import TOPICS, OrderEvent, order_events
from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    output_option,
    show_bytes,
    show_clock,
    show_count,
    show_rate,
    show_seconds,
    show_yes,
)
from embermq.settings import KernelUse
from embermq.store import MessageStore

# The writer is killed at the latest after this time, however far it got.
WRITING_SECONDS_MAX = 4.0
# Where in the stream it is killed: somewhere between these shares of it.
KILL_EARLIEST, KILL_LATEST = 0.4, 0.7
APPEND_MESSAGES = 500
# From about 4 MiB of log on a store uses compiled kernels.
KERNELS_MESSAGES_MIN = 14_000
KERNELS_SECONDS_MAX = 6.0
KERNELS = ("embermq.columns.compiled.scan", "embermq.columns.compiled.derive")


@click.command()
@click.option(
    "--messages",
    type=click.IntRange(min=100, max=1_000_000),
    default=30_000,
    show_default=True,
    help="Length of the stream.",
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
def demo(output: Output, messages: int, directory: Path | None, keep: bool, spark: bool | None, report: Path) -> None:
    """See a store being written, killed, recovered and read; and Spark following it."""
    if spark is None:
        spark = importlib.util.find_spec("pyspark") is not None
    began = time.monotonic()
    with _place(directory, keep) as place:
        root = place / "store"
        good = run_demo(output, root, messages)
        if spark:
            good &= _spark_act(output, place, messages, report)
    seconds = time.monotonic() - began
    output.record("demo", {"good": good, "seconds": seconds, "path": str(root) if keep else None})
    if keep:
        output.say(f"The store is in {root}; look around with: embermq store info {root}")
    if not good:
        output.say("✘ The store does not hold what it acknowledged.", style="bold red")
        click.get_current_context().exit(1)
    output.say("")
    promise = "Every acknowledged message is there: its bytes, in order, once."
    output.say(f"✔ {promise} All of this took {show_seconds(seconds)}.", style="bold green")


def _spark_act(output: Output, place: Path, count: int, report: Path) -> bool:
    embermq.spark.require_extra()
    act = importlib.import_module("embermq.cli.demo_spark").run_spark_demo
    return bool(act(output, place / "store", place / "lake", order_events(2 * count), report))


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


def run_demo(output: Output, root: Path, count: int) -> bool:
    """All of it; whether everything was as promised."""
    events = order_events(count)
    output.say(
        f"A child process appends {count:,} order events; each counts as stored when it is on the disk.",
        style="bold",
    )
    kill_after = int(count * random.uniform(KILL_EARLIEST, KILL_LATEST))
    with _compiling(output, count) as kernels_ready:
        with KilledWriter(root, count) as writer, _progress_line(output, count) as progress:
            writer.listen(kill_after, WRITING_SECONDS_MAX, progress)
        output.show(_writing(writer))
        settings = demo_settings().replace(kernels=kernels_ready())
    with MessageStore.open(root, settings) as store:
        recovered_end = store.max_physical
        output.show(_recovery(store))
        found = check(store, events, writer.acknowledged)
        output.show(_comparison(found))
        output.show(_go_on(store, events, found.stored))
        complete = check(store, events, writer.acknowledged)
        output.show(_queues(store))
        _query(output, store, events, found.stored, recovered_end)
    return found.good and complete.good and complete.stored == count


@contextmanager
def _progress_line(output: Output, count: int) -> Iterator[Callable[[int], None]]:
    """A line that grows, for people who watch; nothing otherwise."""
    if not output.notes.is_terminal:
        yield lambda _done: None
        return
    columns = (
        TextColumn("  writing"),
        BarColumn(bar_width=40),
        TextColumn("{task.fields[done]:>9,} acknowledged"),
        TextColumn("{task.fields[rate]:>9,.0f}/s"),
    )
    with Progress(*columns, console=output.notes, transient=True) as line:
        task = line.add_task("", total=count, done=0, rate=0.0)
        began = time.monotonic()

        def progress(done: int) -> None:
            line.update(task, completed=done, done=done, rate=done / max(0.001, time.monotonic() - began))

        yield progress


@contextmanager
def _compiling(output: Output, count: int) -> Iterator[Callable[[], KernelUse]]:
    """Compile kernels meanwhile, if the store gets large enough for them; the answer is for when they are needed.

    Their first use on a machine compiles them, which takes seconds: another process does it during the
    writing. Where that takes too long the demo goes on without them.
    """
    if count < KERNELS_MESSAGES_MIN:
        yield lambda: KernelUse.NEVER
        return
    command = [sys.executable, "-c", f"import {', '.join(KERNELS)}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as compiler:

        def ready() -> KernelUse:
            if compiler.poll() is None:
                output.say("\nCompiling kernels; this happens once on a machine.", style="dim")
            try:
                compiled = compiler.wait(KERNELS_SECONDS_MAX) == 0
            except subprocess.TimeoutExpired:
                return KernelUse.NEVER
            if compiled:
                for name in KERNELS:
                    importlib.import_module(name)
            return KernelUse.AUTO if compiled else KernelUse.NEVER

        try:
            yield ready
        finally:
            compiler.kill()


# -- what happened -------------------------------------------------------------------------------------


def _writing(writer: KilledWriter) -> NamedValues:
    count = len(writer.acknowledged)
    return NamedValues(
        "writing",
        "Written, then killed with SIGKILL",
        [
            NamedValue("pid", "process", writer.pid),
            NamedValue("acknowledged_messages", "messages acknowledged", count, show_count),
            NamedValue("seconds", "in", writer.seconds, show_seconds),
            NamedValue("messages_per_second", "that is", count / max(writer.seconds, 0.001), show_rate),
        ],
    )


def _recovery(store: MessageStore) -> NamedValues:
    report = store.recovery
    return NamedValues(
        "recovery",
        "Opened again",
        [
            NamedValue("clean", "was closed cleanly", report.clean, show_yes),
            NamedValue("scanned_bytes", "log walked", report.scanned_bytes, show_bytes),
            NamedValue("records", "records checked", report.records, show_count),
            NamedValue("truncated_bytes", "torn tail cut off", report.truncated_bytes, show_bytes),
            NamedValue("damaged_places", "damaged places", len(report.damages), show_count),
            NamedValue("log_bytes", "log now", store.max_physical - store.min_physical, show_bytes),
            NamedValue("seconds", "took", report.seconds, show_seconds),
        ],
    )


def _comparison(found: Findings) -> Rows:
    rows = [
        ("acknowledged before the kill", found.acknowledged, None),
        ("stored, but killed before it could say so", found.unacknowledged, None),
        ("missing", len(found.missing), not found.missing),
        ("with other bytes, or elsewhere", len(found.altered), not found.altered),
        ("stored twice", len(found.repeated), not found.repeated),
        ("out of order", len(found.out_of_order), not found.out_of_order),
        ("not sent by us", found.foreign, not found.foreign),
    ]
    columns = (
        TableColumn("what", "messages that are"),
        number("messages", "count"),
        TableColumn("good", "as promised", show_yes),
    )
    return Rows("check", "Read back, queue by queue, and compared", columns, rows)


def _go_on(store: MessageStore, events: Sequence[OrderEvent], start: int) -> NamedValues:
    """Append the rest of the stream where the log ends."""
    began = time.monotonic()
    for at in range(start, len(events), APPEND_MESSAGES):
        store.append_many([event.message() for event in events[at : at + APPEND_MESSAGES]])
    seconds = time.monotonic() - began
    count = len(events) - start
    return NamedValues(
        "going_on",
        "Then the rest of the stream, in the same store",
        [
            NamedValue("messages", "messages acknowledged", count, show_count),
            NamedValue("seconds", "in", seconds, show_seconds),
            NamedValue("messages_per_second", "that is", count / max(seconds, 1e-6), show_rate),
        ],
    )


# -- what is there -------------------------------------------------------------------------------------


def _queues(store: MessageStore) -> Rows:
    rows = []
    for topic, queue_ids in sorted(store.topics().items()):
        for queue_id in queue_ids:
            messages = list(iter_queue(store, topic, queue_id))
            size = sum(message.size for message in messages)
            rows.append((topic, queue_id, len(messages), size, size / max(1, len(messages))))
    columns = (
        TableColumn("topic", "topic"),
        number("queue_id", "queue", str),
        number("messages", "messages"),
        number("size_bytes", "size", show_bytes),
        number("average_bytes", "per message", show_bytes),
    )
    return Rows("queues", "Topics and queues", columns, rows)


class _Stopwatch:
    """Runs queries and notes what they found and how long they took."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float]] = []

    def time(self, query: str, ask: Callable[[], Any], describe: Callable[[Any], str]) -> Any:
        began = time.perf_counter()
        answer = ask()
        self.rows.append((query, describe(answer), time.perf_counter() - began))
        return answer


def _query(
    output: Output, store: MessageStore, events: Sequence[OrderEvent], killed_at: int, recovered_end: int
) -> None:
    order_id = _order_across(events, killed_at)
    watch = _Stopwatch()
    life: list[StoredMessage] = []
    for topic in TOPICS:
        query = f"key {order_id} in {topic}"
        life += watch.time(query, partial(store.find, topic, order_id), _messages_text)
    life.sort(key=lambda message: message.physical_offset)
    output.show(_life(life, order_id, recovered_end))

    first = life[0]
    watch.time(f"message id {first.message_id}", lambda: store.get(first.message_id), _found_text)
    then_ms = life[-1].store_timestamp
    watch.time(
        f"payments, queue 0, at {show_clock(then_ms)}",
        lambda: store.offset_at("payments", 0, then_ms),
        lambda offset: f"queue offset {offset:,}",
    )
    watch.time(
        "orders, queue 0, tag cancelled, first ones",
        lambda: store.fetch("orders", 0, 0, 32, "cancelled").messages,
        _messages_text,
    )
    columns = (TableColumn("query", "query"), TableColumn("answer", "answer"), number("seconds", "took", show_seconds))
    output.show(Rows("queries", "Questions and answers", columns, watch.rows))


def _order_across(events: Sequence[OrderEvent], killed_at: int) -> str:
    """An order that was under way when the writer was killed, and has all three steps."""
    steps: dict[str, list[int]] = defaultdict(list)
    for event in events:
        steps[event.order_id].append(event.number)
    whole = [order_id for order_id, numbers in steps.items() if len(numbers) == len(TOPICS)]
    across = [order_id for order_id in whole if steps[order_id][0] < killed_at <= steps[order_id][-1]]
    return (across or whole or list(steps))[0]


def _life(messages: Sequence[StoredMessage], order_id: str, recovered_end: int) -> Rows:
    columns = (
        TableColumn("store_timestamp_ms", "stored at", show_clock),
        TableColumn("topic", "topic"),
        number("queue_id", "queue", str),
        number("queue_offset", "queue offset"),
        TableColumn("tags", "tag"),
        TableColumn("region", "region"),
        number("amount_eur", "amount", lambda text: f"{text} EUR"),
        TableColumn("before_kill", "written", lambda before: "before the kill" if before else "after it"),
    )
    rows = [
        (
            one.store_timestamp,
            one.topic,
            one.queue_id,
            one.queue_offset,
            one.tags,
            one.properties["region"],
            one.properties["amount"],
            one.physical_offset < recovered_end,
        )
        for one in messages
    ]
    return Rows("order", f"The history of {order_id}, found by its key", columns, rows)


def _messages_text(messages: Sequence[StoredMessage]) -> str:
    return f"{len(messages)} message{'' if len(messages) == 1 else 's'}"


def _found_text(message: StoredMessage | None) -> str:
    return "not found" if message is None else f"{message.topic}, {message.tags}, {message.size} bytes"
