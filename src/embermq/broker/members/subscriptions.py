"""Subscriptions: what a consumer group wants of a topic, from a heartbeat or from a pull itself. Pure."""

from typing import Any

import msgspec

from embermq.format.java import string_hash
from embermq.store import MessageFilter, TagFilter

TAG = "TAG"
ALL = "*"


class SubscriptionError(ValueError):
    """An expression that cannot be read."""


class Subscription(msgspec.Struct, frozen=True):
    """One topic of a group. `tags` is empty for everything."""

    topic: str
    expression: str = ALL
    expression_type: str = TAG
    version: int = 0
    tags: tuple[str, ...] = ()
    class_filter: bool = False

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    def filter(self) -> MessageFilter | None:
        """Which messages match; None for all."""
        return TagFilter(frozenset(self.tags)) if self.tags else None

    def document(self) -> dict[str, Any]:
        """As Java writes it."""
        return {
            "classFilterMode": self.class_filter,
            "codeSet": [string_hash(tag) for tag in self.tags],
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


def parse_subscription(topic: str, text: str | None, kind: str | None = None, version: int = 0) -> Subscription:
    """A subscription from its text; SubscriptionError for tags that are none, and for an empty expression."""
    expression_type = kind or TAG
    if expression_type != TAG:
        if not text:
            raise SubscriptionError(f"the {expression_type} expression is empty")
        return Subscription(topic, text, expression_type, version)
    if text is None or text in ("", ALL):
        return Subscription(topic, ALL, TAG, version)
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    if not tags:
        raise SubscriptionError(f"the tag expression {text!r} names no tag")
    return Subscription(topic, text, TAG, version, tags)


def from_heartbeat(document: Any, now_ms: int) -> Subscription | None:
    """A subscription as a heartbeat carries it; None when it names no topic. Tag codes are never trusted: old C++
    clients send zeros."""
    if not isinstance(document, dict) or not isinstance(document.get("topic"), str):
        return None
    try:
        version = int(document.get("subVersion") or now_ms)
    except (TypeError, ValueError):
        version = now_ms
    topic, text = document["topic"], document.get("subString")
    kind = document.get("expressionType") or TAG
    class_filter = document.get("classFilterMode") is True
    try:
        read = parse_subscription(topic, text if isinstance(text, str) else None, str(kind), version)
    except SubscriptionError:
        return Subscription(topic, str(text or ""), str(kind), version, class_filter=class_filter)
    return msgspec.structs.replace(read, class_filter=class_filter)
