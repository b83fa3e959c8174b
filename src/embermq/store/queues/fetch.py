"""Fetch: messages of one queue from an offset on, with every outcome of RocketMQ.

    offset below the queue's minimum   OFFSET_TOO_SMALL        go on at the minimum
    offset = maximum                   OFFSET_OVERFLOW_ONE     nothing new yet
    offset above the maximum           OFFSET_OVERFLOW_BADLY   go on at the maximum
    entries there, none readable       OFFSET_FOUND_NULL       go on in the next queue file
    entries, none passes the filter    NO_MATCHED_MESSAGE      go on after what was looked at
    their records are being deleted    MESSAGE_WAS_REMOVING    likewise
    otherwise                          FOUND

A queue entry is believed only as far as its record agrees: topic, queue and queue offset must be its own.
Filters are asked about entries first, and then about the records of those that are left (filters.py).
`pick` states the rules, one entry after another; raw_read.py takes a short way with entries that are ordinary.
Any thread.
"""

import os
from collections.abc import Callable

import msgspec

from embermq.format.frame_message import as_message
from embermq.model.message import StoredMessage
from embermq.model.status import FetchStatus
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.records import Record, Records
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.damaged_entries import DamagedEntries, belongs, fills_hole
from embermq.store.queues.entry_matches import EntryMatches
from embermq.store.queues.filters import MessageFilter

ENTRY_BYTES = 20
# At least this many bytes of entries are looked through in one call, however few messages are wanted.
SCAN_BYTES_MIN = 16_000
BILLING_BYTES = 65_536
_MEMORY_BYTES_FALLBACK = 24 << 30


