"""Values of options, from text: one function for each kind. Pure.

Each takes the option's name and its text, and answers the value or raises OptionInvalid, which says what is expected.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from embermq.client.name_servers import parse_name_servers
from embermq.errors import ExpressionInvalid, OptionInvalid
from embermq.sql92 import compile_expression

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(?:i?b)?")
_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Parts of SQL, or of a list that is separated otherwise. A tag may hold spaces.
_NO_TAG = re.compile(r"[|,;=<>()'\"]|\s(?:&&|and|or|between)\s|\sis\s+(?:not\s+)?null\b", re.IGNORECASE)
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class WantedQueues:
    """Which queues of a topic are wanted: the same for all topics, or topic by topic."""

    every_topic: frozenset[int] | None = None
    by_topic: Mapping[str, frozenset[int]] | None = None

    def has(self, topic: str, queue_id: int) -> bool:
        if self.every_topic is not None:
            return queue_id in self.every_topic
        return self.by_topic is None or queue_id in self.by_topic.get(topic, frozenset((queue_id,)))

    @property
    def is_all(self) -> bool:
        return self.every_topic is None and self.by_topic is None


def parse_flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionInvalid(name, "true or false is expected", value=text)
    return text.strip().lower() == "true"


def parse_count(name: str, text: str) -> int:
    """A whole number from 1."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise OptionInvalid(name, "a whole number from 1 is expected", value=text)
    return int(text)


def parse_place(name: str, text: str) -> int:
    """A place in the log: a whole number from 0."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise OptionInvalid(name, "a place in the log is expected, a whole number from 0", value=text)
    return int(text)


def parse_size(name: str, text: str) -> int:
    """Bytes: a number, or one with k, m, g or t (units of 1024)."""
    found = _SIZE.fullmatch(text.strip().lower())
    size = int(found[1]) << _SIZE_UNITS[found[2]] if found else 0
    if not 1 <= size < 1 << 62:
        raise OptionInvalid(name, "bytes are expected, for example 64m or 67108864", value=text)
    return size


def parse_duration_ms(name: str, text: str) -> int:
    """Milliseconds from `500ms`, `30s`, `15m`, `2h`, `1d`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if not found:
        raise OptionInvalid(name, "a time is expected, for example 30s or 15m", value=text)
    return int(found[1]) * _DURATION_UNITS_MS[found[2] if found[2] == "ms" else found[2][0]]


def parse_word(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise OptionInvalid(name, f"{', '.join(allowed[:-1])} or {allowed[-1]} is expected", value=text)
        return word

    return read


def parse_topics(name: str, text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise OptionInvalid(name, "names of topics are expected, separated by commas", value=text)
    return topics


def parse_pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise OptionInvalid(name, f"no regular expression: {problem}", value=text) from None
    return text


def parse_queues(name: str, text: str) -> WantedQueues:
    if not text.strip().startswith("{"):
        return WantedQueues(every_topic=_queue_ids(name, text))
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionInvalid(name, f"no JSON ({problem}); for example " + '{"orders": [0, 2]}', value=text) from None
    by_topic: dict[str, frozenset[int]] = {}
    for topic, ids in parsed.items():
        if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids) or not ids:
            raise OptionInvalid(name, f"topic {topic}: a list of queue ids is expected", value=text)
        by_topic[topic] = frozenset(ids)
    return WantedQueues(by_topic=by_topic)


def _queue_ids(name: str, text: str) -> frozenset[int]:
    ids: set[int] = set()
    for piece in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", piece)
        if not found or (found[2] and not int(found[1]) <= int(found[2]) <= int(found[1]) + 65535):
            raise OptionInvalid(name, "queue ids are expected, for example 0,2-3", value=text)
        ids.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(ids)


def parse_tags(name: str, text: str, instead: str = "sqlExpression") -> tuple[str, ...] | None:
    """`a || b`, as consumers say it; None is every tag. `instead`: the option for a condition on properties."""
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    if text.strip() in ("", "*"):
        return None
    if not tags or any(map(_NO_TAG.search, tags)):
        raise OptionInvalid(
            name,
            "this is not a list of tags; tags are expected, separated by ||, for example `paid || shipped`; for a"
            f" condition use {instead}",
            value=text,
        )
    return tags


def parse_expression(name: str, text: str) -> str:
    """A SQL92 filter. It is compiled again where rows are read: what is compiled cannot be sent there."""
    try:
        return compile_expression(text).text
    except ExpressionInvalid as problem:
        raise OptionInvalid(name, str(problem), value=text) from None


def parse_keys(name: str, text: str) -> tuple[str, ...]:
    if text.strip().startswith("["):
        keys = parse_texts(name, text)
    else:
        keys = tuple(part for part in re.split(r"[\s,]+", text) if part)
    if not keys or not all(keys) or any(" " in key for key in keys):
        raise OptionInvalid(name, "keys are expected, separated by commas; none holds a space", value=text)
    return tuple(dict.fromkeys(keys))


def parse_text(name: str, text: str) -> str:
    if not text.strip():
        raise OptionInvalid(name, "a name is expected", value=text)
    return text.strip()


def parse_group(name: str, text: str) -> str:
    """A consumer group, by the rule that producers and consumers keep to: `@` would part it from its topic."""
    group = parse_text(name, text)
    if not _GROUP.fullmatch(group):
        raise OptionInvalid(name, "the name of a group is expected: letters, digits and any of % | _ -", value=text)
    return group


def parse_addresses(name: str, text: str) -> tuple[str, ...]:
    """Name servers: `host:port`, several separated by semicolons."""
    try:
        return parse_name_servers(text)
    except OptionInvalid as problem:
        raise OptionInvalid(name, problem.reason, value=text) from None


def parse_texts(name: str, text: str) -> tuple[str, ...]:
    """A JSON list of texts."""
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionInvalid(name, f"no JSON ({problem}); a list of texts is expected", value=text) from None
    if not isinstance(parsed, list) or not all(isinstance(one, str) for one in parsed) or not parsed:
        raise OptionInvalid(name, "a JSON list of texts is expected", value=text)
    return tuple(parsed)
