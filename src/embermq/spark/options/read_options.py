"""Every option of a read, as a table: name, default, what it means, where it counts. And their values, checked.

Options reach us from Spark as text, names in lower case. `parse` answers a ReadOptions or raises OptionInvalid, which
names the option and, for an unknown name, the nearest known one. Nothing is looked up on the disk here.
Runs on the driver, in the Python process that plans; documents are made from OPTIONS.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from embermq.errors import OptionInvalid
from embermq.spark.options.access import ACCESS_OPTIONS, AS_NO_ONE, ClusterAccess, parse_access, refuse_access
from embermq.spark.options.values import (
    WantedQueues,
    parse_addresses,
    parse_count,
    parse_duration_ms,
    parse_expression,
    parse_flag,
    parse_group,
    parse_keys,
    parse_pattern,
    parse_place,
    parse_queues,
    parse_size,
    parse_tags,
    parse_texts,
    parse_topics,
    parse_word,
)
from embermq.spark.planning.offsets import (
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    Limit,
    parse_limit,
    parse_time,
    parse_times,
)
from embermq.spark.planning.store_paths import stores_at

Scope = Literal["read", "batch", "stream"]
OnCorrupt = Literal["fail", "skip", "rows"]
SchemaMode = Literal["rocketmq", "kafka"]

_FROM_EARLIEST, _TO_LATEST, _EVERY_QUEUE = Earliest(), Latest(), WantedQueues()
_LIKENESS = 0.6  # how much a wrong name must resemble a right one to be worth mentioning


@dataclass(frozen=True, slots=True)
class Option:
    """One option: for `parse`, and for the documents."""

    name: str
    default: str
    meaning: str
    scope: Scope = "read"


OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        "",
        "Store directory, or a glob of store directories, one for each broker; or a target of `embermq spark ship`,"
        " for example `s3://bucket/logs`. Set by `load(path)`.",
    ),
    Option("paths", "", "Several paths as a JSON list. Set by `load([...])`."),
    Option(
        "storeConfig",
        "broker.conf in the directory",
        "A broker.conf anywhere, whose storePathCommitLog says where the log of the store is, and brokerName its name."
        " Nothing is written into the store's directory. Several paths: a JSON list, one for each, in their order.",
    ),
    Option(
        "commitLogPath",
        "commitlog/ in the directory",
        "Where the log of the store is, if not in its directory; several directories separated by commas. Wins over"
        " what storeConfig says.",
    ),
    Option(
        "nameServer",
        "",
        "Instead of a path: name servers of a running cluster, `host:port`, separated by `;`. Messages are pulled from"
        " its brokers ([spark-wire.md](spark-wire.md)).",
    ),
    Option(
        "brokerTimeout",
        "60s",
        "With nameServer: how long requests to a broker or name server that does not answer are retried.",
    ),
    *(Option(name, default, meaning) for name, default, meaning in ACCESS_OPTIONS),
    Option("topic", "all", "Topics to read, separated by commas."),
    Option("subscribe", "all", "Same as `topic`; the name in Spark's Kafka source."),
    Option("subscribePattern", "", "Regular expression that the whole name of a topic must match."),
    Option(
        "queues",
        "all",
        'Queues to read: `0,2-3` for every topic, or JSON, `{"orders": [0, 2]}`, which also chooses the topics if no'
        " other option does.",
    ),
    Option(
        "subExpression",
        "*",
        "Tag expression of a consumer: `paid || shipped`; `*` selects all tags. Tags with quotes, parentheses"
        " or one of `,;=<>` are selected by a condition on the column `tags` instead.",
    ),
    Option(
        "sqlExpression",
        "",
        "SQL92 filter of a consumer on message properties: `price > 5 AND region IN ('eu')` (filters.md). Other"
        " messages are not decoded.",
    ),
    Option(
        "keys", "", "Read only messages with one of these keys or unique keys: `o-1,o-2`, or a JSON list of strings."
    ),
    Option(
        "startingOffsets",
        "earliest; a stream: latest",
        'Where to begin: `earliest`, `latest` or JSON, `{"orders": {"0": 23, "1": -2}}`, also with the broker between'
        " topic and queue; -2 is earliest, -1 latest. A queue that is not named begins at the default. Of a stream it"
        " counts only without a checkpoint.",
    ),
    Option("endingOffsets", "latest", "Where to end (this offset is not read): `latest` or JSON as above.", "batch"),
    Option(
        "startingTimestamp",
        "",
        "Begin with the first message stored at this time or later: `2024-01-31T12:00:00Z`, or ms since 1970.",
    ),
    Option("endingTimestamp", "", "End before the first message stored at this time or later; as above.", "batch"),
    Option("startingOffsetsByTimestamp", "", "A time for each queue to begin at; JSON as for startingOffsets."),
    Option("endingOffsetsByTimestamp", "", "A time for each queue to end at; JSON as for startingOffsets.", "batch"),
    Option(
        "startingPhysicalOffset",
        "",
        "Begin with the first message at this log offset, which must still be in the log (see failOnDataLoss).",
        "batch",
    ),
    Option("endingPhysicalOffset", "", "End before the first message at this log offset or later.", "batch"),
    Option("minPartitions", "", "Minimum number of partitions, if there are as many messages."),
    Option(
        "maxBytesPerPartition",
        "128m; 256m without bodies",
        "Approximate maximum of log bytes for each partition. The default is larger for batch reads without bodies and"
        " properties, which return little data for each byte of log.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "Whether the query fails if requested messages were deleted by retention. With `false` they are skipped.",
    ),
    Option("verifyCrc", "true", "Whether the checksum of every body is verified."),
    Option(
        "includeSystemTopics",
        "false",
        "Include records that consumers cannot receive: system topics (delayed, half and op messages), prepared and"
        " rolled-back records.",
    ),
    Option(
        "onCorrupt",
        "fail",
        "How corrupt ranges of the log are handled. `fail`: the query fails. `skip`: they are skipped, and a warning"
        " has their number. `rows`: each range is one row, with the reason in the column `_corrupt`.",
    ),
    Option(
        "decompress", "true", "Whether compressed bodies are decompressed. With `false` the stored bytes are returned."
    ),
    Option("schemaMode", "rocketmq", "`kafka`: the columns of Spark's Kafka source."),
    Option("includeHeaders", "false", "With schemaMode=kafka: whether the column `headers` has the properties."),
    Option("batchRows", "16384", "Maximum number of rows in an Arrow batch, at most 16384."),
    Option("batchBytes", "8m", "Approximate maximum of record bytes in an Arrow batch."),
    Option(
        "pushdown",
        "false",
        "Whether filters of a query are pushed down; see [Filters](#filters) before you set it. `embermq.spark.table`"
        " sets it.",
        "batch",
    ),
    Option("maxOffsetsPerTrigger", "", "Approximate maximum of messages in a micro-batch.", "stream"),
    Option("maxBytesPerTrigger", "", "Approximate maximum of log bytes in a micro-batch.", "stream"),
    Option(
        "minOffsetsPerTrigger", "", "Minimum of messages in a micro-batch, unless maxTriggerDelay has passed.", "stream"
    ),
    Option("maxTriggerDelay", "15m", "Maximum time to wait for minOffsetsPerTrigger.", "stream"),
    Option(
        "groupId",
        "",
        "Consumer group under which the progress of a stream is shown: written into the store, or with nameServer"
        " committed to the brokers, for RocketMQ's tools to see; letters, digits and any of `%|_-`. With nameServer"
        " also the group that messages are pulled for.",
    ),
)

_SUBSCRIBING = ("topic", "subscribe", "subscribePattern")
_BY_LOWER = {option.name.lower(): option for option in OPTIONS}

# What people bring along from elsewhere, and what to do about it here.
_ELSEWHERE = {
    "kafka.bootstrap.servers": "give the path of a store, or nameServer for a running cluster",
    "assign": "use topic, and queues for some of its queues",
    "consumergroup": "no group is needed to read; groupId makes a stream's progress visible",
    "kafka.group.id": "no group is needed to read; groupId makes a stream's progress visible",
    "groupidprefix": "no group is needed to read; groupId makes a stream's progress visible",
    "includeproperties": "properties are always a column; give a schema without it to leave it out",
    "startingoffsetsbytimestampstrategy": "a time behind the last message always means the latest offset",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read was asked for. Field by field: OPTIONS."""

    paths: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()  # instead of paths
    broker_timeout_ms: int = 60_000
    access: ClusterAccess = AS_NO_ONE
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    queues: WantedQueues = _EVERY_QUEUE
    tags: tuple[str, ...] | None = None
    sql_expression: str | None = None
    keys: tuple[str, ...] | None = None
    start: Limit = _FROM_EARLIEST
    end: Limit = _TO_LATEST
    physical_start: int | None = None
    physical_end: int | None = None
    min_partitions: int | None = None
    max_bytes_per_partition: int | None = None  # None: it depends on what is wanted.
    fail_on_data_loss: bool = True
    verify_crc: bool = True
    include_system_topics: bool = False
    on_corrupt: OnCorrupt = "fail"
    decompress: bool = True
    schema_mode: SchemaMode = "rocketmq"
    include_headers: bool = False
    batch_rows: int = 16384
    batch_bytes: int = 8 << 20
    pushdown: bool = False
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    group_id: str | None = None

    @property
    def has_topics(self) -> bool:
        """Whether the read is about some topics or queues, not about the log as a whole."""
        return self.topics is not None or self.topic_pattern is not None or not self.queues.is_all

    def wants_topic(self, topic: str) -> bool:
        """By name alone; whether it is a system topic is another question."""
        if self.topics is not None:
            return topic in self.topics
        return self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None


