"""Reads by topic and queue: messages, and where a queue begins, ends and was at some time.

A message can be read as soon as it was appended: a read waits until the dispatcher has come so far, unless the queue
has enough already, or the caller does not want to wait. What hands out messages is refused while reads are switched
off; offsets, times and counts are answered. Any thread.
"""

import time

from embermq.errors import StoreError
from embermq.model.hosts import Host
from embermq.store.access import check_topic
from embermq.store.engine import Engine
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.fetch import FetchOutcome
from embermq.store.queues.filters import MessageFilter, as_filter
from embermq.store.queues.raw_read import RawRead
from embermq.store.services.upkeep import message_ids


class QueueReads:
    """Reads of the queues of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._access = engine, engine.access
        self._queues, self._records, self._stats = engine.queues, engine.records, engine.stats

    # -- messages ----------------------------------------------------------------------------------------------

    def fetch(
        self, topic: str, queue_id: int, offset: int, max_messages: int, tags: str | MessageFilter | None, wait: bool
    ) -> FetchOutcome:
        self._check(topic, max_messages)
        began = time.perf_counter()
        queue = self._queue_to_read(topic, queue_id, offset + max_messages if wait else None)
        outcome = self._engine.fetcher.fetch(queue, offset, max_messages, as_filter(tags))
        self._stats.record_fetch(len(outcome.messages), time.perf_counter() - began)
        return outcome

    def read_raw(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int | None,
        filter: str | MessageFilter | None,
        wait: bool,
        is_bulk: bool,
    ) -> RawRead:
        self._check(topic, max_messages)
        began = time.perf_counter()
        queue = self._queue_to_read(topic, queue_id, offset + max_messages if wait else None)
        limits = self._engine.fetcher.limits(max_messages, max_bytes, is_bulk=is_bulk)
        read = self._engine.raw_reader.read(queue, offset, max_messages, limits, as_filter(filter))
        self._stats.record_fetch(read.count, time.perf_counter() - began)
        return read

    def _check(self, topic: str, max_messages: int) -> None:
        self._access.check_readable()
        check_topic(topic)
        if max_messages < 0:
            raise StoreError(f"max_messages {max_messages} is negative; at least one message is answered even for 0")

    def _queue_to_read(self, topic: str, queue_id: int, wait_for: int | None) -> ConsumeQueue | None:
        """The queue; with `wait_for`, the dispatcher is waited for unless the queue has come to that offset."""
        queue = self._find(topic, queue_id)
        if wait_for is not None and (queue is None or queue.max_offset < wait_for):
            self._engine.catch_up()
            queue = self._find(topic, queue_id)
        return queue

    def _find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id) if self._queues is not None else None

    # -- offsets, times, counts --------------------------------------------------------------------------------

    def _seen(self, topic: str, queue_id: int, wait: bool = True) -> ConsumeQueue | None:
        """The queue; with `wait`, with everything that was appended before this call."""
        self._access.check_open()
        check_topic(topic)
        if wait:
            self._engine.catch_up()
        return self._find(topic, queue_id)

    def _entry(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        queue = self._seen(topic, queue_id)
        return queue.entry(queue_offset) if queue is not None else None

    def min_offset(self, topic: str, queue_id: int, wait: bool) -> int:
        queue = self._seen(topic, queue_id, wait)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int, wait: bool) -> int:
        queue = self._seen(topic, queue_id, wait)
        return queue.max_offset if queue is not None else 0

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        queue = self._seen(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_at(timestamp_ms, self._records.store_time, self._engine.log.min_offset)

    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        entry = self._entry(topic, queue_id, queue_offset)
        return entry[0] if entry is not None else 0

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        entry = self._entry(topic, queue_id, queue_offset)
        return self._records.store_time(entry[0], entry[1]) if entry is not None else -1

    def earliest_time(self, topic: str | None, queue_id: int | None) -> int:
        if topic is not None:
            queue = self._seen(topic, queue_id or 0)
            return self.store_time(topic, queue_id or 0, queue.min_offset) if queue is not None else -1
        self._access.check_open()
        first = self._records.frame_at(self._engine.log.min_offset)
        return first.store_timestamp if first is not None else -1

    def message_count(self, topic: str, queue_id: int) -> int:
        queue = self._seen(topic, queue_id)
        return queue.max_offset - queue.min_offset if queue is not None else 0

    def message_ids(self, topic: str, queue_id: int, start: int, end: int) -> dict[str, int]:
        queue = self._seen(topic, queue_id)
        return {} if queue is None else message_ids(queue, start, end, Host(*self._engine.settings.store_host))

    def queue_entries(self, topic: str, queue_id: int, start: int, limit: int) -> list[tuple[int, int, int]]:
        queue = self._seen(topic, queue_id)
        if queue is None or limit <= 0:
            return []
        found: list[tuple[int, int, int]] = queue.entries(start, limit).tolist()
        return found

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int, wait: bool) -> bool:
        queue, fetcher = self._seen(topic, queue_id, wait), self._engine.fetcher
        if queue is None or not fetcher.is_on_disk(self._engine.log.min_offset):
            return False  # The oldest record is in memory, and so are all.
        if not wait and queue_offset >= queue.written_offset:
            return False
        entry = queue.entry(queue_offset)
        return entry is not None and fetcher.is_on_disk(entry[0])

    def topics(self) -> dict[str, list[int]]:
        self._access.check_open()
        self._engine.catch_up()
        return self._queues.topics() if self._queues is not None else {}
