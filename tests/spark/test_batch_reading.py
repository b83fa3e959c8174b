"""Batch reads by their options: topics, queues, tags, keys, limits, columns, slices. Without Spark itself."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from embermq import Message
from embermq.errors import EmberError, OptionInvalid, TopicUnknown
from embermq.spark.planning import plan
from embermq.spark.reading import batch_reader
from embermq.spark.reading.slices import Counts, read_slice
from embermq.testing import ManualClock
from embermq.testing.builder import StoreBuilder
from tests.spark.conftest import StoreMaker
from tests.support.spark_reads import read, reader_of

START_MS = 1_700_000_000_000
COUNT = 120


def messages(count: int = COUNT) -> Iterator[Message]:
    for n in range(count):
        yield Message(
            ("orders", "returns", "%RETRY%group")[n % 3],
            b"body %03d" % n,
            queue_id=n // 3 % 2,
            tags=("paid", "new", "")[n // 6 % 3],
            keys=[f"k{n}", f"group{n % 5}"],
        )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One message a second; three topics of two queues, one of them a retry topic."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path_factory.mktemp("read") / "store", clock=clock, segment_bytes=8 << 10)
    with builder.open() as store:
        for n, message in enumerate(messages()):
            clock.set(START_MS + n * 1000)
            store.append(message)
    return builder.root


@pytest.fixture(params=["log", "queue"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading what is in queues."""
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20) if request.param == "queue" else 1 << 40)
    return str(request.param)


def numbers(store: Path, **options: str) -> list[int]:
    """Which messages came, in the order they were sent."""
    return sorted(int(body[5:]) for body in read(store, schema=["body"], **options).column("body"))


