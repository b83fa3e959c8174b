"""The Spark format over the wire: one suite, against Apache RocketMQ 4.9.7 and 5.3.3 and against `embermq broker`.

The steps of readers and writers are taken in this process, as Spark takes them; the broker is killed in the middle and
started again on its store.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from embermq.client.admin import Admin, TopicConfig
from embermq.spark.options.write_options import parse_for_cluster
from embermq.spark.wire.pulling import WireSlice, read_wire_slice
from embermq.spark.wire.writer import SendPlan, SentRows, _plan
from embermq.spark.writing.write_rows import PartitionId
from tests.interop import java_broker
from tests.interop.apache5 import ACCOUNT, Apache5
from tests.interop.java_broker import broker_config, free_port, java_server, mqadmin
from tests.interop.reference import ReferenceMissing
from tests.spark.stream_drive import Drive
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.wire_reads import Row, wire_rows, wire_slices

pytestmark = pytest.mark.interop

APACHE, APACHE5, EMBERMQ = "Apache RocketMQ", "Apache RocketMQ 5", "EmberMQ"
TOPIC = "orders"
SCHEMA = StructType().add("body", StringType()).add("tags", StringType())
PATIENCE = {f"waitTimeMillsIn{queue}Queue": 60_000 for queue in ("Send", "Pull", "Heartbeat")}


class Broker:
    """A broker with a name server that can be killed and started again."""

    def __init__(
        self, kind: str, name_server: str, start: Callable[[], Callable[[], None]], access: dict[str, str] | None = None
    ) -> None:
        """`start` starts the broker and answers how to kill it; `access`: options of its account."""
        self.kind, self.name_server, self.access = kind, name_server, access or {}
        self._start = start
        self._kill = start()

    def kill(self) -> None:
        self._kill()

    def start(self) -> None:
        self._kill = self._start()

    def kill_and_start(self) -> threading.Thread:
        """Kill it now, and start it on another thread."""
        self.kill()
        thread = threading.Thread(target=self.start)
        thread.start()
        return thread


@pytest.fixture(params=[APACHE, APACHE5, EMBERMQ], ids=["apache4", "apache5", "embermq"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    try:
        java_broker.class_path()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    with contextlib.ExitStack() as stack:
        if request.param == APACHE5:
            made = _apache5(request.getfixturevalue("apache5"))
        else:
            made = (_apache if request.param == APACHE else _embermq)(stack, tmp_path)
        account = ACCOUNT if made.access else None
        with Admin(made.name_server, credentials=account) as admin:
            admin.topics.put(TopicConfig(TOPIC, 4, 4), admin.brokers.places())
            wait_until(lambda: TOPIC in admin.topics.names())
        yield made


def _apache5(shared: Apache5) -> Broker:
    """The broker that all tests of the session share, which runs already; it asks for signatures."""
    is_running = [True]

    def start() -> Callable[[], None]:
        if not is_running:
            shared.start()
        is_running.clear()
        return shared.kill

    access = {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key}
    return Broker(APACHE5, shared.name_server, start, access)


def _apache(stack: contextlib.ExitStack, place: Path) -> Broker:
    names, port = free_port(), free_port()
    name_server = f"127.0.0.1:{names}"
    stack.enter_context(java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": names}))
    config = broker_config(place, name_server, port=port) | PATIENCE | {"enablePropertyFilter": "true"}

    def start() -> Callable[[], None]:
        return stack.enter_context(java_server("broker.BrokerStartup", place, config)).kill

    return Broker(APACHE, name_server, start)


def _embermq(stack: contextlib.ExitStack, place: Path) -> Broker:
    port, names = free_port(), free_port()
    name_server, address = f"127.0.0.1:{names}", f"127.0.0.1:{port}"

    def start() -> Callable[[], None]:
        words = ("--set", "enablePropertyFilter=true", "--set", "brokerName=broker-a")
        process = BrokerProcess(place, *words, name_server=name_server, listen=address)
        stack.callback(process.kill)
        return process.kill

    return Broker(EMBERMQ, name_server, start)


def plan_of(broker: Broker) -> SendPlan:
    given = {"nameServer": broker.name_server, "topic": TOPIC, "brokerTimeout": "120s"} | broker.access
    return _plan(SCHEMA, parse_for_cluster(given, streaming=True))


def batches(start: int, end: int, at: int = -1, do: Callable[[], Any] = lambda: None) -> Iterator[pa.RecordBatch]:
    """Rows in batches of 50; `do` is called before the batch that begins `at`."""
    for first in range(start, end, 50):
        if first == at:
            do()
        numbers = range(first, min(end, first + 50))
        tags = [("paid", "sent")[n % 2] for n in numbers]
        yield pa.RecordBatch.from_pydict({"body": [str(n) for n in numbers], "tags": tags})


def bodies(rows: list[Row]) -> list[int]:
    return sorted(int(row["body"]) for row in rows)


def test_batches_streams_and_sinks_with_a_broker_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    starting: list[threading.Thread] = []

    def kill() -> None:
        starting.append(broker.kill_and_start())

    # A sink, with the broker killed between two of its batches.
    sent = plan_of(broker).send_partition(PartitionId("q", 0, 0), batches(0, 3000, at=2000, do=kill))
    starting.pop().join()
    assert sent == SentRows(3000, 0)
    rows = rows_when_there(broker, 3000)
    found = Counter(bodies(rows))
    assert set(found) == set(range(3000))
    if broker.kind == EMBERMQ:
        assert set(found.values()) == {1}, "exactly once into EmberMQ"
    # The same rows again are recognised.
    again = plan_of(broker).send_partition(PartitionId("q", 0, 0), batches(0, 3000))
    assert (again.sent, again.found) == (0, 3000)

    # A batch, with the broker killed after it was planned.
    slices = wire_slices(broker.name_server, topic=TOPIC, minPartitions="4", brokerTimeout="120s", **broker.access)
    assert len(slices) >= 4
    if broker.kind != APACHE5:  # It starts slowly; two kills are enough.
        kill()
    everything = rows_of(slices)
    if starting:
        starting.pop().join()
    assert bodies(everything) == bodies(rows)

    # Filters of the broker, and times.
    assert bodies(wire_rows(broker.name_server, topic=TOPIC, subExpression="paid", **broker.access)) == [
        n for n in bodies(rows) if n % 2 == 0
    ]
    few = wire_rows(broker.name_server, topic=TOPIC, sqlExpression="EMBER_SEQUENCE < 100", **broker.access)
    assert set(bodies(few)) == set(range(100))
    times = sorted(row["storeTimestamp"] for row in rows)
    middle = times[len(times) // 2]
    start = str(round(middle.timestamp() * 1000))
    later = wire_rows(broker.name_server, topic=TOPIC, startingTimestamp=start, **broker.access)
    assert len(later) == sum(one >= middle for one in times)

    # A stream, with the broker killed between a plan and its batch, and its progress for RocketMQ's tools.
    drive = Drive(
        nameServer=broker.name_server,
        topic=TOPIC,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="1000",
        groupId="spark-job",
        brokerTimeout="120s",
        **broker.access,
    )
    while (end := drive.plan()) != drive.offset:
        if len(drive.batches) == 1:
            kill()
        drive.rows += drive.read(end)
        drive.commit(end)
        if starting:
            starting.pop().join()
    assert sorted(int(row[3]) for row in drive.rows) == bodies(rows)
    with Admin(broker.name_server, credentials=ACCOUNT if broker.access else None) as admin:
        progress = admin.groups.progress("spark-job", TOPIC)
    assert (progress.lag, sum(one.consumer_offset for one in progress.queues)) == (0, len(rows))
    if not broker.access:
        shown = mqadmin(tmp_path, ["consumerProgress", "-n", broker.name_server, "-g", "spark-job"])
        assert "Diff Total: 0" in shown or "Consume Diff Total: 0" in shown, shown


def rows_when_there(broker: Broker, count: int) -> list[Row]:
    """All rows. A broker lets consumers see a message shortly after it has acknowledged it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = wire_rows(broker.name_server, topic=TOPIC, **broker.access)
        if len(rows) >= count or time.monotonic() > deadline:
            return rows
        time.sleep(0.05)


def rows_of(slices: list[WireSlice]) -> list[Row]:
    return [row for one in slices for batch in read_wire_slice(one) for row in batch.to_pylist()]
