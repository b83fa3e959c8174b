"""Fetch: messages of one queue from an offset on, with every outcome of the reference.

    offset below the queue's minimum   OFFSET_TOO_SMALL        go on at the minimum
    offset = maximum                   OFFSET_OVERFLOW_ONE     nothing new yet
    offset above the maximum           OFFSET_OVERFLOW_BADLY   go on at the maximum
    entries there, none readable       OFFSET_FOUND_NULL       go on in the next queue file
    entries, none passes the filter    NO_MATCHED_MESSAGE      go on after what was looked at
    their records are being deleted    MESSAGE_WAS_REMOVING    likewise
    otherwise                          FOUND

A queue entry is believed only as far as its record agrees: topic, queue and queue offset must be its own.
Tags are compared by hash first, on the entries alone, and then by text, because hashes collide.
Any thread.
"""

import os
from collections.abc import Callable

import msgspec

from embermq.format.java import string_hash
from embermq.model.message import StoredMessage
from embermq.model.properties import tag_texts
from embermq.model.status import FetchStatus
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.records import Records
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.damaged_entries import DamagedEntries, belongs, fills_hole
from embermq.store.queues.extension import is_address

ENTRY_BYTES = 20
# At least this many bytes of entries are looked through in one call, however few messages are wanted.
SCAN_BYTES_MIN = 16_000
BILLING_BYTES = 65_536
_MEMORY_BYTES_FALLBACK = 24 << 30


class FetchOutcome(msgspec.Struct, frozen=True):
    """What a fetch answers. `next_offset` is where the next fetch should begin."""

    status: FetchStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    bytes_total: int = 0
    suggest_slave: bool = False
    billing: int = 0


