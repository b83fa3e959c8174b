"""Queries (12, 33): messages by key, and one message by its place. On a request's thread: they read the disk."""

import msgspec

from embermq.model.message import StoredMessage
from embermq.remoting import I32, I64, Call, Reply, RequestCode, ResponseCode, Row, is_true
from embermq.store import MessageStore

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
UNIQUE_KEY_MESSAGES = 32
MESSAGES_MAX = 64


class QueryHeader(msgspec.Struct, rename="camel", kw_only=True):
    topic: str = ""
    key: str = ""
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64


class ViewHeader(msgspec.Struct, rename="camel"):
    offset: I64


class QueryRequests:
    """Answers to look-ups."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.QUERY_MESSAGE, QueryHeader, self.query, blocking=True),
            Row(RequestCode.VIEW_MESSAGE_BY_ID, ViewHeader, self.view, blocking=True),
        ]

    def query(self, call: Call[QueryHeader]) -> Reply:
        header = call.header
        is_unique = is_true((call.request.ext or {}).get(UNIQUE_KEY_QUERY, ""))
        most = UNIQUE_KEY_MESSAGES if is_unique else max(0, min(header.max_num, MESSAGES_MAX))
        found = (
            self._store.find(header.topic, header.key, header.begin_timestamp, header.end_timestamp, most)
            if header.key and header.topic and most
            else []
        )
        if not found:
            return Reply(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", _index_fields(0, 0)
            )
        fields = _index_fields(*self._store.index_position)
        return Reply(ext=fields, body=b"".join(self._record(one) for one in found))

    def view(self, call: Call[ViewHeader]) -> Reply:
        found = self._store.at(call.header.offset) if call.header.offset >= 0 else None
        if found is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {call.header.offset}")
        return Reply(body=self._record(found))

    def _record(self, message: StoredMessage) -> bytes:
        """The stored bytes of a message."""
        return self._store.read_log(message.physical_offset, message.size)


def _index_fields(updated_ms: int, position: int) -> dict[str, str]:
    return {"indexLastUpdateTimestamp": str(updated_ms), "indexLastUpdatePhyoffset": str(position)}
