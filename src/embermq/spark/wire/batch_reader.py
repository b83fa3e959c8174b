"""Batch reads over the wire: Spark's questions on the driver, answered with slices, and slices read in tasks.

    reader(schema)     driver; options and schema are checked, no one is asked yet
    pushFilters        driver; topics, queues, offsets and tags that a query names are all that is pulled
    partitions         driver; the ends of all queues are asked for, times looked up, ranges cut into slices
    read(slice)        a task, with connections of its own

A broker that does not answer while a read is planned fails it at once: better than a wait for a wrong address.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from embermq.client import MessageQueue
from embermq.columns import Selection
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.planning.plan import SLICE_BYTES
from embermq.spark.planning.pushdown import Pushed
from embermq.spark.reading.slice_rows import ReadSettings
from embermq.spark.runtime.cancelled_tasks import silent_end
from embermq.spark.runtime.error_rendering import clear_errors, clear_iterator
from embermq.spark.runtime.machine import cores
from embermq.spark.wire.cluster import DEFAULT_GROUP, Cluster, ClusterPlace
from embermq.spark.wire.pulling import WireSlice, read_wire_slice
from embermq.spark.wire.wanted import (
    MESSAGE_BYTES,
    SLICE_MESSAGES_MIN,
    SliceLimits,
    WireRange,
    check_queues,
    chosen_queues,
    cut_ranges,
    slice_count,
    times_asked,
    wanted_ranges,
    wanted_topics,
)

_SAMPLED_QUEUES = 4


class WireBatchReader(DataSourceReader):
    """Reads a cluster."""

    def __init__(self, reading: ReadSettings, options: ReadOptions) -> None:
        self.options, self.reading = options, reading
        self.pushed = Pushed()

    @clear_errors
    def partitions(self) -> list[InputPartition]:
        """In a worker on the driver's side, once for each query."""
        options, pushed = self.options, self.pushed
        with Cluster(place_of(options), patient=False) as cluster:
            ranges = planned_ranges(cluster, options, pushed)
            return list(slices(cluster, ranges, options, self.reading, selection_of(options, pushed)))

    @clear_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        with silent_end():
            yield from read_wire_slice(partition)


def place_of(options: ReadOptions) -> ClusterPlace:
    group = options.group_id or DEFAULT_GROUP
    return ClusterPlace(options.name_servers, group, options.broker_timeout_ms, options.access)


def check_cluster(options: ReadOptions) -> None:
    """Raises what is wrong with the name servers and topics of a read."""
    with Cluster(place_of(options), patient=False) as cluster:
        wanted_topics(options, cluster.run(cluster.topics()), str(cluster.place))


def survey(cluster: Cluster, options: ReadOptions) -> list[ReadableQueue]:
    """The wanted queues, all of which must answer, with what each has; what options name must be there."""
    where = str(cluster.place)
    topics = wanted_topics(options, cluster.run(cluster.topics()), where)
    ends = cluster.run(cluster.queue_ends(topics))
    check_queues(options, ends, where)
    return chosen_queues(options, ends)


def planned_ranges(cluster: Cluster, options: ReadOptions, pushed: Pushed) -> list[WireRange]:
    """What of each queue a batch reads."""
    ends = survey(cluster, options)
    offsets_at = cluster.run(cluster.offsets_at(times_asked(options, ends)))
    return wanted_ranges(options, pushed, ends, offsets_at)


def selection_of(options: ReadOptions, pushed: Pushed) -> Selection:
    """What of a record does not depend on its queue. Records that are in no queue are never pulled."""
    tags = pushed.tags if options.tags is None else frozenset(options.tags)
    keys = pushed.keys if options.keys is None else frozenset(options.keys)
    return Selection(tags=tags, keys=keys, include_system=True)


def slices(
    cluster: Cluster, ranges: Sequence[WireRange], options: ReadOptions, reading: ReadSettings, selection: Selection
) -> Iterator[WireSlice]:
    """What each task gets."""
    total = sum(one.count for one in ranges)
    size = message_bytes(cluster, ranges) if total > SLICE_MESSAGES_MIN else MESSAGE_BYTES
    limits = SliceLimits(options.min_partitions, options.max_bytes_per_partition or SLICE_BYTES, cores())
    for part in cut_ranges(ranges, slice_count(total, size, limits)):
        yield WireSlice(cluster.place, part, selection, reading)


def message_bytes(cluster: Cluster, ranges: Sequence[WireRange]) -> float:
    """The size of an average message, from samples of the longest ranges."""
    messages = size = 0
    for one in sorted(ranges, key=lambda one: one.count, reverse=True)[:_SAMPLED_QUEUES]:
        queue = MessageQueue(one.topic, one.broker_name, one.queue_id)
        found = cluster.run(cluster.message_bytes(queue, (one.start + one.end) // 2))
        messages, size = messages + found[0], size + found[1]
    return size / messages if messages else MESSAGE_BYTES
