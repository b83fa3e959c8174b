"""Records as record batches: every column equal to the message it comes from, in types that Spark takes."""

import tracemalloc
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from embermq.columns import choosing
from embermq.columns import rows as c
from embermq.columns.compiled import gather as gather_kernel
from embermq.columns.compiled.scan import scan
from embermq.columns.plain import gather as gather_twin
from embermq.columns.rows import RecordColumns, new_rows
from embermq.errors import CorruptFrame, OptionInvalid
from embermq.format.frame import Frame, decode, encode
from embermq.format.frame_message import as_message
from embermq.model.hosts import Host
from embermq.model.message import StoredMessage
from embermq.spark.options.schema import COLUMNS, SchemaMode, columns_of, spark_schema
from embermq.spark.reading import arrow
from embermq.spark.reading.arrow import BATCH_BYTES_MAX, BATCH_ROWS_MAX, BatchBuilder
from tests.columns.strategies import logs
from tests.support import golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_DELAYS = np.zeros(0, np.int64)
HOST = Host("10.0.0.1", 10911)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FULL = spark_schema("rocketmq")
COMPRESSIONS = {"zlib": 0x1, "lz4": 0x101, "zstd": 0x201, "zlib by name": 0x301}


class Range(NamedTuple):
    start: int
    end: int
    reason: str


