"""Spark reads: whole rows, few columns, and few rows of a store, on two cores, beside other ways to the same rows.

Rows go into Spark's `noop` sink, which takes every column and keeps none; a count goes to the driver. A query is
measured as a user waits for it, planning included, in a session that is warm; its data is in the page cache. Both
sides of a ratio run in turn. The other ways are

    tuples     the same records, walked by the same kernel, handed to Spark row by row as Python tuples
    Parquet    the same rows, written by Spark with all columns (zstd; the bodies are random and do not shrink)

The answer is a hash Spark itself makes of all rows it got, addresses left out; the other ways must have the same.
"""

import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.answers import joined
from bench.course import GIB, MIB, Course
from bench.figures import Figure, Target, at_least, at_most
from bench.workload import BORN_MS, FixedClock, load_kernels, sync_log
from embermq import Message, MessageStore, StoreSettings
from embermq.format.frame import FIXED_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "spark_read"
ABOUT = "a store as a Spark table, beside tuples and Parquet"
MASTER = "local[2]"
BODIES = {"1 KiB": 1024, "200 B": 200}
TOPICS = 8
QUEUES = 4
ONE_PERCENT = 101  # Prime, so that what is rare is so in every topic and queue.
THREE_COLUMNS = "topic string, queueId int, queueOffset bigint"
_CHUNK = 4096
_HASHED = (
    "topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "uniqKey", "tags", "keys", "body",
    "to_json(properties)", "flag", "sysFlag", "bornTimestamp", "storeTimestamp", "reconsumeTimes",
    "preparedTransactionOffset", "bodyCrc", "size",
)  # fmt: skip

Query = Callable[[], "DataFrame"]


class Filled(NamedTuple):
    """A store to read."""

    path: Path
    messages: int
    log_bytes: int


