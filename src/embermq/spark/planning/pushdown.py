"""Filters of a query, turned into what a read can leave out.

Spark hands filters over as an AND of simple comparisons, and evaluates again what is returned to it. All of them are
returned: what is used here only has to be implied by the filter, never equal to it, so a doubt costs speed and not
rows. (One doubt is left, for >, >= and = of times: read_request.py, `_first_file`.) A filter that cannot be used is
ignored.

    topic, tags               = and IN                            kafka mode: topic
    queueId                   = and IN                            partition
    queueOffset               =, IN, <, <=, >, >=                 offset
    physicalOffset            =, IN, <, <=, >, >=
    storeTimestamp            =, IN, <, <=, >, >=                 timestamp
    uniqKey, keys             = and IN                            key

How the reader gets to see them is in batch_reader.py. Pure; driver side, while planning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from embermq.spark.options.schema import SchemaMode
from embermq.spark.runtime.newer_spark import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KAFKA = {
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "key": "keys",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `start` to before `end`."""

    start: int = _I64_MIN
    end: int = _I64_MAX

    def meet(self, other: "Span") -> "Span":
        return Span(max(self.start, other.start), min(self.end, other.end))

    @property
    def is_all(self) -> bool:
        return self == _EVERYTHING

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


_EVERYTHING = Span()


@dataclass(frozen=True, slots=True)
class Pushed:
    """What every wanted row has, as far as filters say it. None and the whole span say nothing."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_offsets: Span = _EVERYTHING
    physical: Span = _EVERYTHING
    times_ms: Span = _EVERYTHING
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None  # one of these is a key or the unique key of the record

    @property
    def is_empty(self) -> bool:
        """No row can pass."""
        sets = (self.topics, self.queue_ids, self.tags, self.keys)
        spans = (self.queue_offsets, self.physical, self.times_ms)
        return any(one is not None and not one for one in sets) or any(one.is_empty for one in spans)

    @property
    def names_queues(self) -> bool:
        return self.topics is not None or self.queue_ids is not None or not self.queue_offsets.is_all


def understand(filters: Iterable[Filter], mode: SchemaMode) -> Pushed:
    """What the filters together say."""
    pushed = Pushed()
    for one in filters:
        column = _column(one, mode)
        if column in _RULES:
            pushed = _RULES[column](pushed, one)
    return pushed


def _column(one: Filter, mode: SchemaMode) -> str:
    """Our name of the column a filter is about; empty when it is about none, or a part of one."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return ""
    known = _KAFKA if mode == "kafka" else dict.fromkeys(_RULES)
    by_lower = {name.lower(): ours or name for name, ours in known.items()}
    return by_lower.get(str(path[0]).lower(), "")


def _values(one: Filter) -> list[object] | None:
    """The values a column must have one of; None when the filter is another one. A null equals nothing."""
    match one:
        case EqualTo() | EqualNullSafe():
            return [one.value] if one.value is not None else (None if isinstance(one, EqualNullSafe) else [])
        case In():
            return [value for value in one.value if value is not None]
    return None


def _meet_sets(before: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    wanted = frozenset(values)
    return wanted if before is None else before & wanted


def _texts(field: str) -> Callable[[Pushed, Filter], Pushed]:
    def use(pushed: Pushed, one: Filter) -> Pushed:
        values = _values(one)
        if values is None or not all(isinstance(value, str) for value in values):
            return pushed
        met: dict[str, Any] = {field: _meet_sets(getattr(pushed, field), values)}
        return replace(pushed, **met)

    return use


def _queue_ids(pushed: Pushed, one: Filter) -> Pushed:
    values = _values(one)
    if values is None or not all(type(value) is int for value in values):
        return pushed
    return replace(pushed, queue_ids=_meet_sets(pushed.queue_ids, values))


def _keys(key: Callable[[str], str]) -> Callable[[Pushed, Filter], Pushed]:
    """Keys that can be looked for. `key(text)`: the key of every record with this text; empty if there is none."""

    def use(pushed: Pushed, one: Filter) -> Pushed:
        values = _values(one)
        if values is None:
            return pushed
        keys = [key(_text(value)) for value in values]
        if not all(keys):
            return pushed  # A text without a key: nothing that could be looked for.
        if pushed.keys is not None:
            return pushed  # Two conditions on keys: one is enough to be fast, Spark compares the other.
        return replace(pushed, keys=frozenset(keys))

    return use


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) and "\ufffd" not in value else ""


def _first_word(text: str) -> str:
    """KEYS is a text of words: a record with this text has its first word as a key."""
    return next((word for word in text.split(" ") if word), "")


def _whole_text(text: str) -> str:
    """UNIQ_KEY is one key. Everywhere else a key holds no space; one that does is left to Spark."""
    return "" if " " in text else text


def _numbers(field: str, low: Callable[[object, bool], int | None]) -> Callable[[Pushed, Filter], Pushed]:
    """Ranges of whole numbers. `low(value, after)`: the first number that is >= value, or > value if `after`."""

    def use(pushed: Pushed, one: Filter) -> Pushed:
        span = _span(one, low)
        return pushed if span is None else replace(pushed, **{field: getattr(pushed, field).meet(span)})

    return use


def _span(one: Filter, low: Callable[[object, bool], int | None]) -> Span | None:
    values = _values(one)
    if values is not None:
        return _covering(values, low)
    if not isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual) or one.value is None:
        return None
    edge = low(one.value, isinstance(one, GreaterThan | LessThanOrEqual))
    if edge is None:
        return None
    return Span(start=edge) if isinstance(one, GreaterThan | GreaterThanOrEqual) else Span(end=edge)


def _covering(values: Sequence[object], low: Callable[[object, bool], int | None]) -> Span | None:
    """From the smallest to the largest of some values."""
    if not values:
        return Span(0, 0)
    starts, ends = [low(value, False) for value in values], [low(value, True) for value in values]
    if None in starts or None in ends:
        return None
    return Span(min(start for start in starts if start is not None), max(end for end in ends if end is not None))


def _whole(value: object, after: bool) -> int | None:
    return value + after if type(value) is int else None


def _milliseconds(value: object, after: bool) -> int | None:
    """Store times are whole milliseconds, Spark's are microseconds."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    past = value - _EPOCH
    micros = (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds
    return micros // 1000 + 1 if after else -(-micros // 1000)


_RULES: dict[str, Callable[[Pushed, Filter], Pushed]] = {
    "topic": _texts("topics"),
    "tags": _texts("tags"),
    "queueId": _queue_ids,
    "queueOffset": _numbers("queue_offsets", _whole),
    "physicalOffset": _numbers("physical", _whole),
    "storeTimestamp": _numbers("times_ms", _milliseconds),
    "uniqKey": _keys(_whole_text),
    "keys": _keys(_first_word),
}
