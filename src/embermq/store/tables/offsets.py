"""consumerOffset.json, delayOffset.json and timerOffset.json: how far consumer groups and delayed delivery are.

    {"offsetTable":{"<topic>@<group>":{<queue id>:<next offset to read>,...}}}
    {"offsetTable":{<delay level>:<next offset to deliver>,...}}
    {"offsetTable":{"base":<offset of the first bit>,"done":"<a bit for each delivered entry of the timer topic>"}}

Integer keys are read with and without quotes, and written without, as RocketMQ does. timerOffset.json is EmberMQ's own,
and unknown to RocketMQ.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from embermq.files import Decoded
from embermq.format.config_json import with_integer_keys
from embermq.store.tables.config_table import ConfigTable, TableFormat

_SEPARATOR = "@"


class TopicGroup(NamedTuple):
    """A consumer group at a topic."""

    topic: str
    group: str


def _decode_consumers(table: dict[Any, Any]) -> Decoded[dict[TopicGroup, Mapping[int, int]]]:
    found: Decoded[dict[TopicGroup, Mapping[int, int]]] = Decoded({})
    for name, offsets in table.items():
        topic, separator, group = str(name).partition(_SEPARATOR)
        if not separator:
            found.faults.append(f"{name} is not a topic and a group")
            continue
        try:
            queues = with_integer_keys(offsets)
        except (ValueError, TypeError, AttributeError):
            found.faults.append(f"{name} has no offsets by queue id")
            continue
        good = {queue_id: offset for queue_id, offset in queues.items() if type(offset) is int}
        bad = [one for one in queues if one not in good]
        found.faults.extend(f"{name} has the offset {queues[one]!r} for queue {one}" for one in bad)
        found.value[TopicGroup(topic, group)] = good
    return found


def _encode_consumers(entries: Mapping[TopicGroup, Mapping[int, int]]) -> dict[Any, Any]:
    return {f"{topic}{_SEPARATOR}{group}": dict(offsets) for (topic, group), offsets in entries.items()}


def _decode_delays(table: dict[Any, Any]) -> Decoded[dict[int, int]]:
    """All or nothing: a level that is missing would be delivered again from its start."""
    levels = with_integer_keys(table)
    for level, offset in levels.items():
        if level < 1 or type(offset) is not int or offset < 0:
            raise ValueError(f"level {level} has the offset {offset!r}")
    return Decoded(levels)


def _encode_delays(entries: Mapping[int, int]) -> dict[Any, Any]:
    return dict(sorted(entries.items()))


def _decode_timers(table: dict[Any, Any]) -> Decoded[dict[str, int | str]]:
    """All or nothing, as for delay levels."""
    base, done = table.get("base", 0), table.get("done", "")
    if type(base) is not int or base < 0 or base % 8 or not isinstance(done, str):
        raise ValueError("has no bits of the timer topic")
    return Decoded({"base": base, "done": done} if table else {})


CONSUMER_OFFSETS: TableFormat[TopicGroup, Mapping[int, int]] = TableFormat(
    "consumerOffset.json", "offsetTable", _decode_consumers, _encode_consumers
)
DELAY_OFFSETS: TableFormat[int, int] = TableFormat("delayOffset.json", "offsetTable", _decode_delays, _encode_delays)
TIMER_OFFSETS: TableFormat[str, int | str] = TableFormat("timerOffset.json", "offsetTable", _decode_timers, dict)


def commit_offsets(
    table: ConfigTable[TopicGroup, Mapping[int, int]], topic: str, group: str, offsets: Iterable[tuple[int, int]]
) -> None:
    """Set the next offsets to read of some queues (queue id, offset); the group's other queues keep theirs."""
    table.change(TopicGroup(topic, group), lambda before: {**(before or {}), **dict(offsets)})
