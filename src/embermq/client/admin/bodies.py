"""Bodies of answers to administrators, in Java's JSON, as plain values. Pure.

What cannot be read is a ValueError, which becomes an AnswerInvalid where the address is known (asking.py). A map whose
keys are queues is a list of (queue, value) here, in the order of topic, broker and queue number.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from embermq.client.message_queue import MessageQueue, parse_queue
from embermq.remoting import key_object, parse_json

# Java's maps with queues as keys are read by the slow reader, which takes some 2 s for this much: a broker with
# 100,000 queues.
BODY_BYTES_MAX = 32 << 20

T = TypeVar("T")


def document(body: bytes) -> dict[str, Any]:
    """The object that a body is; an empty body is an empty one."""
    found = parse_json(body, BODY_BYTES_MAX) if body else {}
    if not isinstance(found, dict):
        raise ValueError("the body is no JSON object")
    return found


def table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A member that is a map; absent or null is an empty one."""
    found = parent.get(name) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no map")
    return found


def listed(parent: Mapping[str, Any], name: str) -> list[Any]:
    """A member that is a list; absent or null is an empty one."""
    found = parent.get(name) or []
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def by_queue(parent: Mapping[str, Any], name: str) -> list[tuple[MessageQueue, Any]]:
    """A member that is a map with queues as keys."""
    found = [(parse_queue(key_object(key)), one) for key, one in table(parent, name).items()]
    return sorted(found, key=lambda pair: pair[0])


def convert(value: Any, kind: type[T]) -> T:
    """A value as a struct. Numbers may be texts: Java writes some so, C++ others."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ValueError(f"{kind.__name__}: {problem}") from None


def names(parent: Mapping[str, Any], name: str) -> list[str]:
    """A member that is a list of names, in order."""
    return sorted(map(str, listed(parent, name)))


def version_name(number: int) -> str:
    """A protocol version as RocketMQ names it: 409 is `V4_9_8`; what is older than 4.0.0 stays a number."""
    if number < 213:
        return str(number)
    major, rest = (4, number - 213) if number < 413 else (5, number - 413)
    minor, place = divmod(rest, 20)
    if place % 2:  # The snapshot before a release stands just below it; before x.y.0 that is the end of x.(y-1).
        patch = (place + 1) // 2
        return f"V{major}_{minor}_{patch}_SNAPSHOT" if patch < 10 else f"V{major}_{minor + 1}_0_SNAPSHOT"
    return f"V{major}_{minor}_{place // 2}"
