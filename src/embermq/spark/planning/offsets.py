"""Where a read begins and where it ends: limits as options say them, resolved to offsets of each queue. Pure.

A limit is one of Earliest, Latest, AtOffsets, AtTime, AtTimes. Offsets are next-to-read: a range [3, 7) of a queue
holds offsets 3, 4, 5 and 6, and "I have read 6" is written as 7. In JSON -2 stands for earliest, -1 for latest.

    {"orders": {"0": 23, "1": -2}}                  queue by queue, on every broker
    {"orders": {"broker-a": {"0": 23}}}             on one broker; such an entry wins over one without

Queues that the JSON does not name begin at the earliest and end at the latest offset (a stream: begin at the latest).
Called on the driver, while planning; no I/O here: times are looked up through a callable.
"""

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from embermq.errors import DataLost, OptionInvalid, TopicUnknown
from embermq.format.config_json import parse_config

EARLIEST = -2
LATEST = -1
# Milliseconds between these two are the years 1973 to 5138: other numbers are other entries.
_MS_LEAST = 100_000_000_000
_MS_MOST = 100_000_000_000_000
_LIKENESS = 0.6  # how much a wrong name must resemble a right one to be worth mentioning
_NEAREST_MAX = 3
_TIME_EXPECTED = "a time as 2024-01-31T12:00:00Z, or milliseconds since 1970-01-01 UTC,"

_log = logging.getLogger(__name__)

Edge = Literal["start", "end"]
QueueKey = tuple[str, str | None, int]  # topic, broker name (None: any), queue id


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest message there is."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the newest message, as of planning."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets queue by queue; `option` is where they were said."""

    option: str
    table: Mapping[QueueKey, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time, in every queue."""

    option: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same, with a time for each queue."""

    option: str
    table: Mapping[QueueKey, int]


Limit = Earliest | Latest | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, slots=True)
class ReadableQueue:
    """What there is of one queue: offsets [min_offset, max_offset)."""

    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} on {self.broker_name}"


def parse_limit(option: str, text: str, edge: Edge, *, streaming: bool | None) -> Limit:
    """startingOffsets or endingOffsets: earliest, latest or JSON. OptionInvalid when it cannot be."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if edge == "start" and word == "latest" and streaming is False:
            raise OptionInvalid(option, "a batch that begins behind the last message is empty; use earliest or JSON")
        if edge == "end" and word == "earliest":
            raise OptionInvalid(option, "a read that ends before the first message is empty; use latest or JSON")
        return Earliest() if word == "earliest" else Latest()
    if not word.startswith("{"):
        raise OptionInvalid(option, "earliest, latest or JSON is expected" + _example(), value=text)
    table = _parse_table(option, text)
    for (topic, _, queue_id), value in table.items():
        if value < EARLIEST:
            raise OptionInvalid(option, f"{topic} queue {queue_id}: {value} is no offset; 0 or more, or -2 or -1")
        if value == LATEST and edge == "start" and streaming is False:
            raise OptionInvalid(option, f"{topic} queue {queue_id}: -1 (latest) is no start for a batch")
        if value == EARLIEST and edge == "end":
            raise OptionInvalid(option, f"{topic} queue {queue_id}: -2 (earliest) is no end")
    return AtOffsets(option, table)


def parse_times(option: str, text: str) -> AtTimes:
    """startingOffsetsByTimestamp or endingOffsetsByTimestamp."""
    table = _parse_table(option, text, _number_or_time)
    for time_ms in table.values():
        check_time(option, time_ms)
    return AtTimes(option, table)


def parse_time(option: str, text: str) -> AtTime:
    """startingTimestamp or endingTimestamp: ISO 8601 with a time zone, or milliseconds since 1970."""
    return AtTime(option, check_time(option, _time_ms(option, text)))


def _time_ms(option: str, text: str) -> int:
    """Driver and workers may be in different time zones, so a time without one is refused."""
    try:
        return int(text.strip())
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text.strip())
        if when.tzinfo is None:
            raise OptionInvalid(option, "a time zone is needed, for example 2024-01-31T12:00:00Z", value=text)
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise OptionInvalid(option, f"{_TIME_EXPECTED} is expected", value=text) from None