@pytest.fixture(params=["kernel", "twin"])
def either_gather(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches made by the kernel, then by its twin."""
    module = gather_kernel if request.param == "kernel" else gather_twin
    monkeypatch.setattr(arrow, "gather_for", lambda rows: module)
    name: str = request.param
    return name


def scanned(data: Any, base: int = 0, rows_max: int = 1 << 16) -> RecordColumns:
    rows = new_rows(rows_max)
    count, _, _ = scan(data, base, 0, len(data), rows, NO_DELAYS, True, True)
    return RecordColumns(data, base, rows[:count])


def log_of(*changes: dict[str, Any], base: int = 0) -> RecordColumns:
    data = bytearray()
    for change in changes:
        fields: dict[str, Any] = {
            "queue_id": 1,
            "queue_offset": 2,
            "topic": "T",
            "body": b"body",
            "properties": b"KEYS\x01k",
            "born_timestamp": 1,
            "born_host": HOST,
            "store_timestamp": 2,
            "store_host": HOST,
        }
        data += encode(physical_offset=base + len(data), **{**fields, **change})
    return scanned(bytes(data), base)


def messages_of(records: RecordColumns) -> Iterator[StoredMessage]:
    """The same records by the plain decoder."""
    data = records.data.tobytes()
    for row in records.rows:
        at = int(row[c.C_PHYSICAL]) - records.base
        frame = decode(data, at, len(data), physical_offset=records.base + at, check_crc=True)
        assert isinstance(frame, Frame)
        yield as_message(frame)


def when(time_ms: int) -> datetime | None:
    try:
        return EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def expected_row(message: StoredMessage, broker: str, *, decompress: bool) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "brokerName": broker,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.message_id,
        "uniqKey": message.unique_key,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "body": message.payload if decompress else message.body,
        "properties": list(message.properties.items()),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": when(message.born_timestamp),
        "bornHost": str(message.born_host),
        "storeTimestamp": when(message.store_timestamp),
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "size": message.size,
    }


def builder_of(
    *names: str, mode: SchemaMode = "rocketmq", decompress: bool = True, headers: bool = False
) -> BatchBuilder:
    """A builder of these columns, or of all."""
    types = {column.name: column.type for column in columns_of(mode, corrupt=True, headers=headers)}
    chosen = names or tuple(column.name for column in columns_of(mode, headers=headers))
    schema = StructType([StructField(name, types[name]) for name in chosen])
    return BatchBuilder(schema, mode=mode, broker_name="broker-a", decompress=decompress)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    return batch.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
@pytest.mark.usefixtures("either_gather")
def test_golden_stores(name: str, tmp_path: Path) -> None:
    """Every record of RocketMQ, whole, compressed, transactional, parked, IPv6 or in a batch."""
    met = 0
    for base, data in golden.segments(golden.restore(name, tmp_path)):
        records = scanned(data, base)
        unpacked = []
        for message in messages_of(records):
            try:
                unpacked.append(expected_row(message, "broker-a", decompress=True))
            except CorruptFrame:
                assert name == "compressed-raw"
        damaged: list[int] = []
        batch = builder_of().build(records, on_damage=lambda start, end, reason, found=damaged: found.append(start))  # type: ignore[misc]
        assert rows_of(batch) == unpacked
        assert len(unpacked) + len(damaged) == len(records)
        stored = builder_of(decompress=False).build(records)
        assert rows_of(stored) == [
            expected_row(message, "broker-a", decompress=False) for message in messages_of(records)
        ]
        met += len(records)
    assert met > 0


@settings(max_examples=150, deadline=None)
@given(logs(), st.data())
def test_any_records(data: bytes, draw: st.DataObject) -> None:
    from tests.columns.strategies import BASE

    records = scanned(data, BASE)
    expected = [expected_row(message, "broker-a", decompress=False) for message in messages_of(records)]
    for gather in (gather_kernel, gather_twin):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow, "gather_for", lambda rows, gather=gather: gather)
            assert rows_of(builder_of(decompress=False).build(records)) == expected
            keep = draw.draw(st.lists(st.integers(0, max(len(records) - 1, 0)), max_size=4 if len(records) else 0))
            batch = builder_of(decompress=False).build(records, np.array(keep, np.int64))
            assert rows_of(batch) == [expected[row] for row in keep]


@pytest.mark.parametrize("column", [column.name for column in COLUMNS])
@pytest.mark.usefixtures("either_gather")
def test_each_column_alone(column: str) -> None:
    records = log_of({}, {"topic": "other", "properties": b""}, {"born_host": Host("2001:db8::1", 1)})
    expected = [expected_row(message, "broker-a", decompress=True) for message in messages_of(records)]
    assert rows_of(builder_of(column).build(records)) == [{column: row[column]} for row in expected]


@pytest.mark.usefixtures("either_gather")
def test_columns_in_the_order_and_spelling_of_the_user() -> None:
    schema = StructType(
        [StructField("BODY", FULL["body"].dataType), StructField("topic", FULL["topic"].dataType, False)]
    )
    builder = BatchBuilder(schema, mode="rocketmq", broker_name="b", decompress=True)
    batch = builder.build(log_of({}))
    assert batch.schema == builder.schema
    assert batch.schema.names == ["BODY", "topic"]
    assert [field.nullable for field in batch.schema] == [True, False]
    assert batch.to_pylist() == [{"BODY": b"body", "topic": "T"}]


def test_a_schema_with_a_foreign_column_is_refused() -> None:
    with pytest.raises(OptionInvalid, match="no column nonsense"):
        BatchBuilder(
            StructType([StructField("nonsense", FULL["topic"].dataType)]),
            mode="kafka",
            broker_name="b",
            decompress=True,
        )


@pytest.mark.usefixtures("either_gather")
def test_no_rows() -> None:
    nothing = np.zeros(0, np.int64)
    for mode in ("rocketmq", "kafka"):
        builder = builder_of(mode=mode, headers=True)
        for records, keep in ((scanned(b""), None), (log_of({}), nothing)):
            batch = builder.build(records, keep)
            assert (batch.num_rows, batch.schema) == (0, builder.schema)
            assert list(builder.batches(records, keep)) == []
            batch.validate(full=True)
    assert builder_of("_corrupt").damaged([]).num_rows == 0


@pytest.mark.usefixtures("either_gather")
def test_the_columns_of_kafka() -> None:
    records = log_of(
        {"properties": b"KEYS\x01k1 k2\x02a\x01Z\xc3\xbcrich", "store_timestamp": 1_700_000_000_123},
        {"properties": b"", "queue_id": 7, "queue_offset": 1 << 40},
    )
    first, second = rows_of(builder_of(mode="kafka", headers=True).build(records))
    assert first == {
        "key": b"k1 k2",
        "value": b"body",
        "topic": "T",
        "partition": 1,
        "offset": 2,
        "timestamp": EPOCH + timedelta(milliseconds=1_700_000_000_123),
        "timestampType": 1,
        "headers": [{"key": "KEYS", "value": b"k1 k2"}, {"key": "a", "value": "Z\u00fcrich".encode()}],
    }
    assert (second["key"], second["headers"]) == (None, None)
    assert (second["partition"], second["offset"]) == (7, 1 << 40)


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.usefixtures("either_gather")
def test_compressed_bodies(name: str) -> None:
    pack = {"zlib": zlib.compress, "lz4": lz4.frame.compress, "zstd": zstandard.compress}[name.split()[0]]
    bodies = [b"plain", pack(b"packed" * 100), b"plain too", pack(b""), pack(bytes(5000)), b""]
    flags = [0, 1, 0, 1, 1, 0]
    records = log_of(
        *({"body": body, "sys_flag": flag * COMPRESSIONS[name]} for body, flag in zip(bodies, flags, strict=True))
    )
    unpacked = [b"plain", b"packed" * 100, b"plain too", b"", bytes(5000), b""]
    assert builder_of("body").build(records)["body"].to_pylist() == unpacked
    assert builder_of("value", mode="kafka").build(records)["value"].to_pylist() == unpacked
    assert builder_of("body", decompress=False).build(records)["body"].to_pylist() == bodies
    keep = np.array([4, 0, 1], np.int64)
    whole = rows_of(builder_of("body", "physicalOffset", "bodyCrc").build(records, keep))
    assert [row["body"] for row in whole] == [unpacked[row] for row in (4, 0, 1)]
    assert [row["physicalOffset"] for row in whole] == records.column(c.C_PHYSICAL)[keep].tolist()
    assert [row["bodyCrc"] for row in whole] == [zlib.crc32(bodies[row]) & 0x7FFF_FFFF for row in (4, 0, 1)]


@pytest.mark.usefixtures("either_gather")
def test_a_body_that_does_not_decompress_is_left_out_and_reported() -> None:
    good = zlib.compress(b"good")
    records = log_of(
        {"body": b"a"},
        {"body": good[:-3], "sys_flag": 0x1},
        {"body": good, "sys_flag": 0x1},
        {"body": b"no frame", "sys_flag": 0x101},
        {"body": b"no frame", "sys_flag": 0x201},
        {"body": good, "sys_flag": 0x401},
        {"body": b"z"},
    )
    damaged: list[Range] = []
    batch = builder_of("body", "size").build(records, on_damage=lambda *found: damaged.append(Range(*found)))
    assert batch["body"].to_pylist() == [b"a", b"good", b"z"]
    places = records.column(c.C_PHYSICAL).tolist()
    assert [(one.start, one.end) for one in damaged] == [(places[i], places[i + 1]) for i in (1, 3, 4, 5)]
    assert all("decompress" in one.reason for one in damaged)
    with pytest.raises(CorruptFrame) as caught:
        builder_of("body").build(records)
    assert caught.value.physical_offset == places[1]
    assert builder_of("size").build(records).num_rows == 7, "nobody asked for bodies"
    assert list(builder_of("body").batches(log_of({"body": b"?", "sys_flag": 1}), on_damage=lambda *_: None)) == []


def test_a_body_that_would_be_gigabytes_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.model.message.PAYLOAD_BYTES_MAX", 10_000)
    reasons: list[str] = []
    records = log_of({"body": b"small"}, {"body": zlib.compress(bytes(1 << 20)), "sys_flag": 1})
    batch = builder_of("body").build(records, on_damage=lambda _start, _end, reason: reasons.append(reason))
    assert batch.column("body").to_pylist() == [b"small"]
    assert len(reasons) == 1
    assert "larger than 10,000 bytes decompressed" in reasons[0]


@pytest.mark.usefixtures("either_gather")
def test_bodies_that_grow_are_spread_over_batches() -> None:
    """Twenty records of some kilobytes that become 5 MiB each."""
    large = bytes(5 << 20)
    packed = zlib.compress(large)
    records = log_of(*({"body": packed if i % 2 else b"small", "sys_flag": i % 2, "queue_id": i} for i in range(20)))
    batches = list(builder_of("queueId", "body").batches(records))
    assert [number for batch in batches for number in batch["queueId"].to_pylist()] == list(range(20))
    assert all(batch.nbytes <= BATCH_BYTES_MAX + 1000 for batch in batches)
    assert len(batches) == 4
    for batch in batches:
        for number, body in zip(batch["queueId"].to_pylist(), batch["body"], strict=True):
            assert body.as_py() == (large if number % 2 else b"small")


def test_batches_keep_both_limits() -> None:
    small = log_of(*({"queue_id": i} for i in range(100)))
    keep = np.repeat(np.arange(100, dtype=np.int64), 400)
    batches = list(builder_of("queueId").batches(small, keep))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 40_000 - 2 * BATCH_ROWS_MAX]
    assert np.concatenate([batch["queueId"].to_numpy() for batch in batches]).tolist() == keep.tolist()
    size = BATCH_BYTES_MAX // 4
    large = log_of(*({"body": bytes(length)} for length in (size, size, size, size, 10 * size, 1, 1)))
    assert [batch.num_rows for batch in builder_of("body").batches(large)] == [3, 1, 1, 2]


def test_a_column_near_2_gib_is_split_by_batches_and_refused_by_build() -> None:
    """A few megabytes, wanted many times: the limit is one of the column, not of the memory here."""
    records = log_of({"body": bytes(8 << 20)})
    keep = np.zeros(300, np.int64)
    with pytest.raises(AssertionError, match="2 GiB"):
        builder_of("body").build(records, keep)
    assert sum(batch.num_rows for batch in builder_of("body").batches(records, keep)) == 300


def test_only_wanted_columns_are_touched() -> None:
    """Bodies that lie nowhere do not matter to those who do not want them, and take no memory."""
    records = log_of(*({"body": bytes(1 << 16)} for _ in range(100)))
    others = [column.name for column in COLUMNS if column.name != "body"]
    builder_of(*others).build(records)  # Everything is loaded now.
    tracemalloc.start()
    builder_of(*others).build(records)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    records.rows[:, c.C_BODY_AT] = 1 << 40
    assert builder_of(*others).build(records).num_rows == 100
    with pytest.raises(AssertionError):
        builder_of("body").build(records)


def test_many_small_batches_are_worth_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows at a time must not mean the slow way for ever."""
    monkeypatch.setattr(choosing, "is_loaded", lambda module: False)
    used: list[int] = []
    gather_parts = gather_kernel.gather_parts

    def counted(*args: Any) -> Any:
        used.append(1)
        return gather_parts(*args)

    monkeypatch.setattr(gather_kernel, "gather_parts", counted, raising=True)
    records, builder = log_of(*({} for _ in range(500))), builder_of("topic")
    for made in range(500, 4000, 500):
        builder.build(records)
        assert not used, made
    builder.build(records)
    assert used


def test_batches_outlive_the_records() -> None:
    data = np.frombuffer(bytearray(log_of({}, {"topic": "other"}).data.tobytes()), np.uint8)
    records = scanned(data)
    batch = builder_of().build(records)
    before = batch.to_pylist()
    data[:] = 0xFF
    records.rows[:] = -1
    assert batch.to_pylist() == before


@pytest.mark.usefixtures("either_gather")
@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (0, True),
        (-1, True),
        (1_700_000_000_123, True),
        (253_402_300_799_999, True),
        (253_402_300_800_000, False),
        (-62_135_596_800_000, True),
        (-62_135_596_800_001, False),
        ((1 << 63) - 1, False),
        (-(1 << 63), False),
    ],
)
def test_times_spark_cannot_show_are_null(time_ms: int, shown: bool) -> None:
    records = log_of({"born_timestamp": time_ms, "store_timestamp": 5}, {"born_timestamp": 7})
    batch = builder_of("bornTimestamp", "storeTimestamp").build(records)
    batch.validate(full=True)
    micros = batch["bornTimestamp"].cast(pa.int64()).to_pylist()
    assert micros == [time_ms * 1000 if shown else None, 7000]
    assert batch["storeTimestamp"].null_count == 0