def run(course: Course) -> list[Figure]:
    load_kernels()
    log_bytes = course.pick(2 * MIB, GIB)
    with _session(course) as spark, course.scratch() as scratch:

        def filled(name: str, body_bytes: int, wanted_bytes: int) -> Filled:
            course.note(f"{NAME}: filling {name}")
            return fill(scratch / name / "store", course.settings(), body_bytes=body_bytes, log_bytes=wanted_bytes)

        stores = {case: filled(case, body_bytes, log_bytes) for case, body_bytes in BODIES.items()}
        figures = [
            figure
            for case, store in stores.items()
            for figure in _whole_and_narrow(course, spark, case, store, scratch / f"{case}.parquet")
        ]
        figures += _tuples(course, spark, stores["200 B"], filled("few", 200, log_bytes // 6))
        figures += _growth(course, spark, stores["1 KiB"], filled("large", 1024, 4 * log_bytes))
        return [*figures, *_workers()]


# -- the stores --------------------------------------------------------------------------------------------------


def fill(path: Path, settings: StoreSettings, *, body_bytes: int, log_bytes: int) -> Filled:
    """A closed store of about `log_bytes`: eight topics, four queues each, random bodies, three properties."""
    pool = random.Random(7).randbytes(min(64 * MIB, max(log_bytes, 2 * body_bytes)))
    first = _message(0, body_bytes, pool)
    size = FIXED_BYTES + body_bytes + len(first.topic) + len(first.property_bytes())
    messages = -(-log_bytes // size)
    with MessageStore.open(path, settings, clock=FixedClock()) as store:
        for done in range(0, messages, _CHUNK):
            numbers = range(done, min(done + _CHUNK, messages))
            store.append_many([_message(number, body_bytes, pool) for number in numbers])
        store.wait_for_dispatch(600.0)
    sync_log(path)
    return Filled(path, messages, messages * size)


def _message(number: int, body_bytes: int, pool: bytes) -> Message:
    at = number * 7919 * 16 % (len(pool) - body_bytes)
    rare = number % ONE_PERCENT
    tag = "rare" if rare == 7 else "paid"
    properties = f"UNIQ_KEY\x017F0000010001639CFE2B{number:012X}\x02KEYS\x01g-{rare:03d}\x02TAGS\x01{tag}"
    return Message(
        f"bench-{number % TOPICS}", pool[at : at + body_bytes], queue_id=number // TOPICS % QUEUES,
        born_timestamp=BORN_MS, encoded_properties=properties.encode(),
    )  # fmt: skip


# -- the session -------------------------------------------------------------------------------------------------


@contextmanager
def _session(course: Course) -> "Iterator[SparkSession]":
    """The session of this process, or one of our own, which then goes with its JVM."""
    from pyspark import SparkContext

    import embermq.spark

    borrowed = SparkContext._active_spark_context is not None
    spark = embermq.spark.session(NAME, MASTER, driver_memory=course.pick("1g", "3g"))
    try:
        yield spark
    finally:
        if not borrowed:
            gateway = spark.sparkContext._gateway
            spark.stop()
            assert gateway is not None
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


def _seconds(query: Query) -> float:
    gc.collect()
    began = time.perf_counter()
    query().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _count_seconds(query: Query) -> float:
    gc.collect()
    began = time.perf_counter()
    query().collect()
    return time.perf_counter() - began


def _answer(query: Query, columns: tuple[str, ...] = _HASHED) -> tuple[str, int]:
    """A hash of all rows in any order, and how many there are."""
    total = f"sum(cast(xxhash64({', '.join(columns)}) as decimal(38, 0)))"
    (row,) = query().selectExpr("count(1) as rows", f"cast({total} as string) as total").collect()
    return joined(row["rows"], row["total"]), row["rows"]


def _in_turn(course: Course, *queries: Callable[[], float]) -> list[list[float]]:
    """Seconds of each query in every round, one after another."""
    rounds = [[query() for query in queries] for _ in range(course.rounds)]
    return [list(column) for column in zip(*rounds, strict=True)]


def _ratios(slower: list[float], faster: list[float]) -> list[float]:
    return [one / other for one, other in zip(slower, faster, strict=True)]


def _target(course: Course, target: Target) -> Target | None:
    """At smoke size a query is nothing but its planning."""
    return target if course.size == "full" else None


# -- the cases ---------------------------------------------------------------------------------------------------


def _table(spark: "SparkSession", path: Path, schema: str | None = None, **options: str) -> Query:
    def load() -> "DataFrame":
        reader = spark.read.format("rocketmq").options(**options)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    return load


def _whole_and_narrow(
    course: Course, spark: "SparkSession", case: str, store: Filled, parquet: Path
) -> list[Figure]:  # fmt: skip
    """All columns, three columns, and Parquet."""
    whole, narrow = _table(spark, store.path), _table(spark, store.path, THREE_COLUMNS)
    answer, rows = _answer(whole)
    assert rows == store.messages, (rows, store)
    narrow_answer, _ = _answer(narrow, ("topic", "queueId", "queueOffset"))
    whole().write.mode("overwrite").parquet(str(parquet))

    def from_parquet() -> "DataFrame":
        return spark.read.parquet(str(parquet))

    assert _answer(from_parquet)[0] == answer, f"{case}: Parquet has other rows"
    seconds, of_narrow, of_parquet = _in_turn(
        course, lambda: _seconds(whole), lambda: _seconds(narrow), lambda: _seconds(from_parquet)
    )
    rate = [store.messages / s / 1e6 for s in seconds]
    speed = [store.log_bytes / s / 1e6 for s in seconds]
    rate_target = _target(course, at_least(1.3)) if case == "200 B" else None
    speed_target = _target(course, at_least(350)) if case == "1 KiB" else None
    return [
        Figure(f"{case}, all columns", "rows", "M rows/s", rate, rate_target, answer),
        Figure(f"{case}, all columns", "log", "MB/s", speed, speed_target, answer),
        Figure(f"{case}, all columns", "Parquet", "M rows/s", [store.messages / s / 1e6 for s in of_parquet],
               answer=answer),
        Figure(f"{case}, all columns", "rate / Parquet's", "x", _ratios(of_parquet, seconds),
               _target(course, at_least(0.7)), answer),
        Figure(f"{case}, three columns", "rows", "M rows/s", [store.messages / s / 1e6 for s in of_narrow],
               answer=narrow_answer),
        Figure(f"{case}, three columns", "rate / all columns'", "x", _ratios(seconds, of_narrow),
               _target(course, at_least(2.5)), narrow_answer),
    ]  # fmt: skip


def _tuples(course: Course, spark: "SparkSession", store: Filled, few: Filled) -> list[Figure]:
    """Rates, since the tuples get fewer rows: they would take half a minute otherwise."""
    format_name = _register_tuples(spark)

    def by_tuples() -> "DataFrame":
        return spark.read.format(format_name).load(str(few.path))

    answer, _ = _answer(_table(spark, few.path))
    assert _answer(by_tuples)[0] == answer, "tuples have other rows"
    of_arrow, of_tuples = _in_turn(
        course, lambda: _seconds(_table(spark, store.path)), lambda: _seconds(by_tuples)
    )  # fmt: skip
    arrow = [store.messages / s for s in of_arrow]
    tuples = [few.messages / s for s in of_tuples]
    return [
        Figure("200 B, tuples", "rows", "M rows/s", [rate / 1e6 for rate in tuples], answer=answer),
        Figure("200 B, tuples", "rate of batches / tuples'", "x", _ratios(arrow, tuples), _target(course, at_least(6)),
               answer),
    ]  # fmt: skip


def _growth(course: Course, spark: "SparkSession", quarter: Filled, store: Filled) -> list[Figure]:
    """Four times the log; and what finds little in much: filters, a count by topic."""
    whole = _table(spark, store.path)
    answer, rows = _answer(whole)
    assert rows == store.messages, (rows, store)

    def by_tag() -> "DataFrame":
        return whole().where("tags = 'rare'")

    def by_key() -> "DataFrame":
        return whole().where("keys = 'g-011'")

    def by_topic() -> "DataFrame":
        return _table(spark, store.path, "topic string")().groupBy("topic").count()

    counted = joined(sorted(tuple(row) for row in by_topic().collect()))
    tag_answer, tagged = _answer(by_tag)
    key_answer, keyed = _answer(by_key)
    expected = [len(range(rare, store.messages, ONE_PERCENT)) for rare in (7, 11)]
    assert [tagged, keyed] == expected, (tagged, keyed, expected)
    of_quarter, seconds, of_tag, of_key, of_count = _in_turn(
        course, lambda: _seconds(_table(spark, quarter.path)), lambda: _seconds(whole), lambda: _seconds(by_tag),
        lambda: _seconds(by_key), lambda: _count_seconds(by_topic),
    )  # fmt: skip
    mib = f"{store.log_bytes / MIB:,.0f} MiB"
    shares = [large / (4 * small) for large, small in zip(seconds, of_quarter, strict=True)]
    counting = [store.log_bytes / s / 1e9 for s in of_count]
    return [
        Figure(f"{mib}, all columns", "time / 4 x a quarter's", "x", shares, _target(course, at_most(1.15)), answer),
        Figure(f"{mib}, one tag in a hundred", "rate / all rows'", "x", _ratios(seconds, of_tag),
               _target(course, at_least(10)), tag_answer),
        Figure(f"{mib}, one key in a hundred", "rate / all rows'", "x", _ratios(seconds, of_key),
               _target(course, at_least(10)), key_answer),
        Figure(f"{mib}, count by topic", "log", "GB/s", counting, _target(course, at_least(2)), counted),
    ]  # fmt: skip


# -- tuples ------------------------------------------------------------------------------------------------------


def _register_tuples(spark: "SparkSession") -> str:
    """A format that reads the same slices and hands rows over as tuples. Made in a function: its classes travel to
    the workers as they are, without this module."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    from embermq.spark.schema import spark_schema

    class TupleReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> list[InputPartition]:
            from embermq.spark.batch_reader import RocketMQBatchReader

            return RocketMQBatchReader(spark_schema("rocketmq"), self.options).partitions()

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from datetime import UTC, datetime

            from embermq.format import columns as c
            from embermq.model.hosts import unpack_host
            from embermq.model.ids import message_id
            from embermq.model.properties import decode_properties
            from embermq.spark.plan import LogCut
            from embermq.spark.slices import Slice
            from embermq.store.survey_scan import Damage, scan_segments

            assert isinstance(partition, Slice)
            cut = partition.cut
            assert isinstance(cut, LogCut)
            broker = partition.broker_name
            for scanned in scan_segments(partition.segments, cut.start, cut.end):
                assert not isinstance(scanned, Damage)
                data, base = scanned.data.tobytes(), scanned.base
                for row in scanned.rows.tolist():
                    start = row[c.C_PHYSICAL] - base
                    store_host = unpack_host(data[start + 64 : start + 72])
                    properties = decode_properties(data[row[c.C_PROPS_AT] : row[c.C_PROPS_AT] + row[c.C_PROPS_LEN]])
                    yield (
                        data[row[c.C_TOPIC_AT] : row[c.C_TOPIC_AT] + row[c.C_TOPIC_LEN]].decode(),
                        broker,
                        row[c.C_QUEUE_ID],
                        row[c.C_QUEUE_OFFSET],
                        row[c.C_PHYSICAL],
                        message_id(store_host, row[c.C_PHYSICAL]),
                        properties.get("UNIQ_KEY"),
                        properties.get("TAGS"),
                        properties.get("KEYS"),
                        data[row[c.C_BODY_AT] : row[c.C_BODY_AT] + row[c.C_BODY_LEN]],
                        properties,
                        row[c.C_FLAG],
                        row[c.C_SYS_FLAG],
                        datetime.fromtimestamp(row[c.C_BORN_TIME] / 1000, UTC),
                        str(unpack_host(data[start + 48 : start + 56])),
                        datetime.fromtimestamp(row[c.C_STORE_TIME] / 1000, UTC),
                        str(store_host),
                        row[c.C_RECONSUME],
                        row[c.C_PREPARED],
                        int.from_bytes(data[start + 8 : start + 12], "big", signed=True),
                        row[c.C_SIZE],
                    )

    class TupleSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rocketmq_tuples"

        def schema(self) -> StructType:
            return spark_schema("rocketmq")

        def reader(self, schema: StructType) -> DataSourceReader:
            return TupleReader(dict(self.options))

    spark.dataSource.register(TupleSource)
    return TupleSource.name()


# -- memory ------------------------------------------------------------------------------------------------------


def _workers() -> list[Figure]:
    """The most that any Python worker of the session ever had resident."""
    peaks = [_peak_bytes(pid) / 1e6 for pid in _descendants(os.getpid()) if b"pyspark.daemon" in _command_line(pid)]
    assert peaks, "there are no workers"
    return [Figure("workers", "resident, peak", "MB", [max(peaks)], at_most(600))]


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _status(int(entry.name)).get("PPid")) is not None:
            parents[int(entry.name)] = parent
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _peak_bytes(pid: int) -> int:
    return _status(pid).get("VmHWM", 0) << 10


def _status(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    words = (line.replace(":", "").split() for line in lines)
    return {word[0]: int(word[1]) for word in words if word[0] in ("PPid", "VmHWM")}


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
