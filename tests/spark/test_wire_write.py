"""Writes over the wire: every row once, over attempts that were cut short and answers that got lost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructType

from embermq.client.calls import Stored, WireMessage
from embermq.client.calls import send as really_send
from embermq.client.message_queue import MessageQueue
from embermq.errors import BrokerUnreachable, OptionInvalid
from embermq.spark.options.write_options import ClusterWriteOptions, names_cluster, parse_for_cluster
from embermq.spark.wire import sending, sent_rows
from embermq.spark.wire.sent_rows import PRODUCER, SEQUENCE, SentRow, chosen_queue, chunked, requests_of
from embermq.spark.wire.writer import SendPlan, SentRows, _plan, batch_writer, stream_writer
from embermq.spark.writing.write_rows import PartitionId, sharded
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.wire_reads import Row, wire_rows
from tests.support.wire_topics import create_topic

TOPIC = "out"
PARTITION = PartitionId("query-1", 7, 3)
SCHEMA = StructType().add("body", StringType()).add("shardingKey", StringType()).add("delayLevel", IntegerType())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(sent_rows, "CHUNK_ROWS", 16)
    with cluster_on_thread(tmp_path, brokers=2) as running:
        create_topic([one.address for one in running.brokers.values()], running.name_server, TOPIC)
        yield running


def plan_of(cluster: Cluster, **given: str) -> SendPlan:
    options = parse_for_cluster({"nameServer": cluster.name_server, "topic": TOPIC} | given, streaming=True)
    return _plan(SCHEMA, options)


def batches(start: int, end: int, *, rows: int = 10, delay: int | None = None) -> Iterator[pa.RecordBatch]:
    for at in range(start, end, rows):
        numbers = range(at, min(end, at + rows))
        yield pa.RecordBatch.from_pydict(
            {
                "body": [str(n) for n in numbers],
                "shardingKey": [f"k-{n % 5}" for n in numbers],
                "delayLevel": pa.array([delay if n % 7 == 3 else None for n in numbers], pa.int32()),
            }
        )


def cut_short(source: Iterator[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(source):
        if number == after:
            raise InterruptedError("the worker died")
        yield batch


def stored(cluster: Cluster) -> list[Row]:
    for broker in cluster.brokers.values():
        broker.store.wait_for_dispatch()
    return wire_rows(cluster.name_server, topic=TOPIC)


def counts(cluster: Cluster) -> Counter[int]:
    return Counter(int(row["body"]) for row in stored(cluster))


ONCE = Counter(range(100))


def test_rows_are_spread_and_keep_their_order_within_a_key(cluster: Cluster) -> None:
    assert plan_of(cluster).send_partition(PARTITION, batches(0, 100)) == SentRows(100, 0)
    rows = stored(cluster)
    assert Counter(int(row["body"]) for row in rows) == ONCE
    queues = {(row["brokerName"], row["queueId"]) for row in rows}
    assert queues == {("a" if at < 4 else "b", at % 4) for at in {sharded(f"k-{n}", 8) for n in range(5)}}
    for key in range(5):
        of_key = [row for row in rows if int(row["body"]) % 5 == key]
        assert len({(row["brokerName"], row["queueId"]) for row in of_key}) == 1
        assert [int(row["body"]) for row in sorted(of_key, key=lambda row: row["queueOffset"])] == list(
            range(key, 100, 5)
        )
    properties = [dict(row["properties"]) for row in rows]
    assert {int(one[SEQUENCE]) for one in properties} == set(range(100))
    assert len({one[PRODUCER] for one in properties}) == 1
    assert len({row["uniqKey"] for row in rows}) == 100


@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_an_attempt_that_was_cut_short_is_completed(cluster: Cluster, after: int) -> None:
    plan = plan_of(cluster)
    with pytest.raises(InterruptedError):
        plan.send_partition(PARTITION, cut_short(batches(0, 100), after))
    before = counts(cluster)
    assert len(before) < 100
    assert max(before.values(), default=1) == 1
    assert plan.send_partition(PARTITION, batches(0, 100, rows=33)) == SentRows(100 - len(before), len(before))
    assert counts(cluster) == ONCE
    assert plan.send_partition(PARTITION, batches(0, 100)) == SentRows(0, 100)
    assert counts(cluster) == ONCE


def test_some_of_a_chunk_is_recognised_row_by_row(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(cluster, brokerTimeout="1ms")
    sends = 0

    async def failing(caller: Any, to: Any, message: WireMessage, seconds: float) -> Stored:
        nonlocal sends
        sends += 1
        if sends == 9:
            raise BrokerUnreachable(to.name, to.address, "a send", "cut", is_sent=False)
        return await really_send(caller, to, message, seconds)

    monkeypatch.setattr(sending, "send", failing)
    with pytest.raises(BrokerUnreachable):
        plan.send_partition(PARTITION, batches(0, 100))
    sends = 100
    plan_of(cluster).send_partition(PARTITION, batches(0, 100))
    assert counts(cluster) == ONCE


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_send_without_an_answer_is_asked_for_before_it_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    sends = 0

    async def unanswered(caller: Any, to: Any, message: WireMessage, seconds: float) -> Stored:
        nonlocal sends
        sends += 1
        if sends % 4 == 1:
            if is_stored:
                await really_send(caller, to, message, seconds)
            raise BrokerUnreachable(to.name, to.address, "a send", "no answer", is_sent=True)
        return await really_send(caller, to, message, seconds)

    monkeypatch.setattr(sending, "send", unanswered)
    assert plan_of(cluster).send_partition(PARTITION, batches(0, 100)).sent == 100
    assert counts(cluster) == ONCE


def test_other_partitions_and_batches_are_other_rows(cluster: Cluster) -> None:
    plan = plan_of(cluster)
    for partition in (PARTITION, PartitionId("query-1", 8, 3), PartitionId("query-1", 7, 4), PartitionId("q", 7, 3)):
        assert plan.send_partition(partition, batches(0, 10)) == SentRows(10, 0)
    assert counts(cluster) == Counter(dict.fromkeys(range(10), 4))


def test_rows_that_wait_are_sent_once_as_well(cluster: Cluster) -> None:
    plan = plan_of(cluster)
    assert plan.send_partition(PARTITION, batches(0, 30, delay=18)) == SentRows(30, 0)
    assert counts(cluster) == Counter(n for n in range(30) if n % 7 != 3)
    assert plan.send_partition(PARTITION, batches(0, 30, delay=18)) == SentRows(0, 30)


def test_a_row_that_cannot_be_sent_is_said_with_its_number(cluster: Cluster) -> None:
    bad = pa.RecordBatch.from_pydict(
        {"body": pa.array(["x", None]), "shardingKey": ["a", "b"], "delayLevel": pa.array([None, None], pa.int32())}
    )
    assert "partition 3, row 1: body is null" in plan_of(cluster).send_partition(PARTITION, iter([bad])).refusal


def test_a_queue_that_is_named_must_be_there(cluster: Cluster) -> None:
    schema = StructType().add("body", StringType()).add("queueId", IntegerType())
    plan = _plan(schema, ClusterWriteOptions((cluster.name_server,), TOPIC))

    def rows(*queue_ids: int | None) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": ["x"] * len(queue_ids), "queueId": pa.array(queue_ids, pa.int32())})

    assert plan.send_partition(PARTITION, rows(3, 3, None)) == SentRows(3, 0)
    assert Counter(row["queueId"] for row in stored(cluster)) == Counter(
        [3, 3, 1]
    )  # turns begin at the partition's number
    refused = plan.send_partition(PartitionId("w", 0, 0), rows(9)).refusal
    assert refused == "row 0: topic out has no queue 9; its queues: [0, 1, 2, 3]"


# -- without a cluster -----------------------------------------------------------------------------------------


def row(number: int, size: int = 1, *, delayed: bool = False) -> SentRow:
    return SentRow(number, "t", b"x" * size, b"DELAY\x013" if delayed else b"", number)


@given(st.lists(st.integers(0, 3 << 20), max_size=40))
def test_chunks_keep_order_and_limits_and_the_first_row_is_alone(sizes: list[int]) -> None:
    rows = [row(number, size) for number, size in enumerate(sizes)]
    chunks = list(chunked(rows))
    assert [one for chunk in chunks for one in chunk] == rows
    assert all(len(chunk) == 1 or sum(one.size for one in chunk) <= sent_rows.CHUNK_BYTES for chunk in chunks)
    assert not rows or len(chunks[0]) == 1


@given(st.lists(st.tuples(st.integers(0, 300_000), st.booleans()), max_size=30))
def test_a_request_is_within_its_limit_and_a_delayed_row_alone(given_rows: list[tuple[int, bool]]) -> None:
    rows = [row(n, size, delayed=delayed) for n, (size, delayed) in enumerate(given_rows)]
    requests = list(requests_of(rows))
    assert [one for request in requests for one in request] == rows
    for request in requests:
        assert len(request) == 1 or sum(one.size for one in request) <= sent_rows.REQUEST_BYTES
        assert len(request) == 1 or not any(one.has_meaning for one in request)


def test_the_queue_of_a_row() -> None:
    queues = [MessageQueue("t", broker, n) for broker in "ab" for n in range(2)]
    assert [chosen_queue(row(n), queues) for n in range(5)] == [*queues, queues[0]]
    assert chosen_queue(SentRow(0, "t", b"", b"", 0, 1), queues) == queues[1]
    assert chosen_queue(SentRow(0, "t", b"", b"", 0, 5), queues) is None
    assert chosen_queue(row(0), []) is None


def test_options_of_a_write_over_the_wire() -> None:
    given = {"NAMESERVER": "a;b:1", "topic": "t", "writeId": "w", "producerGroup": "g", "brokerTimeout": "2s"}
    assert names_cluster(given)
    assert parse_for_cluster(given, streaming=False) == ClusterWriteOptions(
        ("a:9876", "b:1"), "t", write_id="w", producer_group="g", broker_timeout_ms=2000
    )
    for name in ("path", "stagingPath", "lockTimeout", "settings.flushDiskType", "queues"):
        with pytest.raises(OptionInvalid, match="has no meaning with nameServer"):
            parse_for_cluster({"nameServer": "a", name: "1"}, streaming=False)
    options = ClusterWriteOptions(("a:1",), "t")
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionInvalid, match="cannot be overwritten"):
            make(SCHEMA, options, True)


@pytest.mark.slow(seconds=10)
def test_spark_writes_batches_by_name_and_streams_once(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    out = spark.range(0, 40, numPartitions=2).selectExpr("'out' as topic", "string(id) as body")
    for _ in range(2):  # The second write of the same name finds all its rows.
        writing = out.write.format("rocketmq").mode("append").option("nameServer", cluster.name_server)
        writing.option("writeId", "import-1").save()
    assert counts(cluster) == Counter(range(40))
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    sink = {"nameServer": cluster.name_server, "topic": TOPIC, "checkpointLocation": str(tmp_path / "checkpoint")}
    for _ in range(2):
        rows = numbers.selectExpr("string(100 + value) as body")
        query = rows.writeStream.format("rocketmq").options(**sink).trigger(once=True).start()
        assert query.awaitTermination(120)
        first = tmp_path / "checkpoint" / "commits" / "0"
        assert first.exists()
        # As if the driver had died before it noted that the batch was done: it is run again.
        first.unlink()
        (first.parent / ".0.crc").unlink(missing_ok=True)
    found = counts(cluster)
    assert set(found.values()) == {1}
    assert set(range(100, 110)) <= found.keys()
