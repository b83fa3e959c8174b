"""Messages of stores and a lake as one table: what the lake has comes from there, the rest from the logs.

    messages(spark, ["/data/broker-a"], lake="/data/lake", topics=["orders"])
    messages(spark, ["/data/broker-a"], shipped="s3://bucket/logs")
    register(spark, ["/data/broker-a"], lake="/data/lake")          # each topic a table for SQL

No row twice and none left out: of each log the lake's commits say which ranges it holds, and the log is asked for
what lies outside of them. With a shipped copy in place of a lake: shipped_views.py. Driver side.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from embermq.columns import SYSTEM_PREFIXES, SYSTEM_TOPICS, is_system_topic
from embermq.errors import DataLost, OptionInvalid, TopicUnknown
from embermq.spark.lake import Lake, LakeRange
from embermq.spark.lake.frames import with_values
from embermq.spark.lake.json_bodies import VALUE
from embermq.spark.lake.json_schemas import JsonSchemas, read_schemas
from embermq.spark.lake.topic_filter import TopicFilter, as_regex
from embermq.spark.options.schema import COLUMNS
from embermq.spark.planning import plain_path
from embermq.spark.planning.stores import StorePlace, find_stores
from embermq.spark.reading.shipped_views import copies_at, with_copies
from embermq.spark.reading.sql_names import names_in
from embermq.spark.reading.tables import table
from embermq.spark.shipped.places import shown

ALL = "messages"
ALL_TOO = "all_messages"  # Where a topic has the other name.


def messages(
    spark: SparkSession,
    paths: Iterable[str] = (),
    *,
    lake: str | None = None,
    topics: Sequence[str] | None = None,
    include_system: bool = False,
    fail_on_data_loss: bool = True,
    value: StructType | None = None,
    shipped: str | None = None,
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Every message of these stores and this lake, or of these stores and where they were shipped to, in the columns of
    the format; with `keys`, which a lake does not know, only those that have one of them.

    With `value`, a schema of JSON bodies, also in a column of this name. Of topics for which the lake has such a
    column it is read from there; whatever else there is gets decoded.

    A broker that is in the lake, or was shipped, and is not among the stores is answered from there alone.
    DataLost if a log no longer has something that the lake, or the copy, does not have either.
    """
    paths = list(paths)
    check_one(lake, shipped)
    if keys is not None and shipped is None:
        raise OptionInvalid("keys", "only together with a shipped copy; use a filter on the table instead")
    if shipped is not None and topics is not None:
        found = TopicPlaces.find(paths, shipped=shipped)
        for topic in topics:
            found.check(topic)
    return _messages(spark, paths, lake, topics, include_system, fail_on_data_loss, value, shipped, keys)


def _messages(
    spark: SparkSession,
    paths: Iterable[str],
    lake: str | None,
    topics: Sequence[str] | None,
    include_system: bool,
    fail_on_data_loss: bool,
    value: StructType | None,
    shipped: str | None,
    keys: Sequence[str] | None,
) -> DataFrame:
    """The same for topics that are known to be there."""
    places = find_stores(paths, shipped=True)
    opened = Lake.open(lake, make=False, source="log" if places else None) if lake is not None else None
    names = [column.name for column in COLUMNS]
    if shipped is not None:
        parts = with_copies(
            spark,
            places,
            shipped,
            topics=topics,
            include_system=include_system,
            fail_on_data_loss=fail_on_data_loss,
            options={"keys": keys},
        )
    else:
        assert keys is None
        parts = [_live(spark, place, opened, topics, include_system, fail_on_data_loss) for place in places]
    if value is not None:
        parts = [with_values(part, value) for part in parts]
        names.append(VALUE)
    if opened is not None:
        is_stored = value is not None and topics is not None and opened.schemas.keys() >= set(topics)
        rows = opened.frame(spark, topics, value=value if is_stored else None)
        if value is not None and not is_stored:
            rows = with_values(rows, value)
        rows = rows.select(*names)
        parts.append(rows if include_system else rows.where(_is_seen_by_consumers()))
    return reduce(DataFrame.unionByName, parts)