@pytest.mark.usefixtures("either_gather")
def test_texts_that_are_no_utf8_are_repaired() -> None:
    records = log_of(
        {"properties": b"TAGS\x01caf\xe9\x02KEYS\x01\xe6\x97\xa5\xe6\x9c\xac", "topic": "Z\u00fcrich"},
        {"properties": b"TAGS\x01\xc3\x02KEYS\x01\xa9\x02UNIQ_KEY\x01ok"},  # Side by side they look like one letter.
        {"properties": b"\xff\x01one\x02\xfe\x01two\x02plain\x01\xed\xa0\x80"},  # Two names become one.
        {"properties": b"TAGS\x01plain"},
    )
    got = rows_of(builder_of("tags", "keys", "uniqKey", "properties", "topic").build(records))
    expected = [expected_row(message, "", decompress=True) for message in messages_of(records)]
    assert got == [{name: row[name] for name in got[0]} for row in expected]
    assert got[0]["tags"] == "caf\ufffd"
    assert got[2]["properties"] == [("\ufffd", "two"), ("plain", "\ufffd\ufffd\ufffd")]
    headers = builder_of("headers", mode="kafka", headers=True).build(records)["headers"].to_pylist()
    assert headers[2][0] == {"key": "\ufffd", "value": b"one"}


