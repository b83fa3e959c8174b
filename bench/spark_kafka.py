"""The same rows from a store and from Kafka, each through its Spark source: all columns, and three.

Rows are topic, key and body; one topic with four queues here, with four partitions there, which suits Kafka best: its
source makes a task of each. Every column each side has is asked for, 21 here and 7 there; beside them, the 7 columns
of `schemaMode=kafka`, by the format and by `embermq.spark.scan`. Both sides run on two cores with the same session
settings, one at a time and in turn, warm, with all data in the page cache; Kafka's broker and its settings are the
defaults.

The answers of both sides are hashes that Spark makes of what both have, and must be the same. Without peers only our
side is measured.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from bench.course import GIB, MIB, Course, not_measured
from bench.figures import Figure, at_least
from bench.peers import kafka_peer
from bench.spark_side import (
    BODIES,
    MASTER,
    QUEUES,
    THREE_COLUMNS,
    Filled,
    answer_of,
    fill,
    held,
    in_turn,
    ratios,
    scan,
    seconds_of,
    session,
    table,
)
from bench.workload import load_kernels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark_kafka"
ABOUT = "a store as a Spark table, beside Kafka with Spark's own source"
PEERS_ONLY = True  # Left out of a run of everything without peers: `spark_read` has measured our side.
_THREE = ("topic", "partition", "offset")
_HASHED = ("topic", "key", "value", "partition")


class Both(NamedTuple):
    """The two sides of one case."""

    spark: "SparkSession"
    store: Filled
    kafka: kafka_peer.KafkaPeer | None
    topic: str


def run(course: Course) -> list[Figure]:
    load_kernels()
    why_not = kafka_peer.missing() if course.peers else None
    figures = []
    with session(course, NAME) as spark, course.scratch() as scratch, ExitStack() as ended:
        kafka = None
        if course.peers and why_not is None:
            memory = course.pick("1g", "3g")
            kafka = ended.enter_context(
                kafka_peer.KafkaPeer(scratch / "kafka", partitions=QUEUES, master=MASTER, driver_memory=memory)
            )
        for number, (case, body_bytes) in enumerate(BODIES.items()):
            course.note(f"{NAME}: filling {case}")
            log_bytes, path = course.pick(2 * MIB, GIB), scratch / f"store-{number}"
            name = f"body{body_bytes}"
            store = fill(path, course.settings(), body_bytes=body_bytes, log_bytes=log_bytes, topics=1, name=name)
            if kafka is not None:
                course.note(f"{NAME}: filling Kafka, {case}")
                rows = kafka.fill(_topic(name), store.path)
                assert rows == store.messages, (rows, store)
            figures += _case(course, case, Both(spark, store, kafka, _topic(name)))
    if why_not is not None:
        figures.append(not_measured("Kafka", "rate / Kafka's", "x", why_not))
    return figures


def _topic(name: str) -> str:
    """The only topic of a store filled under this name; the same there."""
    return f"{name}-0"


def _case(course: Course, case: str, both: Both) -> list[Figure]:
    whole, narrow = table(both.spark, both.store.path), table(both.spark, both.store.path, THREE_COLUMNS)
    same = table(both.spark, both.store.path, schemaMode="kafka")
    scanned = scan(both.spark, both.store.path, schemaMode="kafka")
    answer, rows = answer_of(same, _HASHED)
    narrow_answer, _ = answer_of(same, _THREE)
    assert rows == both.store.messages, (rows, both.store)
    assert answer_of(scanned, _HASHED)[0] == answer, f"{case}: a scan has other rows"
    ours = [lambda query=query: seconds_of(query) for query in (whole, same, scanned, narrow)]
    kafka, topic = both.kafka, both.topic
    if kafka is None:
        of_whole, of_same, of_scan, of_narrow = in_turn(course, *ours)
        theirs = their_narrow = None
    else:
        assert kafka.answer(topic, _HASHED) == (answer, rows), f"{case}: Kafka has other rows"
        assert kafka.answer(topic, _THREE) == (narrow_answer, rows), f"{case}: Kafka has other offsets"
        of_whole, of_same, of_scan, of_narrow, theirs, their_narrow = in_turn(
            course, *ours, lambda: kafka.seconds(topic), lambda: kafka.seconds(topic, _THREE)
        )
    figures = []
    for name, seconds, of_kafka, limit, digest in (
        ("all columns", of_whole, theirs, 2.5, answer),
        ("Kafka's columns", of_same, theirs, 2.5, answer),
        ("Kafka's columns by scan()", of_scan, theirs, 2.5, answer),
        ("three columns", of_narrow, their_narrow, 4.0, narrow_answer),
    ):
        here = f"{case}, {name}"
        figures.append(Figure(here, "rows", "M rows/s", _rates(both.store, seconds), answer=digest))
        if of_kafka is not None:
            figures.append(Figure(here, "Kafka", "M rows/s", _rates(both.store, of_kafka), answer=digest))
            target = held(course, at_least(limit))
            figures.append(Figure(here, "rate / Kafka's", "x", ratios(of_kafka, seconds), target, digest))
    return figures


def _rates(store: Filled, seconds: list[float]) -> list[float]:
    return [store.messages / one / 1e6 for one in seconds]