def check_time(option: str, time_ms: int) -> int:
    """The time, unless it can only be meant in another entry."""
    if time_ms == 0 or _MS_LEAST <= time_ms < _MS_MOST:
        return time_ms
    if time_ms < 0:
        raise OptionInvalid(option, "a time before 1970 finds nothing; use 0 for everything", value=time_ms)
    for entry, as_ms in (
        ("seconds", time_ms * 1_000),
        ("microseconds", time_ms // 1_000),
        ("nanoseconds", time_ms // 1_000_000),
    ):
        if _MS_LEAST <= as_ms < _MS_MOST:
            when = datetime.fromtimestamp(as_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise OptionInvalid(option, f"this is {when} in {entry}; milliseconds are expected: {as_ms}", value=time_ms)
    raise OptionInvalid(option, "milliseconds since 1970-01-01 UTC are expected", value=time_ms)


def _number_or_time(option: str, value: object) -> object:
    return _time_ms(option, value) if isinstance(value, str) else value


def _example() -> str:
    return ', for example {"orders": {"0": 23, "1": -2}}'


def _parse_table(
    option: str, text: str, number_of: Callable[[str, object], object] = lambda _, number: number
) -> dict[QueueKey, int]:
    try:
        parsed = parse_config(text)
    except ValueError as problem:
        raise OptionInvalid(option, f"no JSON ({problem}); expected is one number a queue{_example()}") from None
    if not isinstance(parsed, dict):
        raise OptionInvalid(option, f"JSON from topics to queues is expected{_example()}", value=text)
    table: dict[QueueKey, int] = {}
    for topic, inner in parsed.items():
        if not isinstance(inner, dict):
            raise OptionInvalid(option, f"topic {topic}: a number for each queue is expected{_example()}")
        for key, value in inner.items():
            if isinstance(value, dict):
                for queue, number in value.items():
                    _put(option, table, str(topic), str(key), queue, number_of(option, number))
            else:
                _put(option, table, str(topic), None, key, number_of(option, value))
    return table


def _put(option: str, table: dict[QueueKey, int], topic: str, broker: str | None, queue: Any, number: object) -> None:
    where = f"topic {topic}" + (f", broker {broker}" if broker is not None else "")
    try:
        queue_id = int(queue)
    except ValueError:
        raise OptionInvalid(option, f"{where}: {queue!r} is no queue; a whole number is expected{_example()}") from None
    if type(number) is not int or queue_id < 0:
        raise OptionInvalid(option, f"{where}, queue {queue}: {number!r} is no whole number{_example()}")
    if (topic, broker, queue_id) in table:
        raise OptionInvalid(option, f"{where}, queue {queue_id} is named twice")
    table[topic, broker, queue_id] = number


def check_names(limit: Limit, present: Iterable[ReadableQueue], where: str) -> None:
    """Every topic, broker and queue the JSON names must be there: a slip of the pen must not read everything.

    `present` is everything the read could want; `where` says what was looked through."""
    if not isinstance(limit, AtOffsets | AtTimes):
        return
    known = {(ends.topic, ends.broker_name, ends.queue_id) for ends in present}
    topics = sorted({topic for topic, _, _ in known})
    brokers = sorted({broker for _, broker, _ in known})
    for topic, broker, queue_id in limit.table:
        if topic not in topics:
            raise TopicUnknown(topic, where, nearest_names(topic, topics))
        if broker is not None and broker not in brokers:
            raise OptionInvalid(limit.option, f"there is no broker {broker!r}; there is {', '.join(brokers)}")
        ids = sorted(q for t, b, q in known if t == topic and broker in (None, b))
        if queue_id not in ids:
            shown = ", ".join(map(str, dict.fromkeys(ids)))
            raise OptionInvalid(limit.option, f"topic {topic} has no queue {queue_id}; its queues: {shown}")


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known names that look like this one, the nearest first."""
    by_lower: dict[str, list[str]] = {}
    for one in sorted(known):
        by_lower.setdefault(one.lower(), []).append(one)
    close = difflib.get_close_matches(name.lower(), by_lower, n=_NEAREST_MAX, cutoff=_LIKENESS)
    return [one for lower in close for one in by_lower[lower]][:_NEAREST_MAX]


def resolve(
    start: Limit,
    end: Limit,
    ends: ReadableQueue,
    *,
    offset_at: Callable[[int], int],
    fail_on_data_loss: bool,
    streaming: bool = False,
) -> tuple[int, int]:
    """The offsets [start, end) to read of one queue. `offset_at`: the first offset stored at or after a time.
    `streaming`: a queue that the JSON does not name begins at the latest offset.

    What was asked for by number and is not there is DataLost (gone) or OptionInvalid (never was); with
    `fail_on_data_loss` off it is one warning, and what is there is read."""
    unnamed = ends.max_offset if streaming else ends.min_offset
    first = _edge(start, unnamed, ends, offset_at, fail_on_data_loss)
    last = _edge(end, ends.max_offset, ends, offset_at, fail_on_data_loss)
    if first > last:
        # Times and ends of their own may well leave nothing; two numbers that cross are a mistake.
        if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
            raise OptionInvalid(end.option, f"{ends}: ends at {last}, before its start {first}")
        last = first
    return first, last


def _edge(limit: Limit, default: int, ends: ReadableQueue, offset_at: Callable[[int], int], strict: bool) -> int:
    """`default`: for a queue that the limit does not name."""
    match limit:
        case Earliest():
            return ends.min_offset
        case Latest():
            return ends.max_offset
        case AtTime(_, time_ms):
            return offset_at(time_ms)
        case AtTimes(_, table):
            at = _look_up(table, ends)
            return default if at is None else offset_at(at)
        case AtOffsets(option, table):
            wanted = _look_up(table, ends)
            if wanted is None:
                return default
            return _checked(option, wanted, ends, strict)


def _look_up(table: Mapping[QueueKey, int], ends: ReadableQueue) -> int | None:
    exact = table.get((ends.topic, ends.broker_name, ends.queue_id))
    return table.get((ends.topic, None, ends.queue_id)) if exact is None else exact


def _checked(option: str, wanted: int, ends: ReadableQueue, strict: bool) -> int:
    if wanted in (EARLIEST, LATEST):
        return ends.min_offset if wanted == EARLIEST else ends.max_offset
    if ends.min_offset <= wanted <= ends.max_offset:
        return wanted
    there = f"offsets from {ends.min_offset} to {ends.max_offset} are there"
    if strict and wanted < ends.min_offset:
        raise DataLost(
            f"option {option}: {ends}: offset {wanted} is gone, {there}; set failOnDataLoss=false to read what is left"
        )
    if strict:
        raise OptionInvalid(option, f"{ends}: offset {wanted} is out of range, {there}")
    nearest = min(max(wanted, ends.min_offset), ends.max_offset)
    _log.warning("offset out of range option=%s queue=%s offset=%d used=%d", option, ends, wanted, nearest)
    return nearest