@pytest.mark.parametrize("mode", ["rocketmq", "kafka"])
def test_rows_for_damage(mode: SchemaMode) -> None:
    schema = spark_schema(mode, corrupt=True)
    builder = BatchBuilder(schema, mode=mode, broker_name="broker-a", decompress=True)
    ranges = [Range(100, 250, "BAD_CRC"), Range(1 << 40, (1 << 40) + (1 << 32), "no such file")]
    first, second = rows_of(builder.damaged(ranges))
    present = {name: value for name, value in first.items() if value is not None}
    assert present.pop("_corrupt") == "bytes 100 to 250 of the log: BAD_CRC"
    assert present == ({"brokerName": "broker-a", "physicalOffset": 100, "size": 150} if mode == "rocketmq" else {})
    assert second["_corrupt"].endswith("no such file")
    assert second.get("size") is None
    whole = builder.build(log_of({}, {}))
    assert whole["_corrupt"].to_pylist() == [None, None]
    assert whole.schema == builder.damaged(ranges).schema


def test_a_broker_without_a_plain_name() -> None:
    builder = BatchBuilder(FULL, mode="rocketmq", broker_name="Br\u00fccke", decompress=True)
    for count in (3, 1, 2):
        assert builder.build(log_of(*({} for _ in range(count))))["brokerName"].to_pylist() == ["Br\u00fccke"] * count


