"""Rows of a DataFrame as messages: which columns count, what is wrong with them, and the columns that are staged.

`check_columns` runs on the driver, before any task; `RowReader` in tasks, one for each partition. All rows of a
partition are checked by the store's own admission rules while they are staged, so that nothing is appended of a
batch with a row that cannot be stored.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from embermq.columns import is_system_topic
from embermq.errors import MessageRejected, OptionInvalid
from embermq.format.java import string_hash
from embermq.model.message import Message
from embermq.model.properties import KEYS, TAGS, UNIQ_KEY, hash_map_order
from embermq.spark.options.schema import COLUMNS, KAFKA_COLUMNS
from embermq.spark.options.write_options import SYSTEM_TOPIC_REFUSED
from embermq.store.append import Admission, has_meaning_to_store

STAGED_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("properties", pa.binary(), nullable=False),  # as in the record, tags and keys included
        pa.field("body", pa.binary(), nullable=False),
    ]
)

_LIKENESS = 0.5  # how much a wrong name must resemble a right one to be worth mentioning
_COUNTER_ROWS = 1 << 16
_QUEUE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WriteColumn:
    """One column that a row to be written may have."""

    name: str
    types: str
    meaning: str


WRITE_COLUMNS: tuple[WriteColumn, ...] = (
    WriteColumn("body", "binary or string", "Body of the message. Required, not null. A string is stored as UTF-8."),
    WriteColumn("value", "binary or string", "Same as `body`; the name in Spark's Kafka sink."),
    WriteColumn(
        "topic",
        "string",
        "Topic. Required and not null, unless the option `topic` is set. System topics (`SCHEDULE_TOPIC_XXXX`,"
        " `RMQ_SYS_...`) are refused: consumers could not receive the messages.",
    ),
    WriteColumn("tags", "string", "Tag."),
    WriteColumn("keys", "string or array<string>", "Keys for lookups; in a string, separated by spaces."),
    WriteColumn("properties", "map<string,string>", "Further properties; no name or value may be null or empty."),
    WriteColumn(
        "queueId",
        "int, or another whole number",
        "Queue within the topic. Null: chosen as for rows without the column.",
    ),
    WriteColumn(
        "shardingKey",
        "string, or a whole number",
        "Rows with the same value go to the same queue, in their order within a partition. Excludes `queueId`.",
    ),
    WriteColumn("delayLevel", "int, or another whole number", "Delay level, 1 to 18; 0 or null: no delay."),
)
_KNOWN = {column.name.lower(): column for column in WRITE_COLUMNS}
# Columns of a read that a store gives by itself: no mistake of spelling.
_STORES_OWN = frozenset(column.name.lower() for column in (*COLUMNS, *KAFKA_COLUMNS)) - _KNOWN.keys() - {"key"}


def check_columns(schema: StructType, *, has_topic: bool) -> dict[str, int]:
    """Which column of the DataFrame is what: name -> position. OptionInvalid for columns that cannot be written."""
    found: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        known = _KNOWN.get(column.name.lower())
        if known is None:
            raise OptionInvalid("columns", _unknown(column.name))
        if known.name in found:
            raise OptionInvalid("columns", f"there are two columns {known.name}")
        if not _accepts(known.name, column.dataType):
            shown = column.dataType.simpleString()
            raise OptionInvalid("columns", f"column {column.name} is {shown}; {known.types} is expected")
        found[known.name] = position
    if "body" in found and "value" in found:
        raise OptionInvalid("columns", "both body and value are given, and mean the same; drop one of them")
    if "value" in found:
        found["body"] = found.pop("value")
    if "body" not in found:
        raise OptionInvalid("columns", f"there is no column body (or value); there are {', '.join(schema.names)}")
    if "topic" not in found and not has_topic:
        raise OptionInvalid("topic", "is missing: give the option, or a column topic")
    if "queueId" in found and "shardingKey" in found:
        raise OptionInvalid("columns", "both queueId and shardingKey are given, and both choose the queue; drop one")
    return found


def _accepts(name: str, given: DataType) -> bool:
    match name:
        case "body" | "value":
            return isinstance(given, BinaryType | StringType)
        case "topic" | "tags":
            return isinstance(given, StringType)
        case "keys":
            return isinstance(given, StringType) or (
                isinstance(given, ArrayType) and isinstance(given.elementType, StringType)
            )
        case "properties":
            return isinstance(given, MapType) and all(
                isinstance(part, StringType) for part in (given.keyType, given.valueType)
            )
        case "queueId" | "delayLevel":
            return isinstance(given, IntegralType)
    assert name == "shardingKey", name
    return isinstance(given, StringType | IntegralType)


def _unknown(name: str) -> str:
    known = ", ".join(column.name for column in WRITE_COLUMNS)
    if name.lower() in _STORES_OWN:
        return f"the store gives {name} itself; leave it out: .select(...) or .drop({name!r}). What counts: {known}"
    close = get_close_matches(name.lower(), _KNOWN, n=1, cutoff=_LIKENESS)
    hint = f"; did you mean {_KNOWN[close[0]].name}?" if close else "."
    return f"a message has no column {name!r}{hint} What counts: {known}"


@dataclass(frozen=True, slots=True)
class PartitionId:
    """Which rows these are: the same for every attempt at them."""

    write: str
    batch: int
    partition: int


class RowReader:
    """Turns the batches of one partition into batches to stage. Not thread-safe."""

    def __init__(
        self,
        columns: Mapping[str, int],
        admission: Admission,
        partition: PartitionId,
        *,
        topic: str | None,
        queues: int,
        unique_keys: bool,
        born_ms: int,
    ) -> None:
        self._columns, self._admission, self._partition = columns, admission, partition
        self._topic, self._queues, self._unique_keys = topic, queues, unique_keys
        self._unique = UniqueKeys(partition, born_ms)
        self._plain_bytes_max = admission.plain_bytes_max
        self._good_places: set[tuple[str, int]] = set()
        self.rows = 0

    def staged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows, checked and as they will be staged; MessageRejected names the first that cannot be."""
        for batch in batches:
            if batch.num_rows:
                yield self._take(batch)
                self.rows += batch.num_rows

    def _take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        bodies = self._bodies(batch)
        topics = self._topics(batch)
        queue_ids = self._queue_ids(batch)
        properties = [
            self._properties(row, *values)
            for row, values in enumerate(
                zip(
                    self._values(batch, "tags"),
                    self._values(batch, "keys"),
                    self._values(batch, "properties"),
                    self._values(batch, "delayLevel"),
                    self._unique.take(batch.num_rows),
                    strict=False,
                )
            )
        ]
        self._check(topics, queue_ids, properties, bodies)
        arrays = [
            pa.array(topics, pa.string()),
            pa.array(queue_ids, pa.int32()),
            pa.array(properties, pa.binary()),
            bodies,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=STAGED_SCHEMA)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        position = self._columns.get(name)
        return None if position is None else batch.column(position)

    def _values(self, batch: pa.RecordBatch, name: str) -> Iterable[Any]:
        column = self._column(batch, name)
        return repeat(None, batch.num_rows) if column is None else column.to_pylist()

    def _bodies(self, batch: pa.RecordBatch) -> pa.Array:
        column = self._column(batch, "body")
        assert column is not None
        self._refuse_null("body", column)
        return column if column.type == pa.binary() else column.cast(pa.binary())

    def _topics(self, batch: pa.RecordBatch) -> list[str]:
        if self._topic is not None:
            return [self._topic] * batch.num_rows
        column = self._column(batch, "topic")
        assert column is not None
        self._refuse_null("topic", column)
        topics: list[str] = column.to_pylist()
        return topics

    def _refuse_null(self, name: str, column: pa.Array) -> None:
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise self._refusal(row, f"{name} is null")

    def _queue_ids(self, batch: pa.RecordBatch) -> list[int]:
        """The queue of each row: as it says, by its sharding key, or in turns."""
        count = self._queues
        turns = range(self._partition.partition + self.rows, self._partition.partition + self.rows + batch.num_rows)
        if (column := self._column(batch, "queueId")) is not None:
            given = column.to_pylist()
            queue_ids = [turn % count if own is None else own for own, turn in zip(given, turns, strict=True)]
            for row, queue_id in enumerate(queue_ids):
                if not 0 <= queue_id <= _QUEUE_ID_MAX:
                    raise self._refusal(row, f"queueId {queue_id} is no queue; whole numbers from 0 are")
            return queue_ids
        if (column := self._column(batch, "shardingKey")) is not None:
            keys = column.to_pylist()
            return [
                turn % count if key is None else sharded(str(key), count) for key, turn in zip(keys, turns, strict=True)
            ]
        return [turn % count for turn in turns]

    def _properties(
        self,
        row: int,
        tags: str | None,
        keys: str | Sequence[str | None] | None,
        properties: Sequence[tuple[str, str | None]] | None,
        delay_level: int | None,
        unique: str,
    ) -> bytes:
        """The property string of one row."""
        if not properties and not delay_level and self._unique_keys and (keys is None or isinstance(keys, str)):
            short = _usual_properties(keys, tags, unique)
            if short is not None:
                return short
        pairs = dict(properties) if properties else {}
        if None in pairs.values():
            name = next(name for name, value in pairs.items() if value is None)
            raise self._refusal(row, f"property {name!r} is null")
        if keys is not None and not isinstance(keys, str) and None in keys:
            raise self._refusal(row, "keys holds a null")
        if delay_level is not None and delay_level < 0:
            raise self._refusal(row, f"delayLevel {delay_level} is negative; 0 is no delay")
        if self._unique_keys and UNIQ_KEY not in pairs:
            pairs[UNIQ_KEY] = unique
        message = Message(
            "",
            b"",
            tags or None,
            keys or (),  # type: ignore[arg-type]
            pairs,  # type: ignore[arg-type]
            delay_level=delay_level or 0,
        )
        try:
            return message.property_bytes()
        except MessageRejected as problem:
            raise self._refusal(row, problem.reason) from None

    def _check(self, topics: list[str], queue_ids: list[int], properties: list[bytes], bodies: pa.Array) -> None:
        """Every row by the store's own rules. Rows well within all limits are not looked at one by one."""
        lengths = pc.binary_length(bodies).to_pylist()
        most, good = self._plain_bytes_max, self._good_places
        for row, (topic, queue_id, encoded, length) in enumerate(
            zip(topics, queue_ids, properties, lengths, strict=True)
        ):
            plain = length + len(encoded) <= most and (topic, queue_id) in good
            if plain and not has_meaning_to_store(encoded):
                continue
            if is_system_topic(topic):
                raise self._refusal(row, f"{topic} {SYSTEM_TOPIC_REFUSED}")
            message = Message(topic, bodies[row].as_py(), queue_id=queue_id, encoded_properties=encoded)
            try:
                self._admission.admit(message)
            except MessageRejected as problem:
                raise self._refusal(row, problem.reason) from None
            good.add((topic, queue_id))

    def _refusal(self, row: int, reason: str) -> MessageRejected:
        return MessageRejected(f"partition {self._partition.partition}, row {self.rows + row}: {reason}")


