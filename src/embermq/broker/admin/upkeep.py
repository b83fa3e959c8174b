"""Cleaning by request (306, 316, 329). On a request's thread."""

from collections.abc import Collection, Iterator

from embermq.broker.tables import TopicTable
from embermq.remoting import Call, NoHeader, Reply, RequestCode, Row
from embermq.store import MessageStore


class UpkeepAdmin:
    """Answers to requests that clean."""

    def __init__(self, store: MessageStore, topics: TopicTable) -> None:
        self._store, self._topics = store, topics

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, NoHeader, self.clean_queues, blocking=True),
            Row(RequestCode.CLEAN_UNUSED_TOPIC, NoHeader, self.clean_topics, blocking=True),
            Row(RequestCode.DELETE_EXPIRED_COMMITLOG, NoHeader, self.delete_expired, blocking=True),
        ]

    def clean_queues(self, _call: Call[NoHeader]) -> Reply:
        self._store.clean_expired_queues()
        return Reply()

    def clean_topics(self, _call: Call[NoHeader]) -> Reply:
        self._store.clean_unused_topics(_Live(self._topics))
        return Reply()

    def delete_expired(self, _call: Call[NoHeader]) -> Reply:
        self._store.delete_expired()
        return Reply()


class _Live(Collection[str]):
    """The topics there are at the moment of asking: one made meanwhile by a producer is never taken for unused."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and self._topics.find(topic) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics.all())

    def __len__(self) -> int:
        return len(self._topics.all())
