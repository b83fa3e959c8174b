"""What a batch read of a cluster would do, as values: what the broker filters by, and what each task pulls.

Made by the same plan that a query gets, without a JVM. Of messages, only a few are pulled, as samples of their size.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from embermq.spark.options.read_options import parse
from embermq.spark.options.schema import spark_schema
from embermq.spark.planning.pushdown import Pushed
from embermq.spark.reading.slice_rows import ReadSettings
from embermq.spark.wire.batch_reader import message_bytes, place_of, planned_ranges, selection_of, slices
from embermq.spark.wire.cluster import Cluster
from embermq.spark.wire.pulling import WireSlice, expression_of


@dataclass(frozen=True, slots=True)
class PullsExplained:
    """What one task pulls: ranges of queues of one broker. `bytes` is by the size of an average message."""

    broker_name: str
    queues: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ClusterExplained:
    """How a cluster is read; `messages` before any filter."""

    cluster: str
    filter: str  # what the broker filters by; * for nothing
    queues: int
    messages: int
    bytes: int
    slices: tuple[PullsExplained, ...]


def explain_pulls(options: Mapping[str, str]) -> ClusterExplained:
    """A batch with these options, one of which is nameServer; raises what the query would."""
    parsed, pushed = parse(options, streaming=False), Pushed()
    selection = selection_of(parsed, pushed)
    with Cluster(place_of(parsed), patient=False) as cluster:
        ranges = planned_ranges(cluster, parsed, pushed)
        size = message_bytes(cluster, ranges)
        parts = list(slices(cluster, ranges, parsed, ReadSettings(spark_schema("rocketmq")), selection))
    messages = sum(one.count for one in ranges)
    return ClusterExplained(
        str(cluster.place),
        expression_of(selection, parsed.sql_expression).text,
        len(ranges),
        messages,
        int(messages * size),
        tuple(_pulls(one, size) for one in parts if one.ranges),
    )


def _pulls(part: WireSlice, message_size: float) -> PullsExplained:
    messages = sum(one.count for one in part.ranges)
    return PullsExplained(part.ranges[0].broker_name, len(part.ranges), messages, int(messages * message_size))