def topic_messages(
    spark: SparkSession,
    topics: "TopicPlaces",
    name: str,
    *,
    lake: str | None = None,
    include_system: bool = False,
    value: StructType | None = None,
    shipped: str | None = None,
) -> DataFrame:
    """What a consumer of a topic sees, from wherever the topic is: neither what was prepared or rolled back, nor, of a
    store, what came before the topic was deleted. These too with `include_system`; of a system topic, all there is.
    """
    # With a copy, all of them: a topic that a log has lost may be there.
    stores = list(topics.stores) if shipped is not None else topics.with_topic(name)
    held = lake if name in topics.lake else None
    everything = include_system or is_system_topic(name)
    return _messages(spark, stores, held, [name], everything, True, value, shipped, None)


def check_one(lake: str | None, shipped: str | None) -> None:
    """OptionInvalid if both are named."""
    if lake is not None and shipped is not None:
        raise OptionInvalid("shipped", "not together with a lake; name one of the two", value=shown(shipped))


def _live(
    spark: SparkSession,
    place: StorePlace,
    lake: Lake | None,
    topics: Sequence[str] | None,
    include_system: bool,
    fail_on_data_loss: bool,
) -> DataFrame:
    """What only the log has. It must still have it when a query runs: what retention takes in between is a DataLost,
    and a table that is made again has it from the lake, if it is there."""
    names = ",".join(topics) if topics else None
    options: dict[str, Any] = {
        "topic": names,
        "includeSystemTopics": include_system,
        "failOnDataLoss": fail_on_data_loss,
    }
    held = lake.covered(place.broker_name) if lake is not None else []
    if held and lake is not None:
        survey = place.survey()
        lake.check_same_log(survey, place.broker_name)
        last = held[-1]
        if fail_on_data_loss and survey.log_min > last.end:
            raise DataLost(
                f"{place.shown}: the lake ends at {last.end:,} and the log begins at {survey.log_min:,}; what lies"
                " between is gone. Set fail_on_data_loss=False to read what is left"
            )
        if _has_all(lake, topics):
            start = first_outside(held, survey.log_min)
            options["startingPhysicalOffset"] = start
            held = [one for one in held if one.start > start]
    frame = table(spark, place.source, **options).withColumn("brokerName", F.lit(place.broker_name))
    if not held or lake is None:
        return frame
    outside = ~reduce(lambda one, other: one | other, map(_inside, held))
    return frame.where(outside if _has_all(lake, topics) else outside | ~_is_kept(lake.head.topics))


def _has_all(lake: Lake, topics: Sequence[str] | None) -> bool:
    """Whether the ranges of a lake hold all that is asked for."""
    kept = lake.head.topics
    return kept.is_everything or (topics is not None and all(map(kept.wants, topics)))


def _is_kept(topics: TopicFilter) -> Column:
    """Whether a lake of these topics has a row's."""
    topic = F.col("topic")
    chosen = [topic.rlike(as_regex(one)) for one in topics.include]
    wanted = reduce(lambda one, other: one | other, chosen) if chosen else F.lit(True)
    for one in topics.exclude:
        wanted = wanted & ~topic.rlike(as_regex(one))
    return wanted