# The order in which a Java map gives these names back, whichever of them are there.
_USUAL_NAMES = (KEYS, UNIQ_KEY, TAGS)
assert hash_map_order((UNIQ_KEY, TAGS, KEYS)) == _USUAL_NAMES


def _usual_properties(keys: str | None, tags: str | None, unique: str) -> bytes | None:
    """The property string of a row with nothing but these, by a short way; None if it needs a closer look."""
    text = f"{KEYS}\x01{keys}\x02{UNIQ_KEY}\x01{unique}" if keys else f"{UNIQ_KEY}\x01{unique}"
    if tags:
        text = f"{text}\x02{TAGS}\x01{tags}"
    joints = bool(keys) + bool(tags)
    return text.encode() if text.count("\x01") == joints + 1 and text.count("\x02") == joints else None


def sharded(key: str, queues: int) -> int:
    """The queue Java producers choose for this key: by the hash of its text, without its sign."""
    return abs(string_hash(key)) % queues


class UniqueKeys:
    """UNIQ_KEY of the rows of one partition, in order: 32 digits in RocketMQ's layout.

    6 bytes   hash of write, batch and partition (there: address and process)
    4 bytes   row number, upper part             (there: class loader)
    4 bytes   when, in ms since the month began; RocketMQ's tools search from that time on
    2 bytes   row number, lower part             (there: counter)
    """

    def __init__(self, partition: PartitionId, born_ms: int) -> None:
        text = f"{partition.write}\n{partition.batch}\n{partition.partition}"
        self._head = hashlib.blake2b(text.encode(), digest_size=6).hexdigest().upper()
        born = datetime.fromtimestamp(born_ms / 1000)  # As there, by the local calendar.
        month = born.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._since_month = f"{round((born - month).total_seconds() * 1000):08X}"
        self._next = 0

    def take(self, count: int) -> Iterator[str]:
        """The keys of the next `count` rows."""
        start, self._next = self._next, self._next + count
        for row in range(start, start + count):
            upper, lower = divmod(row, _COUNTER_ROWS)
            yield f"{self._head}{upper:08X}{self._since_month}{lower:04X}"
