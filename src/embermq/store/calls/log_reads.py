"""Reads past the queues: by key, by id, by place in the log, and the log itself as bytes.

`find` asks the index, which knows hashes, and compares the text of keys; the others read the log. What hands out
messages is refused while reads are switched off; `read_log` is not, because a replica goes on copying. Any thread.
"""

from collections.abc import Iterator

from embermq.errors import StoreError
from embermq.format.frame import BLANK_MAGIC
from embermq.model.ids import parse_message_id
from embermq.model.message import StoredMessage
from embermq.store.access import check_topic
from embermq.store.disk_errors import raises_store_errors
from embermq.store.engine import Engine
from embermq.store.index import IndexFiles

FOREVER_MS = 2**63 - 1


class LogReads:
    """Reads of the log and index of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.path = engine.path
        self._engine, self._access = engine, engine.access
        self._log, self._records = engine.log, engine.records

    # -- by key --------------------------------------------------------------------------------------------------

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int | None, limit: int | None) -> list[StoredMessage]:
        end_ms = FOREVER_MS if end_ms is None else end_ms
        # Not asked for times: the index keeps them in seconds that count from the last record of the file before, and
        # a clock that was set back makes it end too early. Records know theirs.
        places = self._index_for(topic).walk(topic, key, FOREVER_MS)
        log_end = self._log.readable_offset
        found: dict[int, StoredMessage] = {}
        for physical_offset in places:
            if limit is not None and len(found) >= limit:
                break
            message = self._records.at(physical_offset) if physical_offset < log_end else None
            if message is None or message.topic != topic or not begin_ms <= message.store_timestamp <= end_ms:
                continue
            if key == message.unique_key or key in message.keys:
                found[physical_offset] = message
        return [found[physical_offset] for physical_offset in sorted(found)]

    def index_offsets(self, topic: str, key: str, begin_ms: int, end_ms: int | None, limit: int | None) -> list[int]:
        end_ms = FOREVER_MS if end_ms is None else end_ms
        offsets = self._index_for(topic).query(topic, key, limit, begin_ms, end_ms)
        log_end = self._log.readable_offset
        return [offset for offset in offsets if offset < log_end]  # A reader may find index files ahead of a cut log.

    def _index_for(self, topic: str) -> IndexFiles:
        """The index, with what was visible when it was asked for."""
        self._access.check_readable()
        check_topic(topic)
        if self._engine.index is None:
            raise StoreError("this store keeps no index (messageIndexEnable=false or dispatch=none): no look-up by key")
        self._engine.catch_up()
        return self._engine.index

    # -- by id or place --------------------------------------------------------------------------------------------

    def get(self, message_id: str) -> StoredMessage | None:
        parsed = parse_message_id(message_id)
        message = self.at(parsed.physical_offset) if parsed.physical_offset >= 0 else None
        return message if message is not None and message.store_host == parsed.store_host else None

    def at(self, physical_offset: int) -> StoredMessage | None:
        self._access.check_readable()
        if physical_offset < 0:
            raise StoreError(f"physical offset {physical_offset} is negative; the log begins at {self._log.min_offset}")
        return self._records.at(physical_offset) if physical_offset < self._engine.visible_end() else None

    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        self._access.check_open()
        if max_bytes <= 0:
            raise StoreError(f"max_bytes {max_bytes}: at least one byte has to be asked for")
        end = self._engine.visible_end()
        if physical_offset > end:
            raise StoreError(f"physical offset {physical_offset} is past the end of the log, {end}")
        data = self._log.read(physical_offset, min(max_bytes, end - physical_offset)) if physical_offset >= 0 else b""
        if not data and physical_offset < end:
            begin = self._log.min_offset
            raise StoreError(f"physical offset {physical_offset} is in no log file; the log begins at {begin}")
        return data

    # -- in order --------------------------------------------------------------------------------------------------

    def scan(self, start: int | None, end: int | None) -> Iterator[StoredMessage]:
        self._access.check_readable()
        at = self._log.min_offset if start is None else start
        limit = self._engine.visible_end() if end is None else min(end, self._engine.visible_end())
        while at < limit:
            self._access.check_readable()  # It may be closed, or reads switched off, between two steps of the reader.
            message = self._message_at(at)
            if message is not None:
                yield message
                at = message.end
            else:
                at = self._next_record(at, limit)

    @raises_store_errors
    def _message_at(self, at: int) -> StoredMessage | None:
        return self._records.at(at)

    @raises_store_errors
    def _next_record(self, at: int, limit: int) -> int:
        """Where records go on after a blank, a damaged place or a missing file."""
        good = None
        if int.from_bytes(self._log.read(at + 4, 4), "big", signed=True) != BLANK_MAGIC:
            good = self._log.next_record(at + 1, limit)
        return self._log.next_segment_start(at) if good is None else good