def test_everything_in_order(store: Path) -> None:
    got = read(store)
    assert [body[5:] for body in got.column("body")] == [b"%03d" % n for n in range(COUNT)]
    assert got.counts.records == got.counts.rows == COUNT


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "orders"}, range(0, COUNT, 3)),
        ({"subscribe": "orders, returns"}, [n for n in range(COUNT) if n % 3 < 2]),
        ({"subscribePattern": "ord.*|ret.*"}, [n for n in range(COUNT) if n % 3 < 2]),
        ({"subscribePattern": "%RETRY%.*"}, range(2, COUNT, 3)),
        ({"topic": "orders", "queues": "1"}, range(3, COUNT, 6)),
        ({"queues": "0"}, [n for n in range(COUNT) if n // 3 % 2 == 0]),
        ({"queues": '{"returns": [1]}'}, range(4, COUNT, 6)),
        ({"topic": "orders", "subExpression": "paid"}, [n for n in range(0, COUNT, 3) if n // 6 % 3 == 0]),
        ({"subExpression": "paid || new"}, [n for n in range(COUNT) if n // 6 % 3 < 2]),
        ({"subExpression": "nobody"}, []),
        (
            {"topic": "orders", "startingOffsets": '{"orders": {"0": 18}}'},
            [n for n in range(0, COUNT, 3) if n // 3 % 2 or n // 6 >= 18],
        ),
        ({"topic": "orders", "endingOffsets": '{"orders": {"0": 2, "1": 1}}'}, [0, 3, 6]),
        ({"topic": "orders", "startingOffsets": '{"orders": {"0": 20, "1": 20}}'}, []),
        (
            {"startingOffsets": '{"orders": {"0": 20, "1": 20}}', "endingOffsets": '{"returns": {"1": 0}}'},
            [n for n in range(COUNT) if n % 3 == 2 or (n % 3 == 1 and n // 3 % 2 == 0)],
        ),
        ({"startingTimestamp": str(START_MS + 100_000)}, range(100, COUNT)),
        ({"endingTimestamp": str(START_MS + 10_000)}, range(10)),
        ({"startingTimestamp": str(START_MS + 10_001), "endingTimestamp": str(START_MS + 12_001)}, [11, 12]),
        ({"topic": "orders", "startingTimestamp": str(START_MS + 100_000)}, range(102, COUNT, 3)),
        ({"topic": "orders", "startingTimestamp": str(START_MS + 999_000)}, []),
        (
            {"topic": "orders", "startingOffsetsByTimestamp": json.dumps({"orders": {"1": START_MS + 110_000}})},
            [n for n in range(0, COUNT, 3) if n // 3 % 2 == 0 or n >= 110],
        ),
        ({"topic": "orders", "endingOffsetsByTimestamp": json.dumps({"orders": {"0": START_MS, "1": START_MS}})}, []),
    ],
)
def test_options(store: Path, way: str, options: dict[str, str], expected: list[int]) -> None:
    assert numbers(store, **options) == list(expected)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("k7", [7]),
        ("k7,k8,k999", [7, 8]),
        ("group3", range(3, COUNT, 5)),
        ('["k7"]', [7]),
        ("k", []),
        ("k7 group3", None),
    ],
)
@pytest.mark.parametrize("more", [{}, {"topic": "orders,returns,%RETRY%group"}])
def test_keys(store: Path, keys: str, expected: list[int] | None, more: dict[str, str]) -> None:
    wanted = sorted({7, *range(3, COUNT, 5)}) if expected is None else list(expected)
    assert numbers(store, keys=keys, **more) == wanted


def test_keys_without_an_index_are_looked_for_in_the_log(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert read(copy, keys="k7").methods == {"places"}
    shutil.rmtree(copy / "index")
    got = read(copy, keys="k7")
    assert got.methods <= {"log", "queue"}
    assert got.column("body") == [b"body 007"]


def test_keys_and_tags_together(store: Path) -> None:
    assert numbers(store, keys="group3", subExpression="paid") == [
        n for n in range(COUNT) if n % 5 == 3 and n // 6 % 3 == 0
    ]


# -- several stores --------------------------------------------------------------------------------------------------


def test_several_stores(make_store: StoreMaker) -> None:
    one = make_store(messages(30), "broker-a/store")
    two = make_store(messages(60), "broker-b/store")
    got = read(one, two, topic="orders")
    assert sorted(got.column("brokerName")) == ["broker-a"] * 10 + ["broker-b"] * 20
    root = one.parents[1]
    assert read(root / "broker-*" / "store", topic="orders").table.num_rows == 30
    offsets = '{"orders": {"broker-a": {"0": 3, "1": 5}, "0": 9}}'
    limited = read(one, two, topic="orders", startingOffsets=offsets).rows
    by_queue: dict[tuple[str, int], list[int]] = {}
    for row in limited:
        by_queue.setdefault((row["brokerName"], row["queueId"]), []).append(row["queueOffset"])
    assert {key: min(offsets) for key, offsets in by_queue.items()} == {
        ("broker-a", 0): 3,
        ("broker-b", 0): 9,
        ("broker-b", 1): 0,
    }


def test_a_topic_in_one_of_two_stores(make_store: StoreMaker) -> None:
    one = make_store([Message("orders", b"1")], "a")
    two = make_store([Message("returns", b"2")], "b")
    assert read(one, two, topic="returns").column("body") == [b"2"]
    with pytest.raises(TopicUnknown) as raised:
        read(one, two, topic="return")
    assert raised.value.nearest == ("returns",)


def test_empty_stores(make_store: StoreMaker) -> None:
    empty = make_store([], "empty")
    assert read(empty).rows == []
    assert reader_of(empty).partitions() == []
    with pytest.raises(TopicUnknown):
        read(empty, topic="orders")
    assert list(read_slice(InputPartition(None))) == [], "what Spark makes of no partitions"
    full = make_store([Message("orders", b"1")], "full")
    assert read(empty, full).column("body") == [b"1"]


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_system_topics_and_transactions_only_when_asked_for(make_store: StoreMaker) -> None:
    store = make_store(
        [
            Message("orders", b"plain"),
            Message("orders", b"prepared", sys_flag=0x4),
            Message("orders", b"committed", sys_flag=0x8),
            Message("orders", b"rolled back", sys_flag=0xC),
            Message("RMQ_SYS_TRANS_HALF_TOPIC", b"half"),
            Message("SCHEDULE_TOPIC_XXXX", b"parked", queue_id=2),
            Message("%DLQ%group", b"dead"),
        ]
    )
    assert read(store).column("body") == [b"plain", b"committed", b"dead"]
    assert read(store, topic="orders").column("body") == [b"plain", b"committed"]
    everything = read(store, includeSystemTopics="true")
    assert everything.column("body") == [
        b"plain",
        b"prepared",
        b"committed",
        b"rolled back",
        b"half",
        b"parked",
        b"dead",
    ]
    assert read(store, includeSystemTopics="true", topic="orders").column("body") == [
        b"plain",
        b"prepared",
        b"committed",
        b"rolled back",
    ]
    assert read(store, includeSystemTopics="true", topic="SCHEDULE_TOPIC_XXXX").column("body") == [b"parked"]
    assert read(store, includeSystemTopics="true", queues="2").column("body") == [b"parked"]
    with pytest.raises(OptionInvalid) as raised:
        read(store, topic="SCHEDULE_TOPIC_XXXX")
    assert "includeSystemTopics=true" in str(raised.value)
    with pytest.raises(TopicUnknown) as unknown:
        read(store, topic="RMQ_SYS")
    assert unknown.value.nearest == ()


def test_columns_by_schema(store: Path) -> None:
    schema = ["queueOffset", "topic", "body"]
    got = read(store, schema=schema)
    assert got.table.column_names == schema
    assert got.rows[4] == {"queueOffset": 0, "topic": "returns", "body": b"body 004"}
    assert read(store, schema=["storeTimestamp"]).rows[1] == {
        "storeTimestamp": datetime.fromtimestamp(START_MS / 1000 + 1, UTC)
    }


def test_the_kafka_mode(store: Path) -> None:
    row = read(store, schemaMode="kafka", includeHeaders="true").rows[7]
    assert (row["key"], row["value"], row["topic"]) == (b"k7 group2", b"body 007", "returns")
    assert (row["partition"], row["offset"], row["timestampType"]) == (0, 1, 1)
    assert row["timestamp"] == datetime.fromtimestamp(START_MS / 1000 + 7, UTC)
    assert {"key": "TAGS", "value": b"new"} in row["headers"]


def test_rows_of_damage_need_their_column(store: Path) -> None:
    with pytest.raises(OptionInvalid) as raised:
        reader_of(store, schema=StructType([StructField("topic", StringType())]), onCorrupt="rows")
    assert "_corrupt" in str(raised.value)


@pytest.mark.parametrize(
    ("column", "hint"), [("topics", "topic"), ("queueid2", "queueId"), ("_corrupt", "onCorrupt=rows")]
)
def test_a_column_that_is_not_there(store: Path, column: str, hint: str) -> None:
    with pytest.raises(OptionInvalid) as raised:
        reader_of(store, schema=StructType([StructField(column, StringType())]))
    assert hint in str(raised.value)


# -- slices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 30, 1000])
def test_slices_cover_everything_once(store: Path, way: str, count: int) -> None:
    got = read(store, topic="orders,returns", minPartitions=str(count))
    assert got.methods == {way}
    assert sorted(int(body[5:]) for body in got.column("body")) == [n for n in range(COUNT) if n % 3 < 2]
    assert len(got.slices) >= min(count, 20)


def test_small_partitions(store: Path) -> None:
    got = read(store, maxBytesPerPartition="2k")
    assert len(got.slices) >= 8
    assert len(got.rows) == COUNT
    sizes = []
    for one in got.slices:
        counts = Counts()
        list(read_slice(one, counts))
        sizes.append(counts.bytes_read)
    assert max(sizes) <= 2048 + 200
    assert max(sizes) - min(sizes) <= 400, "even, but for one record at each end"


@pytest.mark.parametrize(
    ("columns", "option", "slices"),
    [
        ("topic, queueOffset", {}, 2),
        ("topic, body", {}, 8),
        ("topic, properties", {}, 8),
        ("topic, queueOffset", {"maxBytesPerPartition": "2k"}, 8),
        ("topic, offset", {"schemaMode": "kafka"}, 2),
        ("topic, value", {"schemaMode": "kafka"}, 8),
    ],
)
def test_without_bodies_a_slice_covers_more(
    store: Path, monkeypatch: pytest.MonkeyPatch, columns: str, option: dict[str, str], slices: int
) -> None:
    monkeypatch.setattr(batch_reader, "SLICE_BYTES", 2048)
    monkeypatch.setattr(batch_reader, "SLICE_BYTES_WITHOUT_BODIES", 1 << 20)
    monkeypatch.setattr(batch_reader, "cores", lambda: 2)
    monkeypatch.setattr(plan, "SLICE_BYTES_MIN", 1024)
    found = reader_of(store, schema=columns.split(", "), **option).partitions()
    assert slices <= len(found) <= 4 * slices


@pytest.mark.parametrize(("rows", "size"), [("7", "8m"), ("16384", "1k"), ("1", "1"), ("100000", "1g")])
def test_batches_keep_to_their_limits(store: Path, way: str, rows: str, size: str) -> None:
    slices = reader_of(store, topic="orders", batchRows=rows, batchBytes=size).partitions()
    batches = [batch for one in slices for batch in read_slice(one)]
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.num_rows for batch in batches) <= int(rows)
    if size == "1k":
        assert all(sum(batch.column("size").to_pylist()) <= 1024 for batch in batches)
    if size == "1":
        assert all(batch.num_rows == 1 for batch in batches)


@pytest.mark.parametrize(
    ("options", "problem", "text"),
    [
        ({"topic": "order"}, TopicUnknown, "did you mean orders?"),
        ({"topic": "orders,nope"}, TopicUnknown, "'nope' is not in"),
        ({"subscribePattern": "x.*"}, OptionInvalid, "matches no topic"),
        ({"topic": "orders", "queues": "0,7"}, OptionInvalid, "no wanted topic has a queue 7; there is 0, 1"),
        ({"queues": '{"orders": [7]}'}, OptionInvalid, "topic orders has no queue 7; its queues: 0, 1"),
        ({"startingOffsets": '{"order": {"0": 1}}'}, TopicUnknown, "did you mean orders?"),
        ({"startingOffsets": '{"orders": {"9": 1}}'}, OptionInvalid, "topic orders has no queue 9"),
        ({"startingOffsets": '{"orders": {"x": {"0": 1}}}'}, OptionInvalid, "no broker 'x'"),
        ({"startingOffsets": '{"orders": {"0": 21}}'}, OptionInvalid, "21 is out of range, offsets from 0 to 20"),
        ({"endingOffsets": '{"orders": {"0": 21}}'}, OptionInvalid, "offset 21 is out of range"),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            OptionInvalid,
            "ends at 4, before its start 5",
        ),
    ],
)
def test_wrong_names_are_told_before_any_task(
    store: Path, options: dict[str, str], problem: type[EmberError], text: str
) -> None:
    reader = reader_of(store, **options)
    with pytest.raises(problem) as raised:
        reader.partitions()
    assert text in str(raised.value)
