"""Subscriptions of a consumer: what it wants of which topics, and which messages match. The loop's thread only.

A tag expression is `*` or tags with `||` between them. The broker compares hash codes of tags, so the text is compared
here once more. SQL92 expressions are evaluated by the broker alone. A change gets a higher version, the time in
milliseconds: a broker that has heard of a newer one refuses pulls with an older one.
"""

from collections.abc import Iterator

import msgspec

from embermq.client.calls.members import SQL92, TAG, SubscriptionData
from embermq.client.received import ReceivedMessage
from embermq.errors import OptionInvalid
from embermq.model.names import topic_objection
from embermq.model.properties import tag_texts

ALL = "*"


def subscription_of(topic: str, expression: str | None, sql: str | None, version: int) -> SubscriptionData:
    """What the arguments of `subscribe` mean; OptionInvalid when they mean nothing."""
    if (objection := topic_objection(topic)) is not None:
        raise OptionInvalid("topic", objection, value=topic)
    if sql is not None:
        if expression not in (None, ALL):
            raise OptionInvalid(
                "sql", f"topic {topic!r} has the tag expression {expression!r} already; give one of them"
            )
        if not sql.strip():
            raise OptionInvalid("sql", "the expression is empty", value=sql)
        return SubscriptionData(topic, sql, SQL92, version)
    text = (expression or ALL).strip()
    if text != ALL and tag_texts(text) is None:
        raise OptionInvalid("expression", "no tag in it; '*' stands for all, 'a || b' for two tags", value=expression)
    return SubscriptionData(topic, text or ALL, TAG, version)


class TagMatch:
    """Which messages a subscription wants, by the text of their tags."""

    def __init__(self, wanted: SubscriptionData) -> None:
        self._tags = tag_texts(wanted.expression) if wanted.kind == TAG else None

    def select(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        tags = self._tags
        if tags is None:
            return messages
        return [message for message in messages if message.tags in tags]


class Subscriptions:
    """The topics of one consumer."""

    def __init__(self) -> None:
        self._wanted: dict[str, SubscriptionData] = {}

    def __iter__(self) -> Iterator[SubscriptionData]:
        return iter(self._wanted.values())

    def __contains__(self, topic: str) -> bool:
        return topic in self._wanted

    def __len__(self) -> int:
        return len(self._wanted)

    def find(self, topic: str) -> SubscriptionData | None:
        return self._wanted.get(topic)

    def topics(self) -> list[str]:
        return sorted(self._wanted)

    def put(self, wanted: SubscriptionData) -> None:
        """Take a subscription, or replace that of its topic; its version is at least one more than the old one's."""
        known = self._wanted.get(wanted.topic)
        if known is not None and wanted.version <= known.version:
            wanted = msgspec.structs.replace(wanted, version=known.version + 1)
        self._wanted[wanted.topic] = wanted

    def remove(self, topic: str) -> bool:
        return self._wanted.pop(topic, None) is not None

    def renew(self, topic: str, version: int) -> None:
        """The same subscription with a new version: brokers take a changed assignment for a change."""
        if (known := self._wanted.get(topic)) is not None:
            self.put(msgspec.structs.replace(known, version=version))
