"""Offsets (14, 15, 29 to 32): how far a group has read, and where a queue begins and ends."""

import msgspec

from embermq.broker.tables import ConsumerOffsets
from embermq.remoting import I32, I64, Call, Reply, RequestCode, ResponseCode, Row
from embermq.store import MessageStore


class QueueHeader(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: I32


class TimeHeader(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: I32
    timestamp: I64


class QueryOffsetHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: I32


class UpdateOffsetHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


class OffsetRequests:
    """Answers about offsets. None of them asks whether the topic exists."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store, self._offsets = store, offsets

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.QUERY_CONSUMER_OFFSET, QueryOffsetHeader, self.query),
            Row(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateOffsetHeader, self.update),
            Row(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, TimeHeader, self.search, blocking=True),
            Row(RequestCode.GET_MAX_OFFSET, QueueHeader, self.newest),
            Row(RequestCode.GET_MIN_OFFSET, QueueHeader, self.oldest),
            Row(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader, self.earliest, blocking=True),
        ]

    def query(self, call: Call[QueryOffsetHeader]) -> Reply:
        header = call.header
        known = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if known >= 0:
            return _offset(known)
        # A group that is new on a young queue begins at its start, whatever its clients prefer.
        if self._store.min_offset(header.topic, header.queue_id, wait=False) <= 0 and not (
            self._store.check_in_disk_by_consume_offset(header.topic, header.queue_id, 0, wait=False)
        ):
            return _offset(0)
        return Reply(
            ResponseCode.QUERY_NOT_FOUND,
            f"no offset is known of group {header.consumer_group}, which reads this queue for the first time",
            {},
        )

    def update(self, call: Call[UpdateOffsetHeader]) -> Reply:
        header = call.header
        if not self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset):
            return Reply(
                ResponseCode.SYSTEM_ERROR,
                f"the offset of queue {header.queue_id} is not kept: there are too many topics and groups, or the name"
                " or the queue id is too large",
                {},
            )
        return Reply(ext={})

    def search(self, call: Call[TimeHeader]) -> Reply:
        return _offset(self._store.offset_at(call.header.topic, call.header.queue_id, call.header.timestamp))

    def newest(self, call: Call[QueueHeader]) -> Reply:
        return _offset(self._store.max_offset(call.header.topic, call.header.queue_id, wait=False))

    def oldest(self, call: Call[QueueHeader]) -> Reply:
        return _offset(self._store.min_offset(call.header.topic, call.header.queue_id, wait=False))

    def earliest(self, call: Call[QueueHeader]) -> Reply:
        time_ms = self._store.earliest_time(call.header.topic, call.header.queue_id)
        return Reply(ext={"timestamp": str(time_ms)})


def _offset(offset: int) -> Reply:
    return Reply(ext={"offset": str(offset)})
