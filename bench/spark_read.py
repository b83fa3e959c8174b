"""Spark reads: whole rows, few columns, and few rows of a store, on two cores, beside other ways to the same rows.

Rows go into Spark's `noop` sink, which takes every column and keeps none; a count goes to the driver. A query is
measured as a user waits for it, planning included, in a session that is warm; its data is in the page cache. Both
sides of a ratio run in turn. The other ways are

    scan()     the same plan and the same batches, handed to Spark by `embermq.spark.scan`, which it copies once less
    tuples     the same records, walked by the same kernel, handed to Spark row by row as Python tuples
    Parquet    the same rows, written by Spark with all columns (zstd; the bodies are random and do not shrink)

The answer is a hash Spark itself makes of all rows it got, addresses left out; the other ways must have the same.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.answers import joined
from bench.course import GIB, MIB, Course
from bench.figures import Figure, at_least, at_most
from bench.spark_side import (
    BODIES,
    ONE_PERCENT,
    THREE_COLUMNS,
    Filled,
    Query,
    answer_of,
    count_seconds,
    fill,
    held,
    in_turn,
    ratios,
    scan,
    seconds_of,
    session,
    table,
    worker_peak_mb,
)
from bench.workload import load_kernels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "spark_read"
ABOUT = "a store as a Spark table, beside tuples and Parquet"


def run(course: Course) -> list[Figure]:
    load_kernels()
    log_bytes = course.pick(2 * MIB, GIB)
    with session(course, NAME) as spark, course.scratch() as scratch:

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
        shutil.rmtree(stores["200 B"].path)
        times = course.pick(4, 8)
        for query in _narrow(spark, stores["1 KiB"]):  # All that the large store is asked.
            seconds_of(query)
        small_peak = worker_peak_mb()
        figures += _growth(course, spark, stores["1 KiB"], filled("large", 1024, times * log_bytes), times)
        return [*figures, *_workers(course, small_peak)]


# -- the cases ---------------------------------------------------------------------------------------------------


def _whole_and_narrow(course: Course, spark: "SparkSession", case: str, store: Filled, parquet: Path) -> list[Figure]:
    """All columns by both ways, three columns, and Parquet."""
    whole, narrow = table(spark, store.path), table(spark, store.path, THREE_COLUMNS)
    scanned = scan(spark, store.path)
    answer, rows = answer_of(whole)
    assert rows == store.messages, (rows, store)
    narrow_answer, _ = answer_of(narrow, ("topic", "queueId", "queueOffset"))
    whole().write.mode("overwrite").parquet(str(parquet))

    def from_parquet() -> "DataFrame":
        return spark.read.parquet(str(parquet))

    assert answer_of(from_parquet)[0] == answer, f"{case}: Parquet has other rows"
    assert answer_of(scanned)[0] == answer, f"{case}: a scan has other rows"
    seconds, of_scan, of_narrow, of_parquet = in_turn(
        course, *(lambda query=query: seconds_of(query) for query in (whole, scanned, narrow, from_parquet))
    )
    rate = [store.messages / s / 1e6 for s in seconds]
    speed = [store.log_bytes / s / 1e6 for s in seconds]
    rate_target = held(course, at_least(1.3)) if case == "200 B" else None
    speed_target = held(course, at_least(350)) if case == "1 KiB" else None
    return [
        Figure(f"{case}, all columns", "rows", "M rows/s", rate, rate_target, answer),
        Figure(f"{case}, all columns", "log", "MB/s", speed, speed_target, answer),
        Figure(
            f"{case}, all columns", "Parquet", "M rows/s", [store.messages / s / 1e6 for s in of_parquet], answer=answer
        ),
        Figure(
            f"{case}, all columns",
            "rate / Parquet's",
            "x",
            ratios(of_parquet, seconds),
            held(course, at_least(0.7)),
            answer,
        ),
        Figure(
            f"{case}, all columns by scan()",
            "rows",
            "M rows/s",
            [store.messages / s / 1e6 for s in of_scan],
            rate_target,
            answer,
        ),
        Figure(
            f"{case}, all columns by scan()",
            "rate / Parquet's",
            "x",
            ratios(of_parquet, of_scan),
            held(course, at_least(0.7)),
            answer,
        ),
        Figure(
            f"{case}, three columns",
            "rows",
            "M rows/s",
            [store.messages / s / 1e6 for s in of_narrow],
            answer=narrow_answer,
        ),
        Figure(
            f"{case}, three columns",
            "rate / all columns'",
            "x",
            ratios(seconds, of_narrow),
            held(course, at_least(2.5)),
            narrow_answer,
        ),
    ]


def _tuples(course: Course, spark: "SparkSession", store: Filled, few: Filled) -> list[Figure]:
    """Rates, since the tuples get fewer rows: they would take half a minute otherwise."""
    format_name = _register_tuples(spark)

    def by_tuples() -> "DataFrame":
        return spark.read.format(format_name).load(str(few.path))

    answer, _ = answer_of(table(spark, few.path))
    assert answer_of(by_tuples)[0] == answer, "tuples have other rows"
    of_arrow, of_tuples = in_turn(course, lambda: seconds_of(table(spark, store.path)), lambda: seconds_of(by_tuples))
    arrow = [store.messages / s for s in of_arrow]
    tuples = [few.messages / s for s in of_tuples]
    return [
        Figure("200 B, tuples", "rows", "M rows/s", [rate / 1e6 for rate in tuples], answer=answer),
        Figure(
            "200 B, tuples", "rate of batches / tuples'", "x", ratios(arrow, tuples), held(course, at_least(6)), answer
        ),
    ]


def _narrow(spark: "SparkSession", store: Filled) -> tuple[Query, Query, Query]:
    """What finds little in much: one tag, one key in a hundred, and a count by topic."""
    # Unlike a plain load it uses filters of the query.
    from embermq.spark import table as whole_table

    return (
        lambda: whole_table(spark, store.path).where("tags = 'rare'"),
        lambda: whole_table(spark, store.path).where("keys = 'g-011'"),
        lambda: table(spark, store.path, "topic string")().groupBy("topic").count(),
    )


def _growth(course: Course, spark: "SparkSession", small: Filled, store: Filled, times: int) -> list[Figure]:
    """So many times the log, all columns and few rows."""
    whole = table(spark, store.path)
    answer, rows = answer_of(whole)
    assert rows == store.messages, (rows, store)

    by_tag, by_key, by_topic = _narrow(spark, store)
    counted = joined(sorted(tuple(row) for row in by_topic().collect()))
    tag_answer, tagged = answer_of(by_tag)
    key_answer, keyed = answer_of(by_key)
    expected = [len(range(rare, store.messages, ONE_PERCENT)) for rare in (7, 11)]
    assert [tagged, keyed] == expected, (tagged, keyed, expected)
    of_small, seconds, of_tag, of_key, of_count = in_turn(
        course,
        lambda: seconds_of(table(spark, small.path)),
        lambda: seconds_of(whole),
        lambda: seconds_of(by_tag),
        lambda: seconds_of(by_key),
        lambda: count_seconds(by_topic),
    )
    mib = f"{store.log_bytes / MIB:,.0f} MiB"
    shares = [large / (times * one) for large, one in zip(seconds, of_small, strict=True)]
    counting = [store.log_bytes / s / 1e9 for s in of_count]
    return [
        Figure(
            f"{mib}, all columns",
            f"time / {times} x that of {small.log_bytes / MIB:,.0f} MiB",
            "x",
            shares,
            held(course, at_most(1.15)),
            answer,
        ),
        Figure(
            f"{mib}, one tag in a hundred",
            "rate / all rows'",
            "x",
            ratios(seconds, of_tag),
            held(course, at_least(10)),
            tag_answer,
        ),
        Figure(
            f"{mib}, one key in a hundred",
            "rate / all rows'",
            "x",
            ratios(seconds, of_key),
            held(course, at_least(10)),
            key_answer,
        ),
        Figure(f"{mib}, count by topic", "log", "GB/s", counting, held(course, at_least(2)), counted),
    ]


# -- tuples ------------------------------------------------------------------------------------------------------


def _register_tuples(spark: "SparkSession") -> str:
    """A format that reads the same slices and hands rows over as tuples. Made in a function: its classes travel to
    the workers as they are, without this module."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    from embermq.spark.options.schema import spark_schema

    class TupleReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> list[InputPartition]:
            from embermq.spark.reading.batch_reader import batch_reader

            return list(batch_reader(spark_schema("rocketmq"), self.options, "tuples").partitions())

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from datetime import UTC, datetime

            from embermq.columns import rows as c
            from embermq.model.hosts import unpack_host
            from embermq.model.ids import message_id
            from embermq.model.properties import decode_properties
            from embermq.spark.planning.plan import LogCut
            from embermq.spark.reading.slices import Slice
            from embermq.store.log.file_scan import DamagedRange, scan_segments

            assert isinstance(partition, Slice)
            cut = partition.cut
            assert isinstance(cut, LogCut)
            broker = partition.broker_name
            for scanned in scan_segments(partition.segments, cut.start, cut.end):
                assert not isinstance(scanned, DamagedRange)
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


def _workers(course: Course, small_peak_mb: float) -> list[Figure]:
    """The most that any Python worker ever had resident: before the large store was read, and in the end."""
    peak_mb = worker_peak_mb()
    return [
        Figure("workers", "resident, peak", "MB", [peak_mb], at_most(600)),
        Figure("workers", "peak / before the large store", "x", [peak_mb / small_peak_mb], held(course, at_most(1.15))),
    ]
