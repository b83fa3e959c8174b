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
from embermq.spark.options.schema import spark_schema
from embermq.spark.reading.slice_rows import ReadSettings
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.wire.cluster import QueueName
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
    def streamReader(self, schema: StructType) -> "QueueRangesReader":  # noqa: N802
        given = {name.lower(): text for name, text in self.options.items()}
        options = {name: text for name, text in given.items() if name not in _OWN}
        topics = msgspec.json.decode(given.get("wantedtopics", "{}"), type=TopicFilter)
        return QueueRangesReader(parse(options, streaming=True), topics, float(given.get("everyseconds", "0")))


class QueueRangesReader(WireStreamReader):
    """Where the queues end, and how much of them is the next batch."""

    def __init__(self, options: ReadOptions, topics: TopicFilter, every_seconds: float) -> None:
        super().__init__(ReadSettings(spark_schema("rocketmq")), options)
        self._topics, self._every_seconds = topics, every_seconds

    def _follow(self) -> ClusterFollowing:
        if self._following is None:
            self._following = PacedFollowing(self.options, self._topics, self._every_seconds)
        return self._following

    @clear_errors
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """One, with a row for each queue."""
        until = WireOffset.from_json(end)
        ranges = {
            (one.topic, one.broker_name, one.queue_id): one.start
            for one in self._follow().ranges(WireOffset.from_json(start), until)
        }
        return [_Rows([(*name, ranges.get(name, reached), reached) for name, reached in sorted(until.queues.items())])]

    def read(self, partition: InputPartition) -> Iterator[QueueRow]:
        """In a worker: the ranges themselves are the rows."""
        if isinstance(partition, _Rows):  # Spark hands an empty one when there are none.
            yield from partition.rows


class PacedFollowing(ClusterFollowing):
    """Queues of wanted topics, with `every_seconds` between batches that are not full."""

    def __init__(
        self,
        options: ReadOptions,
        topics: TopicFilter,
        every_seconds: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(options, WireFollower(options, advice=_GO_ON, begins_anew=False), topics.wants)
        self._bytes_max = options.max_bytes_per_trigger or 0
        self._every_seconds, self._now, self._last_at = every_seconds, now, -math.inf

    def must_wait(self, ranges: Mapping[QueueName, tuple[int, int]]) -> bool:
        count = sum(end - begin for begin, end in ranges.values())
        if not count:
            return False
        is_early = self._now() - self._last_at < self._every_seconds
        if is_early and count * self.message_bytes(ranges) < self._bytes_max:
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