def table_of(spark: "SparkSession", batches: list[pa.RecordBatch], schema: StructType) -> "DataFrame":
    """The batches through a data source of Spark's, made for this."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(None)]

        def read(self, partition: InputPartition) -> Any:
            yield from batches

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "batches_of_a_test"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    return spark.read.format("batches_of_a_test").schema(schema).load()


@pytest.fixture
def odd_records() -> RecordColumns:
    """One of everything that may differ between Arrow and Spark."""
    return log_of(
        {
            "properties": b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02x\x01Z\xc3\xbcrich",
            "store_timestamp": 1_700_000_000_123,
        },
        {"properties": b"", "body": b"", "born_timestamp": (1 << 63) - 1, "flag": -(1 << 31)},
        {
            "body": zlib.compress(b"packed"),
            "sys_flag": 0x1,
            "born_host": Host("2001:db8::1", 1),
            "store_host": Host("::1", 2),
        },
        {"body": bytes(range(256)), "prepared_transaction_offset": (1 << 63) - 1, "topic": "%RETRY%\u65e5\u672c"},
        base=1 << 40,
    )


def comparable(value: Any) -> Any:
    """As Spark hands it to Python: times without a zone (the session's is UTC), maps as dicts."""
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def test_spark_takes_every_column(spark: "SparkSession", odd_records: RecordColumns) -> None:
    builder = builder_of()
    expected = [expected_row(message, "broker-a", decompress=True) for message in messages_of(odd_records)]
    whole = table_of(spark, [builder.build(odd_records)], FULL).collect()
    assert [row.asDict() for row in whole] == [
        {name: comparable(value) or ({} if name == "properties" else comparable(value)) for name, value in row.items()}
        for row in expected
    ]
    backwards = StructType(FULL.fields[::-1])
    batch = BatchBuilder(backwards, mode="rocketmq", broker_name="broker-a", decompress=True).build(odd_records)
    counts = table_of(spark, [batch, batch], backwards).selectExpr(*(f"count({name}) {name}" for name in FULL.names))
    assert counts.collect()[0].asDict() == {
        name: 2 * sum(row[name] is not None for row in expected) for name in FULL.names
    }


def test_spark_takes_the_columns_of_kafka_and_damage(spark: "SparkSession", odd_records: RecordColumns) -> None:
    schema = spark_schema("kafka", corrupt=True, headers=True)
    builder = BatchBuilder(schema, mode="kafka", broker_name="broker-a", decompress=True)
    batches = [builder.build(odd_records), builder.damaged([Range(1, 2, "why")]), builder.build(scanned(b""))]
    rows = table_of(spark, batches, schema).collect()
    assert [row["value"] for row in rows] == [b"body", b"", b"packed", bytes(range(256)), None]
    assert [row["timestampType"] for row in rows] == [1, 1, 1, 1, None]
    assert rows[0]["headers"][3].asDict() == {"key": "x", "value": "Z\u00fcrich".encode()}
    assert [row["_corrupt"] for row in rows] == [None] * 4 + ["bytes 1 to 2 of the log: why"]