class Picked(msgspec.Struct, frozen=True):
    """The records of a read, and where it should go on."""

    status: FetchStatus
    records: list[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    bytes_total: int = 0
    suggest_slave: bool = False


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


class ReadLimits(msgspec.Struct, frozen=True):
    """How much one read may carry; less of what it has to fetch from the disk. At least one message always fits."""

    count_recent: int
    bytes_recent: int
    count_old: int
    bytes_old: int
    recent_from: int  # Records below are so far behind the end of the log that they have probably left the page cache.

    def is_recent(self, physical_offset: int) -> bool:
        return physical_offset >= self.recent_from

    def is_full(self, count: int, bytes_total: int, physical_offset: int, size: int) -> bool:
        """With so much in hand already: is this record one too many?"""
        if count == 0:
            return False
        if self.is_recent(physical_offset):
            return count >= self.count_recent or bytes_total + size > self.bytes_recent
        return count >= self.count_old or bytes_total + size > self.bytes_old


class Fetcher:
    """Fetches from the queues of one store."""

    def __init__(
        self,
        log: CommitLog,
        records: Records,
        settings: StoreSettings,
        life_begin: Callable[[str], int] = lambda _: 0,
        role: Callable[[], BrokerRole] | None = None,
    ) -> None:
        """`life_begin` says where in the log a topic began again after its last deletion; asked for damaged entries.
        `role`: what the store is now, if that may change."""
        self._log, self._records, self._settings = log, records, settings
        self._role = role or (lambda: settings.role)
        self.damaged = DamagedEntries(log, records, life_begin)
        self._recent_bytes = memory_bytes() * settings.memory_percent_max // 100

    def fetch(
        self, queue: ConsumeQueue | None, offset: int, max_messages: int, wanted: MessageFilter | None
    ) -> FetchOutcome:
        """Messages of `queue` from `offset` on. A queue that never was behaves as an empty one."""
        limits = self.limits(max_messages, None)
        picked = self.pick(queue, offset, max_messages, limits, wanted)
        messages = [as_message(record.frame) for record in picked.records]
        return FetchOutcome(
            picked.status,
            messages,
            picked.next_offset,
            picked.min_offset,
            picked.max_offset,
            picked.bytes_total,
            picked.suggest_slave,
            sum(-(-message.size // BILLING_BYTES) for message in messages),
        )

    def limits(self, max_messages: int, max_bytes: int | None, *, is_bulk: bool = False) -> ReadLimits:
        """What one read may carry by the settings, and by what its caller asks for; by that alone if it is a bulk."""
        settings = self._settings
        recent_from = self._log.readable_offset - self._recent_bytes
        if is_bulk and max_bytes is not None:
            return ReadLimits(max_messages, max_bytes, max_messages, max_bytes, recent_from)
        bytes_recent, bytes_old = settings.fetch_bytes_max_memory, settings.fetch_bytes_max_disk
        if max_bytes is not None:
            bytes_recent, bytes_old = min(max_bytes, bytes_recent), min(max_bytes, bytes_old)
        count_recent = min(max_messages, settings.fetch_messages_max_memory)
        count_old = min(max_messages, settings.fetch_messages_max_disk)
        return ReadLimits(count_recent, bytes_recent, count_old, bytes_old, recent_from)

    def is_on_disk(self, physical_offset: int) -> bool:
        """So far behind the end of the log that a record has probably left the page cache."""
        return self._log.readable_offset - physical_offset > self._recent_bytes

    def nothing_at(self, queue: ConsumeQueue | None, offset: int) -> Picked | None:
        """The answer, if there are no entries at `offset`."""
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if queue is None or high == 0:
            return Picked(FetchStatus.NO_MESSAGE_IN_QUEUE, [], self._corrected(offset, 0), low, high)
        if offset < low:
            return Picked(FetchStatus.OFFSET_TOO_SMALL, [], self._corrected(offset, low), low, high)
        if offset == high:
            return Picked(FetchStatus.OFFSET_OVERFLOW_ONE, [], offset, low, high)
        if offset > high:
            return Picked(FetchStatus.OFFSET_OVERFLOW_BADLY, [], self._corrected(offset, high), low, high)
        return None

    def _corrected(self, asked: int, right: int) -> int:
        """Where to go on. A slave may be behind its master and, unless the settings say so, corrects nothing."""
        settings = self._settings
        return right if self._role() is not BrokerRole.SLAVE or settings.check_offset_in_slave else asked

    def pick(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_messages: int,
        limits: ReadLimits,
        wanted: MessageFilter | None,
    ) -> Picked:
        """The records of `queue` from `offset` on that a reader is to be given."""
        nothing = self.nothing_at(queue, offset)
        if nothing is not None:
            return nothing
        assert queue is not None
        low, high = queue.min_offset, queue.max_offset
        entries = queue.entries(offset, entries_max(max_messages))
        if len(entries) == 0:
            onward = self._corrected(offset, queue.roll_next_file(offset))
            return Picked(FetchStatus.OFFSET_FOUND_NULL, [], onward, low, high)
        matches = EntryMatches(queue, entries, wanted)
        log_end = self._log.readable_offset
        status = FetchStatus.NO_MATCHED_MESSAGE
        found: list[Record] = []
        bytes_total = 0
        skip_below = -1  # After a record that is gone, its whole segment is.
        looked_at = 0
        last_physical = 0
        for physical, size, _ in entries.tolist():
            is_skipped = 0 <= last_physical <= physical < skip_below  # An entry that is out of order is damaged.
            last_physical = physical
            if not is_skipped:
                is_possible = size > 0 and 0 <= physical <= log_end - size  # Otherwise the entry is damaged,
                if limits.is_full(len(found), bytes_total, physical, size) and (
                    # and its message counts as a recent one without bytes.
                    is_possible or limits.is_full(len(found), bytes_total, log_end, 0)
                ):
                    break
                if not is_possible or matches.may_match(looked_at):
                    record = self._record(queue, offset + looked_at, physical, size)
                    if record is None:
                        if not found:
                            status = FetchStatus.MESSAGE_WAS_REMOVING
                        skip_below = self._next_segment(physical)
                    elif wanted is None or wanted.matches_record(record.frame.properties):
                        found.append(record)
                        bytes_total += record.frame.size
                        status = FetchStatus.FOUND
                        skip_below = -1
            looked_at += 1
        suggest_slave = not limits.is_recent(last_physical)
        return Picked(status, found, offset + looked_at, low, high, bytes_total, suggest_slave)

    def _next_segment(self, physical_offset: int) -> int:
        """Where the records after an unreadable one may be readable again."""
        if self._log.segments.find(physical_offset) is not None or not 0 <= physical_offset < self._log.readable_offset:
            return -1  # The segment is there, or never was: only this one record is bad, or its entry.
        size = self._log.segments.segment_bytes
        return physical_offset - physical_offset % size + size

    def _record(self, queue: ConsumeQueue, queue_offset: int, physical: int, size: int) -> Record | None:
        """The record of one queue entry, if it is whole and says that it belongs there."""
        record = self._records.record_at(physical, size)
        if record is not None and (belongs(record.frame, queue, queue_offset) or self._settings.multi_dispatch):
            return record  # With multi dispatch one record stands in several queues.
        if record is not None and fills_hole(record.frame, queue, queue_offset):
            return None
        return self.damaged.record_of(queue, queue_offset, physical, size)


def entries_max(max_messages: int) -> int:
    """How many entries one read looks through at most."""
    return max(SCAN_BYTES_MIN, ENTRY_BYTES * max_messages) // ENTRY_BYTES
