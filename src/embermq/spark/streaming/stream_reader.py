"""Stream reads: Spark's questions on the driver, answered with offsets and slices, and slices read in tasks.

    initialOffset                    where a stream without a checkpoint begins
    latestOffset(start, limit)       how far the next micro-batch goes; looks at the stores again, at what is new only
    partitions(start, end)           a micro-batch as slices; also of one that an earlier run of the query had begun
    read(slice)                      in a task
    commit(end)                      a micro-batch is done for good: a group's progress may be shown

Spark commits a micro-batch to its source only when it has planned the next one, and so never the last one. But it asks
for the next one only when the last is in its own log of commits: everything before the `start` of `latestOffset` is
done as well, unless the stream has only begun there.

All but `read` are called in one Python process that Spark keeps for the stream: what was seen of the stores stays
there. An offset says all about how far the stream is; nothing else is remembered between runs. Under SYNC_FLUSH a
stream stops at what is durable (inspect/log_view.py), so nothing it has shown is ever taken back.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from embermq.errors import DataLost, OptionInvalid
from embermq.inspect import LogMatch
from embermq.spark.options import read_options
from embermq.spark.planning.offsets import AtOffsets, AtTimes
from embermq.spark.planning.plan import SLICE_BYTES, SliceLimits, plan
from embermq.spark.planning.read_request import StoreWork
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.batch_reader import reading_of, slices
from embermq.spark.reading.slices import read_slice
from embermq.spark.runtime.cancelled_tasks import silent_end
from embermq.spark.runtime.error_rendering import clear_errors, clear_iterator
from embermq.spark.runtime.machine import cores
from embermq.spark.runtime.newer_spark import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from embermq.spark.streaming.progress import GroupProgress
from embermq.spark.streaming.stream_limits import default_limit, patience_of
from embermq.spark.streaming.stream_log import LogFollower
from embermq.spark.streaming.stream_offsets import StreamOffset
from embermq.spark.streaming.stream_queues import QueueFollower
from embermq.spark.streaming.stream_stores import FollowedStore


class StreamFollower(Protocol):
    """What a stream wants to know, with and without topic options."""

    def initial(self) -> StreamOffset: ...

    def latest(self) -> StreamOffset: ...

    def row_count(self, start: StreamOffset, enough: int) -> int: ...

    def until(self, start: StreamOffset, target: StreamOffset | None, *, limited: bool) -> StreamOffset: ...

    def works(self, start: StreamOffset, end: StreamOffset) -> Iterator[StoreWork]: ...

    def progress(self, end: StreamOffset) -> Iterator[tuple[FollowedStore, dict[tuple[str, int], int]]]: ...


def stream_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader:
    """The reader that the options ask for, of files or of a cluster."""
    parsed = read_options.parse(options, streaming=True)
    if not parsed.name_servers:
        return RocketMQStreamReader(schema, options)
    from embermq.spark.wire.stream_reader import StreamedMessages, WireStreamReader

    return WireStreamReader(parsed, StreamedMessages(reading_of(schema, parsed)))


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows stores. Making one looks at nothing: Spark makes several, and sends one to the workers."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.options = read_options.parse(options, streaming=True)
        self.reading = reading_of(schema, self.options)
        self.by_queue = self.options.has_topics or isinstance(self.options.start, AtOffsets | AtTimes)
        self._following: _Following | None = None
        self._initial: dict[str, object] | None = None

    def _follow(self) -> "_Following":
        if self._following is None:
            self._following = _Following(self.options, by_queue=self.by_queue)
        return self._following

    def _parsed(self, offset: Mapping[str, object]) -> StreamOffset:
        return StreamOffset.from_json(offset, by_queue=self.by_queue)

    @clear_errors
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        following = self._follow()
        following.is_fresh = False  # Much may be written before Spark asks for the end of a batch.
        self._initial = following.follower.initial().to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self.options)

    @clear_errors
    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next micro-batch; `start` itself when there is none to be made now."""
        known, limited = self._parsed(start), not isinstance(limit, ReadAllAvailable)
        end = self._follow().until(known, limited=limited, done=start != self._initial)
        return start if end == known else end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """What was there when `latestOffset` last looked, limits or not: for the query's progress."""
        return None if self._following is None else self._following.follower.latest().to_json()

    @clear_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._follow().aim_at_latest()

    @clear_errors
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The slices of one micro-batch."""
        following = self._follow()
        works = following.works(self._parsed(start), self._parsed(end))
        surveys = {work.place.broker_name: work.survey for work in works}
        limits = SliceLimits(self.options.min_partitions, self.options.max_bytes_per_partition or SLICE_BYTES, cores())
        plans = plan([work.request for work in works], limits, lambda name, place: surveys[name].record_start(place))
        return [one for work, chosen in zip(works, plans, strict=True) for one in slices(work, chosen, self.reading)]

    @clear_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        with silent_end():
            yield from read_slice(partition)

    @clear_errors
    def commit(self, end: dict[str, object]) -> None:
        """Everything before `end` is done and will not be asked for again."""
        self._follow().commit(self._parsed(end))


def _check_writable(stores: Sequence[FollowedStore]) -> None:
    """Progress of a group is written into the store."""
    for store in stores:
        if store.place.shipped is not None:
            raise OptionInvalid("groupId", f"{store.place.shown} is a shipped store, where no progress can be kept")


class _Following:
    """The stores of a running stream, and what was seen of them."""

    def __init__(self, options: read_options.ReadOptions, *, by_queue: bool) -> None:
        self._fail_on_data_loss = options.fail_on_data_loss
        self.is_fresh = True  # The stores were looked at just now: the first question need not look again.
        self._stores = [FollowedStore(place, options) for place in find_stores(options.paths, shipped=True)]
        kind = QueueFollower if by_queue else LogFollower
        self.follower: StreamFollower = kind(self._stores, options)
        self._target: StreamOffset | None = None
        self._patience = patience_of(options)
        self._progress: dict[str, GroupProgress] = {}
        self._committed: StreamOffset | None = None
        if options.group_id is not None:
            _check_writable(self._stores)
            self._progress = {store.name: GroupProgress(store.place.path, options.group_id) for store in self._stores}
            for progress in self._progress.values():
                progress.check()

    def _refresh(self) -> None:
        if not self.is_fresh:
            for store in self._stores:
                store.refresh()
        self.is_fresh = False

    def aim_at_latest(self) -> None:
        """From now on nothing counts that comes later than this."""
        self._refresh()
        self._target = self.follower.latest()

    def until(self, start: StreamOffset, *, limited: bool, done: bool) -> StreamOffset:
        """The end of the next batch. `done`: everything before `start` was read, and will not be asked for again."""
        self._refresh()
        self._check_brokers(start)
        # Asked often while nothing happens: what cannot be written now is left to the next commit.
        if done and start != self._committed:
            self.commit(start)
        if limited and self._target is None and self._must_wait(start):
            return start
        return self.follower.until(start, self._target, limited=limited)

    def _must_wait(self, start: StreamOffset) -> bool:
        patience = self._patience
        return patience is not None and not patience.allows(self.follower.row_count(start, patience.rows_min))

    def _check_brokers(self, known: StreamOffset) -> None:
        """Stores that were read must be among those the paths name now; others may have come."""
        gone = sorted(known.stores.keys() - {store.name for store in self._stores})
        if gone and self._fail_on_data_loss:
            there = ", ".join(store.name for store in self._stores)
            raise DataLost(
                f"the store of {', '.join(gone)} was read before and is not there now; there is {there};"
                " set failOnDataLoss=false to go on without it"
            )

    def works(self, start: StreamOffset, end: StreamOffset) -> list[StoreWork]:
        self._check_brokers(end)
        for store in self._stores:
            store.wait_for(end.stores.get(store.name))
        return list(self.follower.works(start, end))

    def commit(self, end: StreamOffset) -> None:
        self._committed = end
        if not self._progress:
            return
        for store, offsets in self.follower.progress(end):
            known = end.stores.get(store.name)
            # Offsets of a store that lay here before say nothing of this one.
            if known is not None and store.match(known) is LogMatch.SAME:
                self._progress[store.name].write(offsets)
