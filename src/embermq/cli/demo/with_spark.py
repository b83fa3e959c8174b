"""The second act of the demo: Spark follows the store while it is written, is killed, goes on, and answers.

    load      a thread of this process appends order events to the store
    pipeline  a child process runs `embermq spark pipeline` into a lake, and is killed after its first batch
    resume    the same pipeline in this process, until nothing is left
    check     lake and log together hold every event once
    archive   the whole log into a second lake, read back before it counts; not with --fast
    audit     every checksum, queue entry, index entry and unique key
    ask       SQL over lake and log
    report    a page to look at

What is imported here needs pyspark: the demo loads this module only if that is installed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import embermq.spark
from embermq.cli.demo.orders import TOPICS, OrderEvent, event_number
from embermq.cli.demo.settings import demo_settings
from embermq.cli.output import Output, Rows, TableColumn, number, show_seconds
from embermq.clock import SystemClock
from embermq.spark import archive, audit, sql, stats
from embermq.spark.jobs import stats_report
from embermq.spark.pipelines import BatchProgress, pipeline
from embermq.spark.reading import messages
from embermq.spark.report import write_report
from embermq.store import MessageStore

LOAD_SECONDS, LOAD_SECONDS_FAST = 6.0, 2.0
LOAD_STEP = 50
BATCH_BYTES = 1 << 20

QUERY = """
select get_json_object(string(body), '$.region') as region, count(*) as orders,
       round(sum(double(get_json_object(string(body), '$.amount'))), 2) as amount_eur
from orders where tags = 'created' group by 1 order by 3 desc
"""


def run_spark_demo(
    output: Output,
    place: Path,
    events: Sequence[OrderEvent],
    sent: int,
    stored_again: int,
    report: Path,
    *,
    fast: bool,
) -> bool:
    """All of the second act; whether lake and log hold what was written. The store in `place` has the first `sent`
    events, so many of them twice."""
    root, lake, steps = place / "store", place / "lake", _Steps(output)
    output.say("\nSpark follows the log while the store goes on writing.", style="bold")
    with MessageStore.open(root, demo_settings()) as store, _load(store, events[sent:], fast=fast) as load:
        killed = _killed_pipeline(root, lake)
        steps.done("spark_killed", f"killed with SIGKILL after a batch of {killed.get('records', 0):,} records", killed)
        spark = embermq.spark.session("embermq demo")
        done = _resume(spark, root, lake, load, store)
    records = sum(one.records for one in done)
    steps.done(
        "spark_pipeline",
        f"started again, it goes on where it was: {len(done)} batches, {records:,} records into Parquet",
        {"batches": len(done), "records": records},
    )
    paths = [str(root)]
    found = [event_number(bytes(row[0])) for row in _orders(spark, paths, lake).select("body").collect()]
    checked = _check(events, found, stored_again)
    steps.done(
        "spark_check",
        f"lake and log together hold every event: {checked['found']:,} rows, {checked['repeated']} twice as in the log",
        checked,
    )
    if not fast:
        archived = archive(spark, paths, str(place / "archive"))
        written = {"records": sum(one.records for one in archived), "bytes": sum(one.file_bytes for one in archived)}
        steps.done("spark_archive", f"archived, read back, compared: {written['records']:,} records", written)
    audited = audit(spark, paths)
    steps.done(
        "spark_audit",
        f"audited, checksums, queues, index: {audited.records:,} records, {len(audited.findings)} findings",
        {"records": audited.records, "findings": len(audited.findings), "sound": audited.is_sound},
    )
    answer = [list(row) for row in sql(spark, QUERY, paths, lake=str(lake)).collect()]
    columns = [TableColumn("region", "region"), number("orders", "orders"), number("amount_eur", "amount", _euros)]
    output.show(Rows("sql", "Asked with SQL, lake and log as one table", columns, answer))
    page = write_report(stats_report(stats(spark, paths, lake=str(lake)), str(root), SystemClock().now_ms()), report)
    spark.stop()
    output.record("report", str(page))
    output.say(f"\nA page to look at: {page}", style="bold")
    return bool(checked["good"]) and audited.is_sound


class _Steps:
    """One line for each step that is done, with the time it took."""

    def __init__(self, output: Output) -> None:
        self._output, self._began = output, time.monotonic()

    def done(self, key: str, text: str, facts: Mapping[str, object]) -> None:
        now = time.monotonic()
        self._output.say(f"  ✔ {text} ({show_seconds(now - self._began)})")
        self._output.record(key, {**facts, "seconds": now - self._began})
        self._began = now


def _orders(spark: Any, paths: Sequence[str], lake: Path) -> Any:
    """Rows of the orders' topics in lake and log."""
    found = messages(spark, paths, lake=str(lake))
    return found.where(found.topic.isin(*TOPICS))


def _check(events: Sequence[OrderEvent], found: Sequence[int], stored_again: int) -> dict[str, object]:
    repeated = len(found) - len(set(found))
    good = set(found) == {event.number for event in events} and repeated == stored_again
    return {"written": len(events), "found": len(found), "repeated": repeated, "good": good}


def _euros(value: float) -> str:
    return f"{value:,.2f} EUR"


class _Load:
    """Appends events over some seconds, on a thread of its own."""

    def __init__(self, store: MessageStore, events: Sequence[OrderEvent], seconds: float) -> None:
        self._store, self._events, self._seconds = store, events, seconds
        self.appended = 0
        self._thread = threading.Thread(target=self._run, name="embermq-demo-load")

    def _run(self) -> None:
        began = time.monotonic()
        for at in range(0, len(self._events), LOAD_STEP):
            step = self._events[at : at + LOAD_STEP]
            self._store.append_many([event.message() for event in step])
            self.appended += len(step)
            behind = began + self._seconds * self.appended / len(self._events) - time.monotonic()
            time.sleep(max(0.0, behind))

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


@contextmanager
def _load(store: MessageStore, events: Sequence[OrderEvent], *, fast: bool) -> Iterator[_Load]:
    load = _Load(store, events, LOAD_SECONDS_FAST if fast else LOAD_SECONDS)
    load.start()
    try:
        yield load
    finally:
        load.join()


def _killed_pipeline(root: Path, lake: Path) -> dict[str, int]:
    """Run the pipeline in a process of its own and kill it when its first batch is done. That batch."""
    command = [
        sys.executable,
        "-m",
        "embermq.cli",
        "spark",
        "pipeline",
        str(root),
        "--into",
        str(lake),
        "--follow",
        "--batch-bytes",
        str(BATCH_BYTES),
        "--output",
        "json",
    ]
    first: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith(b"{"):
                first = json.loads(line)
                break
        _kill_group(child)
    return first


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    """The JVM and its workers as well: nothing of it may go on."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _resume(spark: Any, root: Path, lake: Path, load: _Load, store: MessageStore) -> list[BatchProgress]:
    """Follow until the load is over and the lake has all of it."""
    done: list[BatchProgress] = []
    running = pipeline(spark, [str(root)], into=str(lake), batch_bytes_max=BATCH_BYTES).follow()
    for progress in running:
        done.append(progress)
        if not load.running and max(progress.positions.values()) >= store.max_physical:
            break
    running.close()  # type: ignore[attr-defined]
    return done
