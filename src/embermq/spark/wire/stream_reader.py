"""Stream reads over the wire: Spark's questions on the driver, answered with offsets and slices.

    initialOffset                    where a stream without a checkpoint begins: all brokers must answer
    latestOffset(start, limit)       how far the next micro-batch goes; topics, queues and brokers are looked for anew
    partitions(start, end)           a micro-batch in parts; also of one that an earlier run of the query had begun
    read(part)                       in a task
    commit(end)                      a micro-batch is done for good: it is committed to the brokers for groupId

Everything before the `start` of `latestOffset` is done as well (streaming/stream_reader.py says why). All but `read`
are called in one Python process that Spark keeps for the stream, with its connections. An offset says all about how far
the stream is: what is committed to brokers is for people who look at lags, and is never read back.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from embermq.errors import ClientError
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import Latest, ReadableQueue
from embermq.spark.planning.pushdown import Pushed
from embermq.spark.reading.slice_rows import ReadSettings
from embermq.spark.runtime.cancelled_tasks import silent_end
from embermq.spark.runtime.error_rendering import clear_errors, clear_iterator
from embermq.spark.runtime.newer_spark import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from embermq.spark.streaming.stream_limits import default_limit, patience_of
from embermq.spark.wire.batch_reader import message_bytes, place_of, selection_of, slices, survey
from embermq.spark.wire.cluster import Cluster, QueueName
from embermq.spark.wire.pulling import WireSlice, read_wire_slice
from embermq.spark.wire.stream_follower import WireFollower, name_of
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.wanted import MESSAGE_BYTES, WireRange, chosen_queues, times_asked, wanted_ranges, wanted_topics

_log = logging.getLogger(__name__)


class StreamContent(Protocol):
    """What a stream gives its tasks. Spark sends it to the workers."""

    def follow(self, options: ReadOptions) -> "ClusterFollowing":
        """On the driver."""
        ...

    def partitions(self, following: "ClusterFollowing", start: WireOffset, end: WireOffset) -> list[InputPartition]:
        """One micro-batch, on the driver."""
        ...

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        ...


@dataclass(frozen=True)
class StreamedMessages:
    """Messages, as slices of queues."""

    reading: ReadSettings

    def follow(self, options: ReadOptions) -> "ClusterFollowing":
        return ClusterFollowing(options)

    def partitions(self, following: "ClusterFollowing", start: WireOffset, end: WireOffset) -> list[InputPartition]:
        return list(following.slices(start, end, self.reading))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with silent_end():
            yield from read_wire_slice(partition)


class WireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a cluster. Making one asks no one: Spark makes several, and sends one to the workers."""

    def __init__(self, options: ReadOptions, content: StreamContent) -> None:
        self.options, self._content = options, content
        self._following: ClusterFollowing | None = None
        self._initial: dict[str, object] | None = None

    def _follow(self) -> "ClusterFollowing":
        if self._following is None:
            self._following = self._content.follow(self.options)
        return self._following

    @clear_errors
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        self._initial = self._follow().initial().to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self.options)

    @clear_errors
    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next micro-batch; `start` itself when there is none to be made now."""
        known, limited = WireOffset.from_json(start), not isinstance(limit, ReadAllAvailable)
        end = self._follow().until(known, limited=limited, done=start != self._initial)
        return start if end == known else end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """What was there when `latestOffset` last looked, limits or not: for the query's progress."""
        return None if self._following is None else self._following.latest().to_json()

    @clear_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._follow().aim_at_latest()

    @clear_errors
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The parts of one micro-batch."""
        return self._content.partitions(self._follow(), WireOffset.from_json(start), WireOffset.from_json(end))

    @clear_iterator
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        yield from self._content.read(partition)

    @clear_errors
    def commit(self, end: dict[str, object]) -> None:
        """Everything before `end` is done and will not be asked for again."""
        self._follow().commit(WireOffset.from_json(end))

    def stop(self) -> None:
        if self._following is not None:
            self._following.close()


class Pace(Protocol):
    """Holds back batches that are not worth their while yet."""

    def must_wait(self, messages: int, message_bytes: Callable[[], float]) -> bool:
        """With so many new messages of this average size, which is only asked for where it matters."""
        ...


class ClusterFollowing:
    """The cluster of a running stream, and what was seen of it."""

    def __init__(
        self,
        options: ReadOptions,
        follower: WireFollower | None = None,
        wants: Callable[[str], bool] = lambda topic: True,
        pace: Pace | None = None,
    ) -> None:
        """`wants`: which of the topics that options name."""
        self._options, self._wants, self._pace = options, wants, pace
        self._cluster = Cluster(place_of(options)).open()
        self._follower = follower or WireFollower(options)
        self._ends: list[ReadableQueue] = []
        self._target: WireOffset | None = None
        self._committed: WireOffset | None = None
        self._has_warned = False
        self._patience = patience_of(options)

    def close(self) -> None:
        self._cluster.close()

    def initial(self) -> WireOffset:
        """Where the options say. A topic that is named must be there; what a pattern may match can come later."""
        with Cluster(self._cluster.place, patient=False) as cluster:
            if self._options.topic_pattern is not None:
                self._look()
            else:
                self._ends = [one for one in survey(cluster, self._options) if self._wants(one.topic)]
            offsets_at = cluster.run(cluster.offsets_at(times_asked(self._options, self._ends)))
        if isinstance(self._options.start, Latest):
            return self.latest()
        starts = {name_of(one): one.max_offset for one in self._ends}
        for one in wanted_ranges(self._options, Pushed(), self._ends, offsets_at, streaming=True):
            starts[one.topic, one.broker_name, one.queue_id] = one.start
        return WireOffset(starts)

    def latest(self) -> WireOffset:
        return WireOffset({name_of(one): one.max_offset for one in self._ends})

    def _look(self) -> None:
        """Topics, queues and brokers as they are now, without those that do not answer."""
        cluster, options = self._cluster, self._options
        known = cluster.run(cluster.topics())
        there = [topic for topic in known if options.topics is None or topic in options.topics]
        missing = [topic for topic in options.topics or () if topic not in there]
        topics = there if missing else wanted_topics(options, known, str(cluster.place))
        found = cluster.run(
            cluster.queue_ends(
                [one for one in topics if options.wants_topic(one) and self._wants(one)], skip_unreachable=True
            )
        )
        self._ends = chosen_queues(options, found)

    def aim_at_latest(self) -> None:
        """From now on nothing counts that comes later than this."""
        self._look()
        self._target = self.latest()

    def until(self, start: WireOffset, *, limited: bool, done: bool) -> WireOffset:
        """The end of the next batch. `done`: everything before `start` was read, and will not be asked for again."""
        self._look()
        if done and start != self._committed:
            self.commit(start)
        ranges = self._follower.ranges(start, self._ends, self._target)
        if limited and self._target is None and self._must_wait(ranges):
            return start
        size = self._message_bytes(ranges) if limited else None
        return self._follower.until(start, ranges, message_bytes=size)

    def _must_wait(self, ranges: Mapping[QueueName, tuple[int, int]]) -> bool:
        """Whether what there is waits for more to come."""
        count = sum(end - begin for begin, end in ranges.values())
        if self._patience is not None and not self._patience.allows(count):
            return True
        return self._pace is not None and self._pace.must_wait(count, lambda: self._message_bytes(ranges))

    def _message_bytes(self, ranges: Mapping[QueueName, tuple[int, int]]) -> float:
        if self._options.max_bytes_per_trigger is None:
            return MESSAGE_BYTES
        wanted = [WireRange(*name, begin, end) for name, (begin, end) in ranges.items() if begin < end]
        return message_bytes(self._cluster, wanted)

    def ranges(self, start: WireOffset, end: WireOffset) -> list[WireRange]:
        """What of each queue a micro-batch has."""
        if not self._ends:
            self._look()  # A batch that an earlier run had begun.
        return self._follower.batch(start, end, self._ends)

    def slices(self, start: WireOffset, end: WireOffset, reading: ReadSettings) -> Iterator[WireSlice]:
        ranges = self.ranges(start, end)
        yield from slices(self._cluster, ranges, self._options, reading, selection_of(self._options, Pushed()))

    def commit(self, end: WireOffset) -> None:
        """Progress for people: what cannot be committed now is with the next batch."""
        self._committed = end
        group, cluster = self._options.group_id, self._cluster
        if group is None:
            return
        try:
            # Each time: a broker that was killed may have forgotten a group that it had just come to know.
            cluster.run(cluster.make_known(group, sorted({topic for topic, _, _ in end.queues})))
            cluster.run(cluster.commit(group, end.queues))
        except ClientError as problem:
            if not self._has_warned:
                _log.warning("progress not committed group=%s reason=%s", group, problem)
            self._has_warned = True
        else:
            self._has_warned = False