def parse(options: Mapping[str, str], streaming: bool | None) -> ReadOptions:
    """The options of a batch (False), of a stream (True), or of a read of which that is not known yet (None)."""
    given = _known(options, streaming)
    starts = _only_one(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    ends = _only_one(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    _only_one(given, *_SUBSCRIBING)
    values = {field: read(name, given[name]) for field, name, read in _FIELDS if name in given}
    values["paths"] = _paths(given)
    _check_transport(given, streaming)
    values["access"] = parse_access(given)
    if "queues" in given and (by_topic := values["queues"].by_topic) and not any(map(given.get, _SUBSCRIBING)):
        values["topics"] = tuple(by_topic)
    values["start"] = _limit(starts, given, streaming) or (Latest() if streaming else Earliest())
    values["end"] = _limit(ends, given, streaming) or Latest()
    chosen = ReadOptions(**values)
    _check_together(chosen, given)
    return chosen


def nearest_name(name: str, known: Mapping[str, Option] | None = None) -> str | None:
    """The known option most like this one."""
    table = _BY_LOWER if known is None else known
    close = difflib.get_close_matches(name.lower(), table, n=1, cutoff=_LIKENESS)
    return table[close[0]].name if close else None


def _known(options: Mapping[str, str], streaming: bool | None) -> dict[str, str]:
    """Options by their documented names. Names with two leading underscores are Spark's own."""
    given: dict[str, str] = {}
    for key, text in options.items():
        option = _BY_LOWER.get(key.lower())
        if option is None:
            if key.startswith("__"):
                continue
            raise OptionInvalid(key, _unknown(key))
        if streaming is not None and option.scope == ("batch" if streaming else "stream"):
            kind = "a batch (spark.read)" if streaming else "a stream (spark.readStream)"
            raise OptionInvalid(option.name, f"only {kind} has this")
        given[option.name] = str(text)
    return given


def _unknown(key: str) -> str:
    if advice := _ELSEWHERE.get(key.lower()):
        return advice
    nearest = nearest_name(key)
    return f"no such option; did you mean {nearest}?" if nearest else "no such option; all are in the documentation"


def _only_one(given: Mapping[str, str], *names: str) -> str | None:
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise OptionInvalid(found[0], f"contradicts {found[1]}; give only one of the two")
    return found[0] if found else None


def _limit(name: str | None, given: Mapping[str, str], streaming: bool | None) -> Limit | None:
    if name is None:
        return None
    if name.endswith("ByTimestamp"):
        return parse_times(name, given[name])
    if name.endswith("Timestamp"):
        return parse_time(name, given[name])
    return parse_limit(name, given[name], "start" if name.startswith("starting") else "end", streaming=streaming)


def _check_together(chosen: ReadOptions, given: Mapping[str, str]) -> None:
    if chosen.include_headers and chosen.schema_mode != "kafka":
        raise OptionInvalid("includeHeaders", "needs schemaMode=kafka; otherwise properties are a column of their own")
    match chosen.start, chosen.end:
        case AtTime(_, start_ms), AtTime(option, end_ms) if start_ms > end_ms:
            raise OptionInvalid(option, f"lies before startingTimestamp ({start_ms})", value=end_ms)
    if (chosen.physical_end or 0) < (chosen.physical_start or 0) and chosen.physical_end is not None:
        start = chosen.physical_start
        raise OptionInvalid(
            "endingPhysicalOffset", f"lies before startingPhysicalOffset ({start})", value=chosen.physical_end
        )
    for limit in (chosen.start, chosen.end):
        if isinstance(limit, AtOffsets | AtTimes):
            for topic, _, queue_id in limit.table:
                if not chosen.wants_topic(topic) or not chosen.queues.has(topic, queue_id):
                    raise OptionInvalid(limit.option, f"names {topic} queue {queue_id}, which is not to be read")
    if chosen.queues.by_topic is not None:
        for topic in chosen.queues.by_topic:
            if not chosen.wants_topic(topic):
                raise OptionInvalid("queues", f"names topic {topic}, which is not to be read")
    if "maxTriggerDelay" in given and chosen.min_offsets_per_trigger is None:
        raise OptionInvalid("maxTriggerDelay", "has no meaning without minOffsetsPerTrigger")
    least, most = chosen.min_offsets_per_trigger, chosen.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionInvalid("minOffsetsPerTrigger", f"is larger than maxOffsetsPerTrigger ({most})", value=least)


# Options that only the files of a store can answer.
_OF_FILES = {
    "startingPhysicalOffset": "use startingOffsets or startingTimestamp",
    "endingPhysicalOffset": "use endingOffsets or endingTimestamp",
}


def _check_transport(given: Mapping[str, str], streaming: bool | None) -> None:
    """Options that belong to a path or to a name server alone."""
    if "nameServer" not in given:
        if "brokerTimeout" in given:
            raise OptionInvalid("brokerTimeout", "has no meaning without nameServer")
        refuse_access(given)
        if "groupId" in given and streaming is False:
            raise OptionInvalid("groupId", "only a stream (spark.readStream) has this, or a read with nameServer")
        return
    for name in ("path", "paths", "storeConfig", "commitLogPath"):
        if given.get(name):
            raise OptionInvalid("nameServer", f"contradicts {name}; give only one of the two")
    for name, instead in _OF_FILES.items():
        if name in given:
            raise OptionInvalid(name, f"a place in the log means nothing over the wire; {instead}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "nameServer" in given:
        return ()
    paths = [given["path"]] if given.get("path") else []
    if "paths" in given:
        paths += parse_texts("paths", given["paths"])
    if not paths or not all(paths):
        raise OptionInvalid(
            "path",
            "is missing: the directory of the store, for example .load('/data/broker-a/store'), or instead of it the"
            " option nameServer",
        )
    configs = given.get("storeConfig")
    if configs is None:
        return stores_at(paths, (), given.get("commitLogPath"))
    listed = parse_texts("storeConfig", configs) if configs.lstrip().startswith("[") else (configs,)
    return stores_at(paths, listed, given.get("commitLogPath"))


# Field of ReadOptions, option, how to read it.
_FIELDS: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("name_servers", "nameServer", parse_addresses),
    ("broker_timeout_ms", "brokerTimeout", parse_duration_ms),
    ("topics", "topic", parse_topics),
    ("topics", "subscribe", parse_topics),
    ("topic_pattern", "subscribePattern", parse_pattern),
    ("queues", "queues", parse_queues),
    ("tags", "subExpression", parse_tags),
    ("sql_expression", "sqlExpression", parse_expression),
    ("keys", "keys", parse_keys),
    ("physical_start", "startingPhysicalOffset", parse_place),
    ("physical_end", "endingPhysicalOffset", parse_place),
    ("min_partitions", "minPartitions", parse_count),
    ("max_bytes_per_partition", "maxBytesPerPartition", parse_size),
    ("fail_on_data_loss", "failOnDataLoss", parse_flag),
    ("verify_crc", "verifyCrc", parse_flag),
    ("include_system_topics", "includeSystemTopics", parse_flag),
    ("on_corrupt", "onCorrupt", parse_word(*get_args(OnCorrupt))),
    ("decompress", "decompress", parse_flag),
    ("schema_mode", "schemaMode", parse_word(*get_args(SchemaMode))),
    ("include_headers", "includeHeaders", parse_flag),
    ("batch_rows", "batchRows", parse_count),
    ("batch_bytes", "batchBytes", parse_size),
    ("pushdown", "pushdown", parse_flag),
    ("max_offsets_per_trigger", "maxOffsetsPerTrigger", parse_count),
    ("max_bytes_per_trigger", "maxBytesPerTrigger", parse_size),
    ("min_offsets_per_trigger", "minOffsetsPerTrigger", parse_count),
    ("max_trigger_delay_ms", "maxTriggerDelay", parse_duration_ms),
    ("group_id", "groupId", parse_group),
)
assert {name for _, name, _ in _FIELDS} <= {option.name for option in OPTIONS}
