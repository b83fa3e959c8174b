"""The same rows from a running broker and from its directory, each as a Spark table; and from Kafka.

One topic with four queues, a broker with its defaults in a process of its own, on loopback, two cores for everything:
what the broker does for a read takes from what Spark has. Asked for are all columns, and the 7 of `schemaMode=kafka`.
Sides are measured in turn, warm, with all data in the page cache.

The answers of all sides are hashes that Spark makes of what all have, and must be the same.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.course import GIB, MIB, Course, not_measured
from bench.figures import Figure, at_least
from bench.peers import kafka_peer
from bench.spark_side import (
    BODIES,
    MASTER,
    QUEUES,
    Filled,
    Query,
    answer_of,
    fill,
    held,
    in_turn,
    ratios,
    seconds_of,
    session,
    table,
)
from bench.workload import load_kernels
from tests.support.broker_process import BrokerProcess
from tests.support.wire_topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "spark_wire"
ABOUT = "a running broker as a Spark table, beside its directory and Kafka"
_HASHED = ("topic", "key", "value", "partition")
_SAME = ("topic", "queueId", "queueOffset", "physicalOffset", "uniqKey", "tags", "keys", "body", "to_json(properties)")


def run(course: Course) -> list[Figure]:
    load_kernels()
    why_not = kafka_peer.missing() if course.peers else None
    figures: list[Figure] = []
    with session(course, NAME) as spark, course.scratch() as scratch, ExitStack() as ended:
        kafka = None
        if course.peers and why_not is None:
            memory = course.pick("1g", "3g")
            kafka = ended.enter_context(
                kafka_peer.KafkaPeer(scratch / "kafka", partitions=QUEUES, master=MASTER, driver_memory=memory)
            )
        for case, body_bytes in BODIES.items():
            course.note(f"{NAME}: filling {case}")
            place, name, log_bytes = scratch / f"{body_bytes}", f"body{body_bytes}", course.pick(2 * MIB, GIB // 2)
            store = fill(
                place / "store", course.settings(), body_bytes=body_bytes, log_bytes=log_bytes, topics=1, name=name
            )
            if kafka is not None:
                rows = kafka.fill(f"{name}-0", store.path)
                assert rows == store.messages, (rows, store)
            with _served(course, place, f"{name}-0") as name_server:
                figures += _case(course, case, spark, store, f"{name}-0", name_server, kafka)
    if why_not is not None:
        figures.append(not_measured("Kafka", "rate / Kafka's", "x", why_not))
    return figures


@contextmanager
def _served(course: Course, place: Path, topic: str) -> Iterator[str]:
    """A broker on a store that was filled; its name server."""
    sizes = [f"{name}={value}" for name, value in course.settings().to_properties(changed_only=True).items()]
    with BrokerProcess(place, sizes=sizes) as broker:
        create_topic([broker.address], broker.name_server, topic, QUEUES)
        yield broker.name_server


def _wire(spark: "SparkSession", name_server: str, topic: str, **options: str) -> Query:
    def load() -> "DataFrame":
        return spark.read.format("rocketmq").options(nameServer=name_server, topic=topic, **options).load()

    return load


def _case(
    course: Course,
    case: str,
    spark: "SparkSession",
    store: Filled,
    topic: str,
    name_server: str,
    kafka: kafka_peer.KafkaPeer | None,
) -> list[Figure]:
    pairs = {
        "all columns": (table(spark, store.path), _wire(spark, name_server, topic), _SAME),
        "Kafka's columns": (
            table(spark, store.path, schemaMode="kafka"),
            _wire(spark, name_server, topic, schemaMode="kafka"),
            _HASHED,
        ),
    }
    answers = {}
    for name, (by_path, by_wire, columns) in pairs.items():
        answers[name], rows = answer_of(by_path, columns)
        assert rows == store.messages, (rows, store)
        assert answer_of(by_wire, columns) == (answers[name], rows), f"{case}, {name}: the broker has other rows"
    queries: list[Callable[[], float]] = [partial(seconds_of, one) for pair in pairs.values() for one in pair[:2]]
    if kafka is not None:
        answer = answers["Kafka's columns"]
        assert kafka.answer(topic, _HASHED) == (answer, store.messages), f"{case}: Kafka has other rows"
        queries.append(partial(kafka.seconds, topic))
    seconds = in_turn(course, *queries)
    figures = []
    for number, name in enumerate(pairs):
        of_path, of_wire = seconds[2 * number : 2 * number + 2]
        here, answer = f"{case}, {name}", answers[name]
        figures += [
            Figure(here, "by name server", "M rows/s", _rates(store, of_wire), answer=answer),
            Figure(here, "by path", "M rows/s", _rates(store, of_path), answer=answer),
            Figure(here, "rate / by path", "x", ratios(of_path, of_wire), held(course, at_least(0.5)), answer),
        ]
    if kafka is not None:
        here, answer = f"{case}, Kafka's columns", answers["Kafka's columns"]
        ratio = ratios(seconds[-1], seconds[3])
        figures.append(Figure(here, "Kafka", "M rows/s", _rates(store, seconds[-1]), answer=answer))
        figures.append(Figure(here, "rate / Kafka's", "x", ratio, held(course, at_least(1.5)), answer))
    return figures


def _rates(store: Filled, seconds: list[float]) -> list[float]:
    return [store.messages / one / 1e6 for one in seconds]
