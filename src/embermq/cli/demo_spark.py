"""The second act of the demo: Spark follows the store while it is written, is killed, goes on, and answers.

    load      a thread of this process appends order events to the store
    pipeline  a child process runs `embermq spark pipeline` into a lake, and is killed after its first batch
    resume    the same pipeline in this process, until nothing is left
    check     lake and log together hold every event once
    archive   the whole log into a second lake, read back before it counts
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import embermq.spark
from embermq.cli.order_writer import demo_settings
from embermq.cli.orders import OrderEvent, event_number
from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    show_bytes,
    show_count,
    show_seconds,
    show_yes,
)
from embermq.clock import SystemClock
from embermq.spark import archive, audit, sql, stats
from embermq.spark.jobs import Archived, Audit, stats_report
from embermq.spark.pipelines import BatchProgress, pipeline
from embermq.spark.reading import messages
from embermq.spark.report import write_report
from embermq.store import MessageStore

LOAD_SECONDS = 6.0
LOAD_STEP = 50
BATCH_BYTES = 1 << 20

QUERY = """
select get_json_object(string(body), '$.region') as region, count(*) as orders,
       round(sum(double(get_json_object(string(body), '$.amount'))), 2) as amount_eur
from orders where tags = 'created' group by 1 order by 3 desc
"""


def run_spark_demo(output: Output, root: Path, lake: Path, events: Sequence[OrderEvent], report: Path) -> bool:
    """All of the second act; whether lake and log hold what was written, once. The store at `root` has some already."""
    output.say("\nSpark follows the log while the store goes on writing.", style="bold")
    with MessageStore.open(root, demo_settings()) as store:
        with _load(store, events[_stored(store) :]) as load:
            killed = _killed_pipeline(root, lake)
            output.show(_killed(killed))
            spark = embermq.spark.session("embermq demo")
            began = time.monotonic()
            done = _resume(spark, root, lake, load, store)
            output.show(_batches(done))
        output.show(_pipeline(done, time.monotonic() - began))
    paths = [str(root)]
    found = [event_number(bytes(row[0])) for row in messages(spark, paths, lake=str(lake)).select("body").collect()]
    good = sorted(found) == [event.number for event in events]
    output.show(_check(len(events), found, good))
    output.show(_archived(archive(spark, paths, str(lake.with_name(f"{lake.name}-archive")))))
    audited = audit(spark, paths)
    output.show(_audited(audited))
    answer = sql(spark, QUERY, paths, lake=str(lake))
    columns = [TableColumn("region", "region"), number("orders", "orders"), number("amount_eur", "amount", _euros)]
    rows = [list(row) for row in answer.collect()]
    output.show(Rows("sql", "Asked with SQL, lake and log as one table", columns, rows))
    place = write_report(stats_report(stats(spark, paths, lake=str(lake)), str(root), SystemClock().now_ms()), report)
    spark.stop()
    output.record("report", str(place))
    output.say(f"\nA page to look at: {place}", style="bold")
    return good and audited.is_sound


def _euros(value: float) -> str:
    return f"{value:,.2f} EUR"


def _stored(store: MessageStore) -> int:
    """How many events the first act has left."""
    return sum(
        store.message_count(topic, queue_id) for topic, queue_ids in store.topics().items() for queue_id in queue_ids
    )


class _Load:
    """Appends events over some seconds, on a thread of its own."""

    def __init__(self, store: MessageStore, events: Sequence[OrderEvent]) -> None:
        self._store, self._events = store, events
        self.appended = 0
        self._thread = threading.Thread(target=self._run, name="embermq-demo-load")

    def _run(self) -> None:
        began = time.monotonic()
        for at in range(0, len(self._events), LOAD_STEP):
            step = self._events[at : at + LOAD_STEP]
            self._store.append_many([event.message() for event in step])
            self.appended += len(step)
            behind = began + LOAD_SECONDS * self.appended / len(self._events) - time.monotonic()
            time.sleep(max(0.0, behind))

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


@contextmanager
def _load(store: MessageStore, events: Sequence[OrderEvent]) -> Iterator[_Load]:
    load = _Load(store, events)
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


# -- what happened -------------------------------------------------------------------------------------


def _killed(first: dict[str, int]) -> NamedValues:
    return NamedValues(
        "spark_killed",
        "Killed with SIGKILL after its first batch",
        [
            NamedValue("records", "records in the batch", first.get("records", 0), show_count),
            NamedValue("bytes", "log in the batch", first.get("bytes", 0), show_bytes),
        ],
    )


def _batches(done: Sequence[BatchProgress]) -> Rows:
    columns = [
        number("batch", "batch", str),
        number("records", "records"),
        number("bytes", "log", show_bytes),
        number("seconds", "took", show_seconds),
        number("lag_bytes", "then behind", show_bytes),
    ]
    rows = [[one.batch, one.records, one.bytes, one.seconds, one.lag_bytes] for one in done[-8:]]
    return Rows("spark_batches", "Started again, it goes on where it was (newest batches)", columns, rows)


def _pipeline(done: Sequence[BatchProgress], seconds: float) -> NamedValues:
    return NamedValues(
        "spark_pipeline",
        "Into Parquet by topic and day, and statistics by minute",
        [
            NamedValue("batches", "batches", len(done), show_count),
            NamedValue("records", "records", sum(one.records for one in done), show_count),
            NamedValue("seconds", "until nothing was left", seconds, show_seconds),
        ],
    )


def _check(count: int, found: Sequence[int], good: bool) -> NamedValues:
    return NamedValues(
        "spark_check",
        "Lake and log together, compared with what was written",
        [
            NamedValue("written", "events written", count, show_count),
            NamedValue("found", "rows found", len(found), show_count),
            NamedValue("repeated", "found twice", len(found) - len(set(found)), show_count),
            NamedValue("good", "each once", good, show_yes),
        ],
    )


def _archived(done: Sequence[Archived]) -> NamedValues:
    return NamedValues(
        "spark_archive",
        "The log archived: written, read back, compared",
        [
            NamedValue("records", "records", sum(one.records for one in done), show_count),
            NamedValue("files", "files", sum(one.files for one in done), show_count),
            NamedValue("bytes", "written", sum(one.file_bytes for one in done), show_bytes),
        ],
    )


def _audited(found: Audit) -> NamedValues:
    return NamedValues(
        "spark_audit",
        "The store audited: checksums, places, queue offsets, queue and index entries, repeats",
        [
            NamedValue("records", "records", found.records, show_count),
            NamedValue("findings", "findings", len(found.findings), show_count),
            NamedValue("sound", "sound", found.is_sound, show_yes),
        ],
    )
