"""The stream of a pipeline from a running cluster: each micro-batch is a range of each queue. No message is read.

A row is a queue with the offsets from which and to which the batch goes; queues that have nothing new have a row, too,
so that the driver knows how far each is. Offsets are those of a stream of the format with nameServer
(wire/stream_offsets.py). Topics, queues and brokers that come later are found; a broker that does not answer is left
out until it does. A queue that is shorter than what was read of it stops the query: a lake cannot take messages back.

Spark runs the reader in a Python process of its own on the driver, for as long as the query runs.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.options.read_options import ReadOptions, parse
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.wire.stream_follower import WireFollower
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.stream_reader import ClusterFollowing, WireStreamReader

FORMAT = "embermq-queue-ranges"
SCHEMA = "topic string, brokerName string, queueId int, start bigint, end bigint"
_GO_ON = "--ignore-data-loss (fail_on_data_loss=False) continues with what is left"
_OWN = ("wantedtopics", "everyseconds")  # options that are not of the format; Spark lowers the case of names

QueueRow = tuple[str, str, int, int, int]


@dataclass
class _Rows(InputPartition):
    rows: list[QueueRow]

    def __post_init__(self) -> None:
        self.value = None


class QueueRanges(DataSource):
    """Options: those of a stream with nameServer, wantedTopics (JSON of a TopicFilter), everySeconds."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    @clear_errors
    def streamReader(self, schema: StructType) -> WireStreamReader:  # noqa: N802
        given = {name.lower(): text for name, text in self.options.items()}
        options = {name: text for name, text in given.items() if name not in _OWN}
        topics = msgspec.json.decode(given.get("wantedtopics", "{}"), type=TopicFilter)
        every_seconds = float(given.get("everyseconds", "0"))
        return WireStreamReader(parse(options, streaming=True), StreamedRanges(topics, every_seconds))


@dataclass(frozen=True)
class StreamedRanges:
    """Where the queues of wanted topics end, and how much of them is the next batch."""

    topics: TopicFilter
    every_seconds: float

    def follow(self, options: ReadOptions) -> ClusterFollowing:
        follower = WireFollower(options, advice=_GO_ON, begins_anew=False)
        return ClusterFollowing(
            options, follower, self.topics.wants, Interval(self.every_seconds, options.max_bytes_per_trigger or 0)
        )

    def partitions(self, following: ClusterFollowing, start: WireOffset, end: WireOffset) -> list[InputPartition]:
        """One, with a row for each queue."""
        ranges = {(one.topic, one.broker_name, one.queue_id): one.start for one in following.ranges(start, end)}
        return [_Rows([(*name, ranges.get(name, reached), reached) for name, reached in sorted(end.queues.items())])]

    def read(self, partition: InputPartition) -> Iterator[QueueRow]:
        """In a worker: the ranges themselves are the rows."""
        if isinstance(partition, _Rows):  # Spark hands an empty one when there are none.
            yield from partition.rows


class Interval:
    """So many seconds between batches that are not full."""

    def __init__(self, seconds: float, bytes_max: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._bytes_max, self._now = seconds, bytes_max, now
        self._last_at = -math.inf

    def must_wait(self, messages: int, message_bytes: Callable[[], float]) -> bool:
        if not messages:
            return False
        is_early = self._now() - self._last_at < self._seconds
        if is_early and messages * message_bytes() < self._bytes_max:
            return True
        self._last_at = self._now()
        return False


def stream_options(
    options: Mapping[str, str], topics: TopicFilter, batch_bytes_max: int, every_seconds: float, *, fail_on_loss: bool
) -> dict[str, str]:
    """The options of the stream; `options` has nameServer, and as whom the cluster is asked."""
    return {
        **options,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(batch_bytes_max),
        "failOnDataLoss": json.dumps(fail_on_loss),
        "wantedTopics": msgspec.json.encode(topics).decode(),
        "everySeconds": str(every_seconds),
    }
