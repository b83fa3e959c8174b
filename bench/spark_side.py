"""What scenarios with Spark share: stores to read, a session on two cores, queries and their answers, the workers.

A query is measured as a user waits for it, planning included, in a session that is warm. Rows go into Spark's `noop`
sink, which takes every column and keeps none. The session belongs to this process: one at a time.
"""

import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.answers import joined
from bench.course import MIB, Course
from bench.figures import Target
from bench.workload import BORN_MS, FixedClock, sync_log
from embermq import Message, MessageStore, StoreSettings
from embermq.format.frame import FIXED_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"
BODIES = {"1 KiB": 1024, "200 B": 200}
TOPICS = 8
QUEUES = 4
ONE_PERCENT = 101  # Prime, so that what is rare is so in every topic and queue.
THREE_COLUMNS = "topic string, queueId int, queueOffset bigint"
_CHUNK = 4096
_HASHED = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "uniqKey",
    "tags",
    "keys",
    "body",
    "to_json(properties)",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "storeTimestamp",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCrc",
    "size",
)

Query = Callable[[], "DataFrame"]


class Filled(NamedTuple):
    """A store to read."""

    path: Path
    messages: int
    log_bytes: int


# -- the stores --------------------------------------------------------------------------------------------------


def fill(
    path: Path, settings: StoreSettings, *, body_bytes: int, log_bytes: int, topics: int = TOPICS, name: str = "bench"
) -> Filled:
    """A closed store of about `log_bytes`: some topics, four queues each, random bodies, three properties."""
    pool = random.Random(7).randbytes(min(64 * MIB, max(log_bytes, 2 * body_bytes)))
    first = message(0, body_bytes, pool, topics, name)
    size = FIXED_BYTES + body_bytes + len(first.topic) + len(first.property_bytes())
    messages = -(-log_bytes // size)
    with MessageStore.open(path, settings, clock=FixedClock()) as store:
        for done in range(0, messages, _CHUNK):
            numbers = range(done, min(done + _CHUNK, messages))
            store.append_many([message(number, body_bytes, pool, topics, name) for number in numbers])
        store.wait_for_dispatch(600.0)
    sync_log(path)
    return Filled(path, messages, messages * size)


def message(number: int, body_bytes: int, pool: bytes, topics: int = TOPICS, name: str = "bench") -> Message:
    at = number * 7919 * 16 % (len(pool) - body_bytes)
    rare = number % ONE_PERCENT
    tag = "rare" if rare == 7 else "paid"
    properties = f"UNIQ_KEY\x017F0000010001639CFE2B{number:012X}\x02KEYS\x01g-{rare:03d}\x02TAGS\x01{tag}"
    return Message(
        f"{name}-{number % topics}",
        pool[at : at + body_bytes],
        queue_id=number // topics % QUEUES,
        born_timestamp=BORN_MS,
        encoded_properties=properties.encode(),
    )


def fixed_messages(body_bytes: int, count: int = 16_384) -> tuple[list[Message], int]:
    """Messages to be appended again and again, all of one size, and the size of their records."""
    pool = random.Random(7).randbytes(16 * MIB)
    messages = [message(number, body_bytes, pool) for number in range(count)]
    return messages, FIXED_BYTES + body_bytes + len(messages[0].topic) + len(messages[0].property_bytes())


# -- the session -------------------------------------------------------------------------------------------------


@contextmanager
def session(course: Course, name: str) -> "Iterator[SparkSession]":
    """The session of this process, or one of our own, which then goes with its JVM."""
    from pyspark import SparkContext

    import embermq.spark

    borrowed = SparkContext._active_spark_context is not None
    spark = embermq.spark.session(name, MASTER, driver_memory=course.pick("1g", "3g"))
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


def seconds_of(query: Query) -> float:
    gc.collect()
    began = time.perf_counter()
    query().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def count_seconds(query: Query) -> float:
    gc.collect()
    began = time.perf_counter()
    query().collect()
    return time.perf_counter() - began


def answer_of(query: Query, columns: tuple[str, ...] = _HASHED) -> tuple[str, int]:
    """A hash of all rows in any order, and how many there are."""
    total = f"sum(cast(xxhash64({', '.join(columns)}) as decimal(38, 0)))"
    (row,) = query().selectExpr("count(1) as rows", f"cast({total} as string) as total").collect()
    return joined(row["rows"], row["total"]), row["rows"]


def in_turn(course: Course, *queries: Callable[[], float]) -> list[list[float]]:
    """Seconds of each query in every round, one after another."""
    rounds = [[query() for query in queries] for _ in range(course.rounds)]
    return [list(column) for column in zip(*rounds, strict=True)]


def ratios(slower: list[float], faster: list[float]) -> list[float]:
    return [one / other for one, other in zip(slower, faster, strict=True)]


def held(course: Course, target: Target) -> Target | None:
    """The target at full size; at smoke size a query is nothing but its planning."""
    return target if course.size == "full" else None


def table(spark: "SparkSession", path: Path, schema: str | None = None, **options: str) -> Query:
    def load() -> "DataFrame":
        reader = spark.read.format("rocketmq").options(**options)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    return load


def scan(spark: "SparkSession", path: Path, **options: str) -> Query:
    """The same rows by `embermq.spark.scan`."""
    import embermq.spark

    return lambda: embermq.spark.scan(spark, path, **options)


# -- memory ------------------------------------------------------------------------------------------------------


def worker_peak_mb() -> float:
    """The most that any Python worker of the session ever had resident."""
    peaks = [_peak_bytes(pid) / 1e6 for pid in _descendants(os.getpid()) if b"pyspark.daemon" in _command_line(pid)]
    assert peaks, "there are no workers"
    return max(peaks)


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