def memory_bytes() -> int:
    """Physical memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return _MEMORY_BYTES_FALLBACK


class Budget:
    """How much one fetch may carry; less when it has to go to the disk. At least one message always fits."""

    def __init__(self, settings: StoreSettings, max_messages: int, log_end: int, recent_bytes: int) -> None:
        self._settings, self._max_messages = settings, max_messages
        self._log_end, self._recent_bytes = log_end, recent_bytes
        self.count = 0
        self.bytes = 0

    def on_disk(self, physical_offset: int) -> bool:
        """So far behind the end of the log that it has probably left the page cache."""
        return self._log_end - physical_offset > self._recent_bytes

    def is_full(self, physical_offset: int, size: int) -> bool:
        if self.count == 0:
            return False
        if self.count >= self._max_messages:
            return True
        settings = self._settings
        if self.on_disk(physical_offset):
            return self.bytes + size > settings.fetch_bytes_max_disk or self.count >= settings.fetch_messages_max_disk
        return self.bytes + size > settings.fetch_bytes_max_memory or self.count >= settings.fetch_messages_max_memory

    def add(self, size: int) -> None:
        self.count += 1
        self.bytes += size


class Fetcher:
    """Fetches from the queues of one store."""

    def __init__(
        self, log: CommitLog, records: Records, settings: StoreSettings, life_begin: Callable[[str], int] = lambda _: 0
    ) -> None:
        """`life_begin` says where in the log a topic began again after its last deletion; asked for damaged entries."""
        self._log, self._records, self._settings = log, records, settings
        self.damaged = DamagedEntries(log, records, life_begin)
        self._recent_bytes = memory_bytes() * settings.memory_percent_max // 100

    def fetch(self, queue: ConsumeQueue | None, offset: int, max_messages: int, tags: str) -> FetchOutcome:
        """Messages of `queue` from `offset` on. A queue that never was behaves as an empty one."""
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if queue is None or high == 0:
            return FetchOutcome(FetchStatus.NO_MESSAGE_IN_QUEUE, [], self._corrected(offset, 0), low, high)
        if offset < low:
            return FetchOutcome(FetchStatus.OFFSET_TOO_SMALL, [], self._corrected(offset, low), low, high)
        if offset == high:
            return FetchOutcome(FetchStatus.OFFSET_OVERFLOW_ONE, [], offset, low, high)
        if offset > high:
            return FetchOutcome(FetchStatus.OFFSET_OVERFLOW_BADLY, [], self._corrected(offset, high), low, high)
        entries = queue.entries(offset, max(SCAN_BYTES_MIN, ENTRY_BYTES * max_messages) // ENTRY_BYTES)
        if len(entries) == 0:
            onward = self._corrected(offset, queue.roll_next_file(offset))
            return FetchOutcome(FetchStatus.OFFSET_FOUND_NULL, [], onward, low, high)
        return self._scan(queue, entries.tolist(), offset, max_messages, tag_texts(tags), low, high)

    def _corrected(self, asked: int, right: int) -> int:
        """Where to go on. A slave may be behind its master and, unless told to, corrects nobody."""
        settings = self._settings
        return right if settings.role is not BrokerRole.SLAVE or settings.check_offset_in_slave else asked

    def _scan(
        self,
        queue: ConsumeQueue,
        entries: list[tuple[int, int, int]],
        offset: int,
        max_messages: int,
        wanted: frozenset[str] | None,
        low: int,
        high: int,
    ) -> FetchOutcome:
        codes = None if wanted is None else {string_hash(tag) for tag in wanted}
        log_end = self._log.readable_offset
        budget = Budget(self._settings, max_messages, log_end, self._recent_bytes)
        status = FetchStatus.NO_MATCHED_MESSAGE
        messages: list[StoredMessage] = []
        skip_below = -1  # After a record that is gone, its whole segment is.
        looked_at = 0
        last_physical = 0
        for physical, size, tag_code in entries:
            is_skipped = 0 <= last_physical <= physical < skip_below  # An entry that is out of order is damaged.
            last_physical = physical
            if not is_skipped:
                # A damaged entry may claim any place and size: its message counts as a recent one without bytes.
                if budget.is_full(physical, size) and (
                    _is_possible(physical, size, log_end) or budget.is_full(log_end, 0)
                ):
                    break
                code = self._tag_code(queue, tag_code)
                may_match = codes is None or code is None or _low32(code) in codes
                if may_match or not _is_possible(physical, size, log_end):
                    message = self._message(queue, offset + looked_at, physical, size)
                    if message is None:
                        if not messages:
                            status = FetchStatus.MESSAGE_WAS_REMOVING
                        skip_below = self._next_segment(physical)
                    elif wanted is None or message.tags in wanted:
                        messages.append(message)
                        budget.add(message.size)
                        status = FetchStatus.FOUND
                        skip_below = -1
            looked_at += 1
        return FetchOutcome(
            status,
            messages,
            offset + looked_at,
            low,
            high,
            budget.bytes,
            budget.on_disk(last_physical),
            sum(-(-message.size // BILLING_BYTES) for message in messages),
        )

    def _tag_code(self, queue: ConsumeQueue, tag_code: int) -> int | None:
        """The tag code of an entry, or None if it is in an extension that is gone."""
        if queue.extension is None or not is_address(tag_code):
            return tag_code
        entry = queue.extension.find(tag_code)
        return None if entry is None else entry.tag_code

    def _next_segment(self, physical_offset: int) -> int:
        """Where the records after an unreadable one may be readable again."""
        if self._log.segments.find(physical_offset) is not None or not 0 <= physical_offset < self._log.readable_offset:
            return -1  # The segment is there, or never was: only this one record is bad, or its entry.
        size = self._log.segments.segment_bytes
        return physical_offset - physical_offset % size + size

    def _message(self, queue: ConsumeQueue, queue_offset: int, physical: int, size: int) -> StoredMessage | None:
        """The message of one queue entry, if its record is whole and says that it belongs there."""
        message = self._records.at(physical, size)
        if message is not None and (belongs(message, queue, queue_offset) or self._settings.multi_dispatch):
            return message  # With multi dispatch one record stands in several queues.
        if message is not None and fills_hole(message, queue, queue_offset):
            return None
        return self.damaged.record_of(queue, queue_offset, physical, size)


def _is_possible(physical: int, size: int, log_end: int) -> bool:
    """Could an entry lead to a record there? Otherwise it is damaged, and its tag code says nothing either."""
    return size > 0 and 0 <= physical <= log_end - size


def _low32(code: int) -> int:
    """The low 32 bits, signed: what a consumer compares."""
    return (code + (1 << 31)) % (1 << 32) - (1 << 31)