def first_outside(held: Sequence[LakeRange], place: int) -> int:
    """The first place in the log, from `place` on, that the lake does not have."""
    for one in held:
        if one.start <= place < one.end:
            place = one.end
    return place


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
class TopicPlaces:
    """Which topics there are, and where."""

    stores: Mapping[str, frozenset[str]]  # by path
    lake: frozenset[str]
    shipped: frozenset[str] = frozenset()

    @classmethod
    def find(cls, paths: Iterable[str] = (), lake: str | None = None, shipped: str | None = None) -> "TopicPlaces":
        stores = {place.source: _topics_of(place) for place in find_stores(paths, shipped=True)}
        held = Lake.open(lake, make=False).live_files() if lake is not None else []
        copies = copies_at(shipped).values() if shipped is not None else ()
        return cls(stores, frozenset(file.topic for file in held), frozenset().union(*map(_topics_of, copies)))

    @property
    def names(self) -> list[str]:
        return sorted(self.lake.union(self.shipped, *self.stores.values()))

    def with_topic(self, name: str) -> list[str]:
        """Paths of the stores that have a topic."""
        return [path for path, there in self.stores.items() if name in there]

    def check(self, name: str) -> None:
        """TopicUnknown, with the nearest names, if there is no such topic."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3)
            where = ", ".join(shown(plain_path(path)) for path in self.stores)
            raise TopicUnknown(name, where or "what was asked", near)


def _topics_of(place: StorePlace) -> frozenset[str]:
    return frozenset(topic for topic, _ in place.survey().queues())


def register(
    spark: SparkSession,
    paths: Sequence[str] = (),
    *,
    lake: str | None = None,
    include_system: bool = False,
    mentioned_in: str | None = None,
    json: JsonSchemas | None = None,
    shipped: str | None = None,
    name_server: str | None = None,
    access: Mapping[str, str] | None = None,
) -> list[str]:
    """Make each topic a table for SQL (`select * from orders`), and `messages` all of them. The names there are.

    With `name_server`, in place of stores, the topics are those of a running cluster; `access` are options of the
    format that say as whom it is asked.

    Tables have what consumers see; with `include_system` also what they do not, and system topics are tables as well.
    Topics with a schema for their JSON, from the lake or from `json`, have a column `value`.

    With `mentioned_in`, only topics that this SQL speaks of: a broker may have thousands. OptionInvalid if two of them
    are one name to SQL, for which `Orders` and `orders` are the same. Where a topic is called `messages`, all of them
    are `all_messages`.
    """
    schemas = read_schemas(json)
    if name_server is not None:
        check_alone(name_server, paths, lake, shipped)
        return _register_cluster(spark, name_server, schemas, include_system, mentioned_in, access)
    topics = TopicPlaces.find(paths, lake, shipped)
    for name in schemas:
        topics.check(name)
    if lake is not None:
        schemas = Lake.open(lake, make=False, schemas=schemas).schemas
    names = [name for name in topics.names if include_system or not is_system_topic(name)]
    folded = _folding(spark)
    whole = ALL_TOO if ALL in map(folded, topics.names) else ALL
    asked = _asked(names, whole, mentioned_in, folded)
    rows = messages(spark, paths, lake=lake, include_system=include_system, shipped=shipped)
    rows.createOrReplaceTempView(whole)
    for name in asked:
        frame = topic_messages(
            spark, topics, name, lake=lake, include_system=include_system, value=schemas.get(name), shipped=shipped
        )
        frame.createOrReplaceTempView(f"`{name}`")
    return [whole, *names]


def check_alone(name_server: str, *others: object) -> None:
    """OptionInvalid if stores, a lake or a copy are named beside a cluster."""
    if any(others):
        raise OptionInvalid("name-server", "not together with stores, a lake or a shipped copy", value=name_server)


def _register_cluster(
    spark: SparkSession,
    name_server: str,
    schemas: Mapping[str, StructType],
    include_system: bool,
    text: str | None,
    access: Mapping[str, str] | None,
) -> list[str]:
    """The same for a running cluster: of its topics, tables are pulled when they are asked."""
    from embermq.spark.wire.views import cluster_messages, cluster_topics

    there = cluster_topics(name_server, access)
    for name in schemas:
        if name not in there:
            raise TopicUnknown(name, name_server, difflib.get_close_matches(name, there, n=3))
    names = [name for name in there if include_system or not is_system_topic(name)]
    folded = _folding(spark)
    whole = ALL_TOO if ALL in map(folded, there) else ALL
    for name in _asked(names, whole, text, folded):
        frame = cluster_messages(spark, name_server, [name], include_system=include_system, access=access)
        schema = schemas.get(name)
        (frame if schema is None else with_values(frame, schema)).createOrReplaceTempView(f"`{name}`")
    everything = cluster_messages(spark, name_server, include_system=include_system, access=access)
    everything.createOrReplaceTempView(whole)
    return [whole, *names]


def _folding(spark: SparkSession) -> Callable[[str], str]:
    """What makes equal the names that are equal to SQL here."""
    return str if spark.conf.get("spark.sql.caseSensitive", "false") == "true" else str.lower


def _asked(topics: Sequence[str], whole: str, text: str | None, folded: Callable[[str], str]) -> list[str]:
    """Those of the topics that a query speaks of, or all; OptionInvalid if its SQL could not tell which is meant."""
    way_out = "say in mentioned_in what is to be asked"
    if text is not None:
        way_out = f"ask {whole} with a condition on topic instead"
        words = names_in(text)
        others = {folded(word) for word in words.difference(topics)}  # A topic's exact name means no other topic.
        topics = [topic for topic in topics if topic in words or folded(topic) in others]
    taken = dict.fromkeys((ALL, whole), "the table of all topics")
    for topic in topics:
        other = taken.setdefault(folded(topic), topic)
        if other is not topic:
            raise OptionInvalid("sql", f"topic {topic} and {other} have one name in SQL; {way_out}")
    return list(topics)
