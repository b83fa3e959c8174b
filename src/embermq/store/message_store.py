"""MessageStore: the public face of a store directory. It holds an engine (engine.py), whose parts do the work.

    append*    writer.py, then flush.py under SYNC_FLUSH
    fetch      fetch.py over consume_queue.py
    read_raw   raw_read.py, and fetch.py where something is not ordinary
    find       index_files.py, then records.py
    get, at    records.py

Every method may be called from any thread. `close` waits for what is under way, makes everything
durable and leaves a directory that RocketMQ opens as cleanly shut down.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.columns import resync
from embermq.errors import (
    AppendRefused,
    ReadRefused,
    ReplicaMissing,
    StoreClosed,
    StoreError,
    StorePathInvalid,
    StoreReadOnly,
    TopicNameInvalid,
    again,
)
from embermq.files import Files, RealFiles
from embermq.format.frame import BLANK_MAGIC
from embermq.model.hosts import Host
from embermq.model.ids import parse_message_id
from embermq.model.message import Message, MessageBatch, Receipt, StoredMessage
from embermq.model.status import PutStatus
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.append.flush import Waiter
from embermq.store.append.internal import InternalAppends
from embermq.store.append.message_columns import MessageColumns
from embermq.store.append.packed import PackedBatch, PackedReceipts
from embermq.store.append.writer import Refusal
from embermq.store.disk_errors import raises_store_errors
from embermq.store.engine import Engine
from embermq.store.futures import settle
from embermq.store.layout.destroying import destroy_files
from embermq.store.plugins import PluginFactory, chain, load_factories
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.extension import BitMapFor
from embermq.store.queues.fetch import FetchOutcome
from embermq.store.queues.filters import MessageFilter, as_filter
from embermq.store.queues.raw_read import RawRead
from embermq.store.recovery.opening import StoreParts, open_parts
from embermq.store.services.arrivals import ArrivalListener, StepListener
from embermq.store.services.retention import Cleaned, RetentionGuard
from embermq.store.services.scrub import ScrubReport
from embermq.store.services.scrub_state import ScrubState
from embermq.store.services.upkeep import TopicPuts, clean_expired_queues, clean_unused_topics, message_ids
from embermq.store.sink import Sink

Dispatch = Literal["live", "none"]

# How long a read waits for messages that were appended just before it to become visible.
CATCH_UP_SECONDS = 5.0
FOREVER_MS = 2**63 - 1
SINK_PARTS = ("name", "position", "take", "flush", "truncate_to", "close")


class StatsSnapshot(msgspec.Struct, frozen=True):
    """A store in figures."""

    topics: int
    queues: int
    min_physical: int  # bytes
    max_physical: int  # bytes
    flushed_offset: int  # bytes
    dispatch_behind_bytes: int
    put_count: int
    put_bytes: int
    put_failed: int
    segments: int
    index_files: int
    damages: int  # damaged stretches of the log: met by the opening, and found by readers since
    read_only: bool
    scrub: ScrubState | None = None  # None: opened read-only


class MessageStore:
    """A message store. Open one with `MessageStore.open`."""

    def __init__(self, engine: Engine) -> None:
        """Use `open`. `engine` is for this package: what others need of it is a method here."""
        self.engine = engine
        self.path, self.settings, self.recovery = engine.path, engine.settings, engine.parts.report
        # What every call needs, one step nearer.
        self._writer, self._log, self._queues, self._records = engine.writer, engine.log, engine.queues, engine.records
        self._sync, self._read_only = engine.sync, engine.read_only
        self._monotonic = engine.clock.monotonic

    # -- opening and closing -------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: StoreSettings | None = None,
        *,
        read_only: bool = False,
        clock: Clock | None = None,
        files: Files | None = None,
        dispatch: Dispatch = "live",
        sinks: Sequence[Sink] = (),
        plugins: Sequence[PluginFactory] = (),
        bit_map_for: BitMapFor | None = None,
        retention_guard: RetentionGuard | None = None,
    ) -> "MessageStore":
        """Open the store in directory `path`, making one if there is none.

        With `read_only` nothing is ever written there, not even a lock. `dispatch="none"` keeps the log
        alone, for something else to derive queues and index from it. `sinks` are fed with every record.
        `bit_map_for` gives the filter bits of a record for the queue extension (enableConsumeQueueExt).
        `retention_guard` is asked before an old log file is deleted, and may say "not yet" (False).
        """
        settings = settings if settings is not None else StoreSettings()
        _check_arguments(path, settings, dispatch, sinks)
        if settings.promises_replica and not read_only:
            raise ReplicaMissing(path)
        factories = [*plugins, *load_factories(settings.plugins)]
        parts = open_parts(
            Path(path).expanduser().absolute(),
            settings,
            files or RealFiles(),
            clock or SystemClock(),
            read_only=read_only,
            derive=dispatch == "live",
            bit_map_for=bit_map_for,
        )
        return _with_plugins(cls(_started(parts, sinks, retention_guard, delivers=True)), factories)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop taking messages, make everything durable, and leave the directory. Closing twice is fine.

        StoreError if something derived could not be made durable; the log is, and the next open derives it. Where a
        signal handler raises meanwhile, the threads still end and the lock is given back; another call does the rest.
        """
        self.engine.close()

    # -- appending -------------------------------------------------------------------------------------------

    def append(self, message: Message) -> Receipt:
        """Store one message. PUT_OK says: stored, and under SYNC_FLUSH safe from a power cut.

        MessageRejected if it can never be stored, AppendRefused if the store cannot take it now.
        """
        if self._read_only:
            raise StoreReadOnly(self.path)
        if not self._sync:
            return self._writer.append(message)[0]
        began = self._monotonic()
        receipt, wait = self._writer.append(message)
        return self.engine.confirm([receipt], wait, began)[0]

    def append_many(self, messages: Iterable[Message]) -> Sequence[Receipt]:
        """Store messages in order, with one wait for the disk. A rejected one stops all before anything is stored."""
        self._check_writable()
        listed = messages if isinstance(messages, list) else list(messages)
        if not listed:
            return []
        began = self._monotonic()
        receipts, wait = self._writer.append_many(listed)
        return self.engine.confirm(receipts, wait, began) if self._sync else receipts

    def append_batch(self, batch: MessageBatch) -> Receipt:
        """Store a batch: one topic and queue, side by side in one log file; refused as a whole if any part is bad."""
        self._check_writable()
        began = self._monotonic()
        receipt, wait = self._writer.append_batch(batch)
        return self.engine.confirm([receipt], wait, began)[0] if self._sync else receipt

    def append_packed(self, batch: PackedBatch) -> PackedReceipts:
        """Store messages that come as columns and bytes, without an object for each; does not wait for the disk.

        A row that cannot be stored is refused alone, in the receipts; an error says that nothing was stored.
        """
        self._check_writable()
        if not self._sync:
            return self._writer.append_packed(batch, None)
        began = self._monotonic()
        receipts = self._writer.append_packed(batch, self.engine.services.flusher)
        self.engine.services.flusher.nudge()  # It begins before anyone waits.
        self.engine.stats.record_put(self._monotonic() - began, len(receipts))
        return receipts

    def append_columns(
        self,
        topic: Any,
        bodies: Any,
        *,
        tags: Any = None,
        keys: Any = None,
        properties: Any = None,
        queue_id: Any = 0,
        born_timestamp: Any = None,
    ) -> Sequence[Receipt]:
        """Store messages that come as columns: lists, Arrow arrays, or one value for all of them.

        `properties` maps names to columns. As `append_many`: a rejected row stops all before anything is stored, and
        there is one wait for the disk; but no object is made for each message.
        """
        self._check_writable()
        columns = MessageColumns(topic, bodies, tags, keys, properties, queue_id, born_timestamp)
        if not self._sync:
            return self._writer.append_columns(columns, None)
        began = self._monotonic()
        receipts = self._writer.append_columns(columns, self.engine.services.flusher)
        self.engine.stats.record_put(self._monotonic() - began, len(receipts))
        return receipts

    def append_async(self, message: Message) -> "Future[Receipt]":
        """Store one message; the future is done when it is as durable as the settings promise."""
        self._check_writable()
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()  # What is stored cannot be called back.
        began = self._monotonic()
        receipt, wait = self._writer.append(message)
        if not (self._sync and wait):
            future.set_result(self.engine.confirm([receipt], wait, began)[0] if self._sync else receipt)
            return future

        def set_outcome(waiter: Waiter) -> None:
            self.engine.stats.record_put(self._monotonic() - began)
            if isinstance(waiter.failure, AppendRefused):
                future.set_exception(again(waiter.failure))
            elif waiter.failure is not None:
                future.set_result(msgspec.structs.replace(receipt, status=PutStatus.FLUSH_DISK_TIMEOUT))
            else:
                future.set_result(receipt)

        self.engine.services.flusher.when_durable(
            receipt.physical_offset + receipt.size, lambda waiter: settle(future, lambda: set_outcome(waiter))
        )
        return future

    @property
    def internal(self) -> InternalAppends:
        """Appends of a broker's own messages, to its system topics too; not to be handed to clients."""
        self._check_writable()
        return self.engine.internal

    @raises_store_errors
    def flush(self) -> int:
        """Make everything appended so far durable, whatever the settings; the flushed offset."""
        self._check_writable()
        return self.engine.flush_log()

    def _check_open(self) -> None:
        if self.engine.closed:
            raise StoreClosed(self.path, self.engine.closed_why)

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise StoreReadOnly(self.path)

    # -- reading by queue ------------------------------------------------------------------------------------

    @raises_store_errors
    def fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        tags: str | MessageFilter | None = "*",
        *,
        wait: bool = True,
    ) -> FetchOutcome:
        """Messages of one queue from `offset` on; `tags` is a subscription such as `paid || sent`, or a filter; None
        means all. Without `wait`, what was appended just before may not be seen yet."""
        self._check_read(topic, max_messages)
        began = time.perf_counter()
        queue = self._queue_to_read(topic, queue_id, offset + max_messages if wait else None)
        outcome = self.engine.fetcher.fetch(queue, offset, max_messages, as_filter(tags))
        self.engine.stats.record_fetch(len(outcome.messages), time.perf_counter() - began)
        return outcome

    @raises_store_errors
    def read_raw(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        filter: str | MessageFilter | None = None,
        *,
        wait: bool = False,
    ) -> RawRead:
        """As fetch, but the stored bytes of the records in one buffer: nothing is decoded.

        `max_bytes` lowers the limits of the settings (maxTransferBytesOnMessageInMemory and the like); one message is
        answered however large. With `wait`, what was appended before this call is seen.
        """
        self._check_read(topic, max_messages)
        began = time.perf_counter()
        queue = self._queue_to_read(topic, queue_id, offset + max_messages if wait else None)
        read = self.engine.raw_reader.read(queue, offset, max_messages, max_bytes, as_filter(filter))
        self.engine.stats.record_fetch(read.count, time.perf_counter() - began)
        return read

    def _check_read(self, topic: str, max_messages: int) -> None:
        self._check_readable()
        _check_name(topic)
        if max_messages < 0:
            raise StoreError(f"max_messages {max_messages} is negative; at least one message is answered even for 0")

    def _queue_to_read(self, topic: str, queue_id: int, wait_for: int | None) -> ConsumeQueue | None:
        """The queue; with `wait_for`, the dispatcher is waited for unless the queue has come to that offset."""
        queue = self._find_queue(topic, queue_id)
        if wait_for is not None and (queue is None or queue.max_offset < wait_for):
            self._catch_up()
            queue = self._find_queue(topic, queue_id)
        return queue

    def _find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id) if self._queues is not None else None

    def _seen_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue with everything that was appended before this call."""
        self._check_open()
        _check_name(topic)
        self._catch_up()
        return self._find_queue(topic, queue_id)

    def _catch_up(self) -> None:
        """Let the dispatcher reach what is readable now: the appender wants to see it."""
        end = self.engine.dispatch_end()
        if not self._read_only and self.engine.dispatcher.position < end:
            self.engine.dispatcher.wait_for(end, CATCH_UP_SECONDS)

    @raises_store_errors
    def min_offset(self, topic: str, queue_id: int) -> int:
        """The oldest queue offset that can be read; 0 for a queue that never was."""
        queue = self._seen_queue(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    @raises_store_errors
    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message; 0 for a queue that never was."""
        queue = self._seen_queue(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    @raises_store_errors
    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset nearest to a store time, by RocketMQ's rules; 0 for an empty queue."""
        queue = self._seen_queue(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_at(timestamp_ms, self._records.store_time, self._log.min_offset)

    @raises_store_errors
    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where in the log a message of a queue lies; 0 if there is none."""
        queue = self._seen_queue(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return entry[0] if entry is not None else 0

    @raises_store_errors
    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message of a queue was stored, in milliseconds; -1 if there is none."""
        queue = self._seen_queue(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return self._records.store_time(entry[0], entry[1]) if entry is not None else -1

    @raises_store_errors
    def earliest_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """When the oldest message still here was stored (of a queue, or of the whole log); -1 if there is none."""
        if topic is not None:
            queue = self._seen_queue(topic, queue_id or 0)
            return self.store_time(topic, queue_id or 0, queue.min_offset) if queue is not None else -1
        self._check_open()
        first = self._records.frame_at(self._log.min_offset)
        return first.store_timestamp if first is not None else -1

    @raises_store_errors
    def message_count(self, topic: str, queue_id: int) -> int:
        """How many messages of a queue can be read."""
        queue = self._seen_queue(topic, queue_id)
        return queue.max_offset - queue.min_offset if queue is not None else 0

    @raises_store_errors
    def topics(self) -> dict[str, list[int]]:
        """Every topic with the ids of its queues."""
        self._check_open()
        self._catch_up()
        return self._queues.topics() if self._queues is not None else {}

    # -- reading by key, id, place -----------------------------------------------------------------------------

    @raises_store_errors
    def find(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None
    ) -> list[StoredMessage]:
        """Messages with this key (one of KEYS, or the unique key), oldest first; with `limit`, the newest ones.

        The time range is inclusive and exact; hash collisions are sorted out by comparing the text.
        """
        end_ms = FOREVER_MS if end_ms is None else end_ms
        # Not asked for times: the index keeps them in seconds that count from the last record of the file before, and
        # a clock that was set back makes it end too early. Records know theirs.
        offsets = self.index_offsets(topic, key)
        found: dict[int, StoredMessage] = {}
        for physical_offset in offsets:
            if limit is not None and len(found) >= limit:
                break
            message = self._records.at(physical_offset)
            if message is None or message.topic != topic or not begin_ms <= message.store_timestamp <= end_ms:
                continue
            if key == message.unique_key or key in message.keys:
                found[physical_offset] = message
        return [found[physical_offset] for physical_offset in sorted(found)]

    @raises_store_errors
    def index_offsets(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None
    ) -> list[int]:
        """What the index says about a key, newest first, collisions of its hash included."""
        self._check_readable()
        _check_name(topic)
        if self.engine.index is None:
            raise StoreError("this store keeps no index (messageIndexEnable=false or dispatch=none): no look-up by key")
        self._catch_up()
        end_ms = FOREVER_MS if end_ms is None else end_ms
        offsets = self.engine.index.query(topic, key, limit, begin_ms, end_ms)
        log_end = self._log.readable_offset
        return [offset for offset in offsets if offset < log_end]  # A reader may find index files ahead of a cut log.

    def get(self, message_id: str) -> StoredMessage | None:
        """The message with this id, or None if it is not (any more) in this store."""
        parsed = parse_message_id(message_id)
        message = self.at(parsed.physical_offset) if parsed.physical_offset >= 0 else None
        return message if message is not None and message.store_host == parsed.store_host else None

    @raises_store_errors
    def at(self, physical_offset: int) -> StoredMessage | None:
        """The message that starts at this place of the log, or None if none does."""
        self._check_readable()
        if physical_offset < 0:
            raise StoreError(f"physical offset {physical_offset} is negative; the log begins at {self.min_physical}")
        return self._records.at(physical_offset) if physical_offset < self.engine.visible_end() else None

    @raises_store_errors
    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        """Bytes of the log from a place on, as they are stored, for a copy of it (replication).

        Never past the end of a log file, nor past what a crash cannot take back (under SYNC_FLUSH what is flushed,
        else what is readable): empty at that end. A piece may end inside a record, and may hold the filler at the end
        of a file; pieces joined give the log byte for byte. StoreError if that place is in no log file.
        """
        self._check_open()
        if max_bytes <= 0:
            raise StoreError(f"max_bytes {max_bytes}: at least one byte has to be asked for")
        end = self.engine.visible_end()
        if physical_offset > end:
            raise StoreError(f"physical offset {physical_offset} is past the end of the log, {end}")
        data = self._log.read(physical_offset, min(max_bytes, end - physical_offset)) if physical_offset >= 0 else b""
        if not data and physical_offset < end:
            raise StoreError(
                f"physical offset {physical_offset} is in no log file; the log begins at {self.min_physical}"
            )
        return data

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[StoredMessage]:
        """Every record between two physical offsets in log order, prepared and rolled-back ones too.

        `start` must be where a record begins; the default is the whole log.
        """
        self._check_open()
        at = self._log.min_offset if start is None else start
        limit = self.engine.visible_end() if end is None else min(end, self.engine.visible_end())
        while at < limit:
            self._check_open()  # It may be closed between two steps of the reader.
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
        with self._log.lend(at, limit) as lent:
            if lent is not None and int.from_bytes(self._log.read(at + 4, 4), "big", signed=True) != BLANK_MAGIC:
                good = resync(lent.data, lent.base, lent.start + 1, lent.end)
                if good >= 0:
                    return lent.base + good
        return self._log.next_segment_start(at)

    # -- the store itself --------------------------------------------------------------------------------------

    def on_arrival(self, listener: ArrivalListener) -> Callable[[], None]:
        """Call `listener` for each message that becomes visible; the answer ends it again."""
        self._check_open()
        return self.engine.arrivals.listen(listener)

    def on_arrival_step(self, listener: StepListener) -> Callable[[], None]:
        """Call `listener` once for each step of the dispatcher, with what it made visible as arrays: which queues
        moved, how far, tag codes and store times; the answer ends it again."""
        self._check_open()
        return self.engine.arrivals.listen_to_steps(listener)

    def hurry_dispatch(self) -> Callable[[], None]:
        """Make what is appended visible at once, without the pauses (2 ms) that gather more for one step: for as long
        as a reader waits for messages. The answer ends it again."""
        self._check_open()
        return self.engine.dispatcher.hurry()

    # -- replicas ----------------------------------------------------------------------------------------------

    @property
    def role(self) -> BrokerRole:
        """What this store is in a replicated group now."""
        return self.engine.role

    @raises_store_errors
    def set_role(self, role: BrokerRole) -> None:
        """Become a master or a slave; StoreError if that cannot be done now."""
        self._check_writable()
        self.engine.services.roles.change(role)

    @raises_store_errors
    def append_raw(self, physical_offset: int, data: bytes) -> int:
        """On a slave: store the master's log bytes from `physical_offset` on; where the next ones must begin.

        They may begin and end inside records. RawBytesInvalid, and nothing stored, if they do not continue this log.
        """
        self._check_writable()
        return self.engine.services.raw.append(physical_offset, data)

    @raises_store_errors
    def drop_unfinished_raw(self) -> int:
        """Forget a record of which only the beginning has come; where the log ends, and bytes must go on."""
        self._check_writable()
        return self.engine.services.raw.drop_unfinished()

    @property
    def confirm_offset(self) -> int:
        """Queues, index and arrivals follow the log up to here; -1: as far as it goes."""
        return self.engine.confirm_offset

    def set_confirm_offset(self, physical_offset: int) -> None:
        """Let queues, index and arrivals not pass this place of the log; -1: no such place."""
        self._check_writable()
        self.engine.confirm_offset = physical_offset
        self.engine.dispatcher.wake()

    def set_writable(self, writable: bool) -> None:
        """Refuse appends (SERVICE_NOT_AVAILABLE) until they are switched on again."""
        self._check_writable()
        reason = None if writable else AppendRefused("appends are switched off: set_writable(True) switches them on")
        self._writer.refuse_while(Refusal.NOT_WRITABLE, reason)

    def set_readable(self, readable: bool) -> None:
        """Refuse fetches and look-ups (ReadRefused) until they are switched on again."""
        self._check_open()
        self.engine.is_readable = readable

    @property
    def is_writable(self) -> bool:
        """Whether appends are taken now."""
        return not (self.engine.closed or self._read_only) and self._writer.refusal is None

    @property
    def is_readable(self) -> bool:
        """Whether fetches and look-ups are answered now."""
        return self.engine.is_readable and not self.engine.closed

    def _check_readable(self) -> None:
        self._check_open()
        if not self.engine.is_readable:
            raise ReadRefused("reads are switched off: set_readable(True) switches them on")

    @property
    def closed(self) -> bool:
        return self.engine.closed

    @property
    def min_physical(self) -> int:
        """Where the log begins, in bytes."""
        return self._log.min_offset

    @property
    def max_physical(self) -> int:
        """Where the readable log ends, in bytes."""
        return self._log.readable_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable."""
        return self._log.flushed_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """How much of the log has not reached queues and index yet."""
        return self.engine.dispatcher.behind_bytes

    def wait_for_dispatch(self, timeout_seconds: float = 60.0) -> bool:
        """Block until queues and index have everything that is readable now."""
        self._check_open()
        return self._read_only or self.engine.dispatcher.wait_for(self.engine.dispatch_end(), timeout_seconds)

    @raises_store_errors
    def delete_expired(self, *, before_ms: int | None = None) -> Cleaned:
        """Delete log files that are older than fileReservedTime now, whatever the hour, and what was derived from them.

        With `before_ms`: instead of those, files all of whose messages were stored before that time. The newest
        file always stays, and so does what is still needed: `held_by` says by whom.
        """
        self._check_writable()
        self.engine.check_fence()
        return self.engine.services.retention.delete_expired(before_ms)

    @raises_store_errors
    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; how many there were. Its next message is number 0 of its queue again.

        Its messages stay in the log, where `scan`, `get` and `find` see them, until their files expire. Other
        threads may go on appending to it: each message belongs to the old topic or to the new one.
        """
        self._check_writable()
        self.engine.check_fence()
        _check_name(topic)
        deletion = self.engine.services.topic_deletion
        if deletion is None:
            raise StoreError("this store keeps no queues (dispatch=none): there is no topic to delete")
        return deletion.delete(topic)

    # -- upkeep ------------------------------------------------------------------------------------------------

    @raises_store_errors
    def clean_unused_topics(self, live: Collection[str]) -> list[str]:
        """Delete every topic that is not `live`, as `delete_topic` does; which ones. The store's own topics stay."""
        self._check_writable()
        self.engine.check_fence()
        self._catch_up()
        deletion = self.engine.services.topic_deletion
        return [] if self._queues is None or deletion is None else clean_unused_topics(self._queues, deletion, live)

    @raises_store_errors
    def clean_expired_queues(self) -> list[tuple[str, int]]:
        """Remove the files of queues whose messages have all left the log; which ones. They keep their numbers."""
        self._check_writable()
        self.engine.check_fence()
        if self._queues is None:
            return []
        make_durable = self.engine.services.housekeeping.make_durable
        return clean_expired_queues(self.path, self.engine.parts.files, self._log, self._queues, make_durable)

    @raises_store_errors
    def message_ids(self, topic: str, queue_id: int, start: int, end: int) -> dict[str, int]:
        """The ids of the messages start..end of a queue, as this store gives them, each with its queue offset."""
        queue = self._seen_queue(topic, queue_id)
        return {} if queue is None else message_ids(queue, start, end, Host(*self.settings.store_host))

    @raises_store_errors
    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message has probably left memory (accessMessageInMemoryMaxRatio); False if there is none."""
        queue = self._seen_queue(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return entry is not None and self.engine.fetcher.is_on_disk(entry[0])

    @property
    def is_transient_pool_deficient(self) -> bool:
        """Whether log files have private buffers (transientStorePoolEnable), and none is free for the next one."""
        return not self._read_only and self.engine.services.allocator.lacks_buffers

    @raises_store_errors
    def put_totals(self) -> dict[str, TopicPuts]:
        """Messages and record bytes of each topic since the store was opened, as far as queues have them."""
        self._check_open()
        self._catch_up()
        return {} if self.engine.put_totals is None else self.engine.put_totals.read()

    def running_data_info(self) -> str:
        """`runtime_info` as text, one line each."""
        return "\n".join(f"{name}: {value}" for name, value in sorted(self.runtime_info().items()))

    @raises_store_errors
    def destroy(self) -> list[Path]:
        """Close the store and remove its log, queues, index and state files; what was left because it is not ours.

        config/ and quarantine/ stay. Nothing brings the messages back.
        """
        self._check_writable()
        directories = list(self._log.segments.directories)
        self.close()
        return destroy_files(self.engine.parts.files, self.path, directories)

    @raises_store_errors
    def stats(self) -> StatsSnapshot:
        """The store in figures."""
        self._check_open()
        put = self._writer.counters
        queues = self._queues.all() if self._queues is not None else []
        return StatsSnapshot(
            topics=len({queue.topic for queue in queues}),
            queues=len(queues),
            min_physical=self.min_physical,
            max_physical=self.max_physical,
            flushed_offset=self.flushed_offset,
            dispatch_behind_bytes=self.dispatch_behind_bytes,
            put_count=put.count,
            put_bytes=put.bytes,
            put_failed=put.failed,
            segments=len(self._log.segments),
            index_files=self.engine.index.count if self.engine.index is not None else 0,
            damages=len(self.recovery.damages) + self.engine.fetcher.damaged.stretches.found,
            read_only=self._read_only,
            scrub=None if self._read_only else self.engine.services.scrub.state,
        )

    @raises_store_errors
    def scrub(self) -> ScrubReport:
        """Compare the whole log with queues and index now, and mend what is derived; on this thread, while the store
        goes on. Damage in the log is copied to the quarantine and reported; the bytes stay where they are."""
        self._check_writable()
        self._catch_up()
        return self.engine.services.scrub.run_round()

    @raises_store_errors
    def runtime_info(self) -> dict[str, str]:
        """Statistics and positions under RocketMQ's names, all as text."""
        self._check_open()
        info = self.engine.stats.runtime_info()
        ratios = {path: self.engine.parts.files.usage(path).used_ratio for path in self._log.segments.directories}
        info["commitLogDiskRatio"] = str(min(ratios.values()))
        info |= {f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()}
        info["consumeQueueDiskRatio"] = str(self.engine.parts.files.usage(self.path).used_ratio)
        info["commitLogMinOffset"] = str(self.min_physical)
        info["commitLogMaxOffset"] = str(self.max_physical)
        info["dispatchBehindBytes"] = str(self.dispatch_behind_bytes)
        info["pageCacheLockTimeMills"] = str(self._writer.held_ms)
        info["earliestMessageTimeStamp"] = str(self.earliest_time())
        info["remainHowManyDataToFlush"] = str(max(0, self._log.readable_offset - self._log.flushed_offset))
        if not self._read_only:
            info |= self.engine.services.scrub.runtime_info()
            if self.engine.services.delayed is not None:
                info |= self.engine.services.delayed.runtime_info()
        return info


def _started(
    parts: StoreParts, sinks: Sequence[Sink], retention_guard: RetentionGuard | None, *, delivers: bool
) -> Engine:
    try:
        engine = Engine(parts, sinks, retention_guard, delivers=delivers)
    except BaseException:
        parts.close()
        raise
    engine.start()
    return engine


def _with_plugins(store: MessageStore, factories: Sequence[PluginFactory]) -> MessageStore:
    try:
        chained: MessageStore = chain(store, factories)
    except BaseException:
        store.close()
        raise
    return chained


def open_for_maintenance(
    path: str | Path,
    settings: StoreSettings,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    retention_guard: RetentionGuard | None = None,
) -> MessageStore:
    """A store opened to do one thing to it (clean, drop, load), and not to run: nothing is delivered meanwhile.

    What is parked still holds its log file, as in a running store. With `emberDelayedDelivery=false` it would not: that
    is for a store that never delivers. The next opening delivers what is due then.
    """
    _check_arguments(path, settings, "live", ())
    if settings.promises_replica:
        raise ReplicaMissing(path)
    factories = load_factories(settings.plugins)
    parts = open_parts(
        Path(path).expanduser().absolute(),
        settings,
        files or RealFiles(),
        clock or SystemClock(),
        read_only=False,
        derive=True,
        bit_map_for=None,
    )
    return _with_plugins(MessageStore(_started(parts, (), retention_guard, delivers=False)), factories)


def _check_name(topic: Any) -> None:
    if not isinstance(topic, str) or not topic:
        raise TopicNameInvalid(topic, "a topic name is a text of 1 to 127 characters")


def _check_arguments(path: Any, settings: Any, dispatch: Any, sinks: Any) -> None:
    """StoreError for what cannot be meant, before anything is touched."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise StorePathInvalid(repr(path), "a path is expected")
    if not isinstance(settings, StoreSettings):
        raise StoreError(f"settings {settings!r}: StoreSettings are expected; see StoreSettings.from_properties")
    if dispatch not in ("live", "none"):
        raise StoreError(f"dispatch {dispatch!r}: 'live' or 'none' is expected")
    if not isinstance(sinks, Sequence):
        raise StoreError(f"sinks {sinks!r}: a list of sinks is expected")
    for sink in sinks:
        lacking = [name for name in SINK_PARTS if not hasattr(sink, name)]
        if lacking:
            raise StoreError(f"{sink!r} is no sink: it has no {', '.join(lacking)}")
