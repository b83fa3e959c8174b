"""Messages of stores and a lake as one table: what the lake has comes from there, the rest from the logs.

    messages(spark, ["/data/broker-a"], lake="/data/lake", topics=["orders"])
    register(spark, ["/data/broker-a"], lake="/data/lake")          # each topic a table for SQL

No row twice and none left out: of each log the lake's commits say which ranges it holds, and the log is asked for
what lies outside of them. Driver side.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq.errors import DataLost, TopicUnknown
from embermq.format.select import SYSTEM_PREFIXES, SYSTEM_TOPICS
from embermq.spark.lake import Lake, LakeRange
from embermq.spark.schema import COLUMNS
from embermq.spark.stores import StorePlace, find_stores
from embermq.spark.tables import table
from embermq.store.survey import Survey

ALL = "messages"


def messages(
    spark: SparkSession, paths: Iterable[str] = (), *, lake: str | None = None, topics: Sequence[str] | None = None,
    include_system: bool = False, fail_on_data_loss: bool = True,
) -> DataFrame:  # fmt: skip
    """Every message of these stores and this lake, in the columns of the format.

    A broker that is in the lake and not among the stores is answered from the lake alone.
    DataLost if a log no longer has something that the lake does not have either.
    """
    places = find_stores(paths)
    opened = Lake.open(lake, make=False) if lake is not None else None
    names = [column.name for column in COLUMNS]
    parts = [_live(spark, place, opened, topics, include_system, fail_on_data_loss) for place in places]
    if opened is not None:
        rows = opened.frame(spark, topics).select(*names)
        parts.append(rows if include_system else rows.where(_is_seen_by_consumers()))
    return reduce(DataFrame.unionByName, parts)


def _live(
    spark: SparkSession, place: StorePlace, lake: Lake | None, topics: Sequence[str] | None, include_system: bool,
    fail_on_data_loss: bool,
) -> DataFrame:  # fmt: skip
    """What only the log has."""
    names = ",".join(topics) if topics else None
    frame = table(spark, place.path, topic=names, includeSystemTopics=include_system)
    frame = frame.withColumn("brokerName", F.lit(place.broker_name))
    held = lake.covered(place.broker_name) if lake is not None else []
    if not held or lake is None:
        return frame
    survey = Survey.open(place.path)
    lake.check_same_log(survey, place.broker_name)
    last = held[-1]
    if fail_on_data_loss and survey.log_min > last.end:
        raise DataLost(
            f"{place.path}: the lake ends at {last.end:,} and the log begins at {survey.log_min:,}; what lies between"
            " is gone. Set fail_on_data_loss=False to read what is left"
        )
    if len(held) == 1 and last.start <= survey.log_min:
        return frame.where(F.col("physicalOffset") >= last.end)  # The one form that reaches the source.
    return frame.where(~reduce(lambda one, other: one | other, map(_inside, held)))


def _inside(held: LakeRange) -> Column:
    at = F.col("physicalOffset")
    return (at >= held.start) & (at < held.end)


def _is_seen_by_consumers() -> Column:
    topic = F.col("topic")
    system = topic.isin(sorted(SYSTEM_TOPICS))
    for prefix in SYSTEM_PREFIXES:
        system = system | topic.startswith(prefix)
    return ~system & ~F.col("sysFlag").bitwiseAND(0xC).isin(0x4, 0xC)


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics there are, and where."""

    stores: Mapping[str, frozenset[str]]  # by path
    lake: frozenset[str]

    @classmethod
    def find(cls, paths: Iterable[str] = (), lake: str | None = None) -> "Topics":
        stores = {
            str(place.path): frozenset(topic for topic, _ in Survey.open(place.path).queues())
            for place in find_stores(paths)
        }
        held = Lake.open(lake, make=False).live_files() if lake is not None else []
        return cls(stores, frozenset(file.topic for file in held))

    @property
    def names(self) -> list[str]:
        return sorted(self.lake.union(*self.stores.values()))

    def check(self, name: str) -> None:
        """TopicUnknown, with the nearest names, if there is no such topic."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3)
            raise TopicUnknown(name, ", ".join(self.stores) or "the lake", near)


def register(
    spark: SparkSession, paths: Sequence[str] = (), *, lake: str | None = None, include_system: bool = False,
    mentioned_in: str | None = None,
) -> list[str]:  # fmt: skip
    """Make each topic a table for SQL (`select * from orders`), and `messages` all of them. The names there are.

    With `mentioned_in`, only topics whose names occur in that text: a broker may have thousands.
    """
    topics = Topics.find(paths, lake)
    messages(spark, paths, lake=lake, include_system=include_system).createOrReplaceTempView(ALL)
    for name in topics.names:
        if mentioned_in is None or name in mentioned_in:
            stores = [path for path, there in topics.stores.items() if name in there]
            held = lake if name in topics.lake else None
            frame = messages(spark, stores, lake=held, topics=[name], include_system=True)
            frame.createOrReplaceTempView(f"`{name}`")
    return [ALL, *topics.names]
