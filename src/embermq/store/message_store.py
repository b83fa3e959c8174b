"""MessageStore: the public face of a store directory. It holds an engine (engine.py), whose parts do the work.

    append, append_many       here, because every step counts: writer.py, then flush.py under SYNC_FLUSH
    other appends             calls/appends.py
    by topic and queue        calls/queue_reads.py, over fetch.py and raw_read.py
    by key, id, place         calls/log_reads.py, over index_files.py and records.py
    deleting, cleaning        calls/upkeep.py
    statistics                calls/figures.py
    opening                   starting.py

Every method may be called from any thread. `close` waits for what is under way, makes everything
durable and leaves a directory that RocketMQ opens as cleanly shut down.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embermq.clock import Clock
from embermq.errors import AppendRefused, StoreReadOnly
from embermq.files import Files
from embermq.model.message import Message, MessageBatch, Receipt, StoredMessage
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.access import RunningFlag
from embermq.store.append.internal import InternalAppends
from embermq.store.append.message_columns import MessageColumns
from embermq.store.append.packed import PackedBatch, PackedReceipts
from embermq.store.append.put_lock import Refusal
from embermq.store.calls import Appends, LogReads, QueueReads, StatsSnapshot, StoreFigures, Upkeep
from embermq.store.disk_errors import raises_store_errors
from embermq.store.engine import Engine
from embermq.store.plugins import PluginFactory, chain, load_factories
from embermq.store.queues.extension import BitMapFor
from embermq.store.queues.fetch import FetchOutcome
from embermq.store.queues.filters import MessageFilter
from embermq.store.queues.raw_read import RawRead
from embermq.store.services.arrivals import ArrivalListener, StepListener
from embermq.store.services.retention import Cleaned, RetentionGuard
from embermq.store.services.scrub import ScrubReport
from embermq.store.services.upkeep import TopicPuts
from embermq.store.sink import Sink
from embermq.store.starting import Dispatch, Opening, check_arguments, start_engine


class MessageStore:
    """A message store. Open one with `MessageStore.open`."""

    def __init__(self, engine: Engine) -> None:
        """Use `open`. `engine` is for this package: what others need of it is a method here."""
        self.engine = engine
        self.path, self.settings, self.recovery = engine.path, engine.settings, engine.parts.report
        self._access, self._log = engine.access, engine.log
        self._appends, self._upkeep, self._figures = Appends(engine), Upkeep(engine), StoreFigures(engine)
        self._by_queue, self._by_place = QueueReads(engine), LogReads(engine)
        # What an append needs, one step nearer.
        self._writer, self._sync, self._read_only = engine.writer, engine.sync, engine.read_only
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
        replicated: bool = False,
    ) -> "MessageStore":
        """Open the store in directory `path`, making one if there is none.

        With `read_only` nothing is ever written there, not even a lock. `dispatch="none"` keeps the log
        alone, for something else to derive queues and index from it. `sinks` are fed with every record.
        `bit_map_for` gives the filter bits of a record for the queue extension (enableConsumeQueueExt).
        `retention_guard` is asked before an old log file is deleted, and may say "not yet" (False).
        `replicated`: the caller sends the log to slaves (`read_log`) and waits for them where the role is SYNC_MASTER;
        `append` itself never does.
        """
        opening = Opening(
            read_only=read_only,
            clock=clock,
            files=files,
            dispatch=dispatch,
            sinks=sinks,
            bit_map_for=bit_map_for,
            retention_guard=retention_guard,
            replicated=replicated,
        )
        return _opened(cls, path, settings if settings is not None else StoreSettings(), plugins, opening)

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
        self._access.check_writable()
        listed = messages if isinstance(messages, list) else list(messages)
        if not listed:
            return []
        began = self._monotonic()
        receipts, wait = self._writer.append_many(listed)
        return self.engine.confirm(receipts, wait, began) if self._sync else receipts

    def append_batch(self, batch: MessageBatch) -> Receipt:
        """Store a batch: one topic and queue, side by side in one log file; refused as a whole if any part is bad."""
        return self._appends.append_batch(batch)

    def append_packed(self, batch: PackedBatch) -> PackedReceipts:
        """Store messages that come as columns and bytes, without an object for each; does not wait for the disk.

        A row that cannot be stored is refused alone, in the receipts; an error says that nothing was stored.
        """
        return self._appends.append_packed(batch)

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
        columns = MessageColumns(topic, bodies, tags, keys, properties, queue_id, born_timestamp)
        return self._appends.append_columns(columns)

    def append_unconfirmed(self, message: Message | MessageBatch) -> tuple[Receipt, int]:
        """Store one message or batch without waiting for the disk: its receipt, and the log position that must be
        durable (`when_durable`) before its sender may be answered with PUT_OK; 0 if that may be done at once. Where
        `promises_replica`, it must be replicated as well."""
        return self._appends.append_unconfirmed(message)

    def when_durable(self, end: int, callback: Callable[[AppendRefused | TimeoutError | None], None]) -> None:
        """Call back when everything below `end` is durable (None), when that cannot be any more (AppendRefused), or
        when it takes longer than syncFlushTimeout (TimeoutError). On another thread, or at once on this one."""
        self._appends.when_durable(end, callback)

    def append_async(self, message: Message) -> "Future[Receipt]":
        """Store one message; the future is done when it is as durable as the settings promise."""
        return self._appends.append_async(message)

    @property
    def internal(self) -> InternalAppends:
        """Appends of a broker's own messages, to its system topics too; not to be handed to clients."""
        self._access.check_writable()
        return self.engine.internal

    @raises_store_errors
    def flush(self) -> int:
        """Make everything appended so far durable, whatever the settings; the flushed offset."""
        self._access.check_writable()
        return self.engine.flush_log()

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
        return self._by_queue.fetch(topic, queue_id, offset, max_messages, tags, wait)

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
        is_bulk: bool = False,
    ) -> RawRead:
        """As fetch, but the stored bytes of the records in one buffer: nothing is decoded.

        `max_bytes` lowers the limits of the settings (maxTransferBytesOnMessageInMemory and the like); one message is
        answered however large. With `wait`, what was appended before this call is seen. With `is_bulk`, `max_messages`
        and `max_bytes` stand in place of those limits.
        """
        assert max_bytes is not None or not is_bulk
        return self._by_queue.read_raw(topic, queue_id, offset, max_messages, max_bytes, filter, wait, is_bulk)

    @raises_store_errors
    def min_offset(self, topic: str, queue_id: int, *, wait: bool = True) -> int:
        """The oldest queue offset that can be read; 0 for a queue that never was."""
        return self._by_queue.min_offset(topic, queue_id, wait)

    @raises_store_errors
    def max_offset(self, topic: str, queue_id: int, *, wait: bool = True) -> int:
        """The queue offset of the next message; 0 for a queue that never was. Without `wait`, what was appended just
        before may not be counted yet."""
        return self._by_queue.max_offset(topic, queue_id, wait)

    @raises_store_errors
    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset nearest to a store time, by RocketMQ's rules; 0 for an empty queue."""
        return self._by_queue.offset_at(topic, queue_id, timestamp_ms)

    @raises_store_errors
    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where in the log a message of a queue lies; 0 if there is none."""
        return self._by_queue.physical_offset(topic, queue_id, queue_offset)

    @raises_store_errors
    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message of a queue was stored, in milliseconds; -1 if there is none."""
        return self._by_queue.store_time(topic, queue_id, queue_offset)

    @raises_store_errors
    def earliest_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """When the oldest message still here was stored (of a queue, or of the whole log); -1 if there is none."""
        return self._by_queue.earliest_time(topic, queue_id)

    @raises_store_errors
    def message_count(self, topic: str, queue_id: int) -> int:
        """How many messages of a queue can be read."""
        return self._by_queue.message_count(topic, queue_id)

    @raises_store_errors
    def topics(self) -> dict[str, list[int]]:
        """Every topic with the ids of its queues."""
        return self._by_queue.topics()

    @raises_store_errors
    def message_ids(self, topic: str, queue_id: int, start: int, end: int) -> dict[str, int]:
        """The ids of the messages start..end of a queue, as this store gives them, each with its queue offset."""
        return self._by_queue.message_ids(topic, queue_id, start, end)

    @raises_store_errors
    def queue_entries(self, topic: str, queue_id: int, start: int, limit: int) -> list[tuple[int, int, int]]:
        """Entries of a queue from `start` on, at most `limit` and to the end of the file that holds the first: place in
        the log, size, tag code (or place in the extension)."""
        return self._by_queue.queue_entries(topic, queue_id, start, limit)

    @raises_store_errors
    def check_in_disk_by_consume_offset(
        self, topic: str, queue_id: int, queue_offset: int, *, wait: bool = True
    ) -> bool:
        """Whether a message has probably left memory (accessMessageInMemoryMaxRatio); False if there is none. Without
        `wait` a message that came within about the last second is taken to be in memory."""
        return self._by_queue.is_on_disk(topic, queue_id, queue_offset, wait)

    # -- reading by key, id, place -----------------------------------------------------------------------------

    @raises_store_errors
    def find(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None
    ) -> list[StoredMessage]:
        """Messages with this key (one of KEYS, or the unique key), oldest first; with `limit`, the newest ones.

        The time range is inclusive and exact; hash collisions are sorted out by comparing the text.
        """
        return self._by_place.find(topic, key, begin_ms, end_ms, limit)

    @raises_store_errors
    def index_offsets(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None
    ) -> list[int]:
        """What the index says about a key, newest first, collisions of its hash included."""
        return self._by_place.index_offsets(topic, key, begin_ms, end_ms, limit)

    @property
    def index_position(self) -> tuple[int, int]:
        """Store time (ms) and place in the log of the newest message that the index has; 0 and 0 if it has none."""
        self._access.check_open()
        return (0, 0) if self.engine.index is None else self.engine.index.last_update

    @raises_store_errors
    def get(self, message_id: str) -> StoredMessage | None:
        """The message with this id, or None if it is not (any more) in this store."""
        return self._by_place.get(message_id)

    @raises_store_errors
    def at(self, physical_offset: int) -> StoredMessage | None:
        """The message that starts at this place of the log, or None if none does."""
        return self._by_place.at(physical_offset)

    @raises_store_errors
    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        """Bytes of the log from a place on, as they are stored, for a copy of it (replication).

        Never past the end of a log file, nor past what a crash cannot take back (under SYNC_FLUSH what is flushed,
        else what is readable): empty at that end. A piece may end inside a record, and may hold the filler at the end
        of a file; pieces joined give the log byte for byte. StoreError if that place is in no log file.
        """
        return self._by_place.read_log(physical_offset, max_bytes)

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[StoredMessage]:
        """Every record between two physical offsets in log order, prepared and rolled-back ones too.

        `start` must be where a record begins; the default is the whole log.
        """
        return self._by_place.scan(start, end)

    # -- watching ----------------------------------------------------------------------------------------------

    def on_arrival(self, listener: ArrivalListener) -> Callable[[], None]:
        """Call `listener` for each message that becomes visible; the answer ends it again."""
        self._access.check_open()
        return self.engine.arrivals.listen(listener)

    def on_arrival_step(self, listener: StepListener) -> Callable[[], None]:
        """Call `listener` once for each step of the dispatcher, with what it made visible as arrays: which queues
        moved, how far, tag codes and store times; the answer ends it again."""
        self._access.check_open()
        return self.engine.arrivals.listen_to_steps(listener)

    def hurry_dispatch(self) -> Callable[[], None]:
        """Make what is appended visible at once, without the pauses (5 ms) that gather more for one step: for as long
        as a reader waits for messages. The answer ends it again."""
        self._access.check_open()
        return self.engine.dispatcher.hurry()

    # -- replicas ----------------------------------------------------------------------------------------------

    @property
    def role(self) -> BrokerRole:
        """What this store is in a replicated group now."""
        return self.engine.role

    @property
    def promises_replica(self) -> bool:
        """Whether the one that opened this store has to wait for a slave before it acknowledges a message."""
        return self.engine.promises_replica

    def on_growth(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when `read_log` may have more; it must be quick. On the thread of an append or of the
        flusher. The answer ends it again."""
        self._access.check_open()
        return self.engine.on_growth(listener)

    @raises_store_errors
    def set_role(self, role: BrokerRole) -> None:
        """Become a master or a slave; StoreError if that cannot be done now."""
        self._access.check_writable()
        self.engine.services.roles.change(role)

    @raises_store_errors
    def append_raw(self, physical_offset: int, data: bytes) -> int:
        """On a slave: store the master's log bytes from `physical_offset` on; where the next ones must begin.

        They may begin and end inside records. RawBytesInvalid, and nothing stored, if they do not continue this log.
        """
        self._access.check_writable()
        return self.engine.services.raw.append(physical_offset, data)

    @raises_store_errors
    def drop_unfinished_raw(self) -> int:
        """Forget a record of which only the beginning has come; where the log ends, and bytes must go on."""
        self._access.check_writable()
        return self.engine.services.raw.drop_unfinished()

    @property
    def confirm_offset(self) -> int:
        """Queues, index and arrivals follow the log up to here; -1: as far as it goes."""
        return self.engine.confirm_offset

    def set_confirm_offset(self, physical_offset: int) -> None:
        """Let queues, index and arrivals not pass this place of the log; -1: no such place."""
        self._access.check_writable()
        self.engine.confirm_offset = physical_offset
        self.engine.dispatcher.wake()

    # -- switching reads and writes off ---------------------------------------------------------------------

    def set_writable(self, writable: bool, why: str = "set_writable(True) switches them on") -> None:
        """Refuse appends (SERVICE_NOT_AVAILABLE) until they are switched on again; `why` is said to who appends."""
        self._access.check_writable()
        refusal = None if writable else AppendRefused(f"appends are switched off: {why}")
        self._access.is_writable = writable
        self._writer.refuse_while(Refusal.NOT_WRITABLE, refusal)

    def set_readable(self, readable: bool) -> None:
        """Refuse (ReadRefused) whatever hands out messages, by queue, key, id, place or `scan`, until reads are
        switched on again. Positions and statistics are still answered, and `read_log`: a replica goes on copying."""
        self._access.check_open()
        self._access.is_readable = readable

    @property
    def is_writable(self) -> bool:
        """Whether appends are taken now."""
        return not (self._access.closed or self._read_only) and self._writer.refusal is None

    @property
    def is_readable(self) -> bool:
        """Whether messages are handed out now."""
        return self._access.is_readable and not self._access.closed

    @property
    def running_flags(self) -> RunningFlag:
        """What there is against reading and writing now, in RocketMQ's bits."""
        return self.engine.running_flags

    # -- upkeep ------------------------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Look how full the disks are now, and refuse or take appends by that; done every ten seconds by itself."""
        self._access.check_writable()
        self.engine.services.disk.check()

    @raises_store_errors
    def deliver_due(self, timeout_seconds: float = 60.0) -> bool:
        """Deliver the delayed messages that are due, where the clock was moved, without waiting for the next look;
        False if that takes longer. What cannot be stored now is tried again by itself."""
        self._access.check_writable()
        return self._upkeep.deliver_due(timeout_seconds)

    @raises_store_errors
    def delete_expired(self, *, before_ms: int | None = None) -> Cleaned:
        """Delete log files that are older than fileReservedTime now, whatever the hour, and what was derived from them.

        With `before_ms`: instead of those, files all of whose messages were stored before that time. The newest
        file always stays, and so does what is still needed: `held_by` says by whom.
        """
        return self._upkeep.delete_expired(before_ms)

    @raises_store_errors
    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; how many there were. Its next message is number 0 of its queue again.

        Its messages stay in the log, where `scan`, `get` and `find` see them, until their files expire. Other
        threads may go on appending to it: each message belongs to the old topic or to the new one.
        """
        return self._upkeep.delete_topic(topic)

    @raises_store_errors
    def clean_unused_topics(self, live: Collection[str]) -> list[str]:
        """Delete every topic that is not `live`, as `delete_topic` does; which ones. The store's own topics stay."""
        return self._upkeep.clean_unused_topics(live)

    @raises_store_errors
    def clean_expired_queues(self) -> list[tuple[str, int]]:
        """Remove the files of queues whose messages have all left the log; which ones. They keep their numbers."""
        return self._upkeep.clean_expired_queues()

    @raises_store_errors
    def scrub(self) -> ScrubReport:
        """Compare the whole log with queues and index now, and repair what is derived; on this thread, while the store
        goes on. Damage in the log is copied to the quarantine and reported; the bytes stay where they are."""
        return self._upkeep.scrub()

    @raises_store_errors
    def destroy(self) -> list[Path]:
        """Close the store and remove its log, queues, index and state files; what was left because it is not ours.

        config/ and quarantine/ stay. Nothing brings the messages back.
        """
        return self._upkeep.destroy()

    # -- positions and figures ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._access.closed

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
        self._access.check_open()
        return self._read_only or self.engine.dispatcher.wait_for(self.engine.dispatch_end(), timeout_seconds)

    @property
    def is_transient_pool_deficient(self) -> bool:
        """Whether log files have private buffers (transientStorePoolEnable), and none is free for the next one."""
        return not self._read_only and self.engine.services.allocator.lacks_buffers

    @raises_store_errors
    def stats(self) -> StatsSnapshot:
        """The store in figures."""
        return self._figures.snapshot()

    @raises_store_errors
    def put_totals(self) -> dict[str, TopicPuts]:
        """Messages and record bytes of each topic since the store was opened, as far as queues have them."""
        return self._upkeep.put_totals()

    @raises_store_errors
    def runtime_info(self) -> dict[str, str]:
        """Statistics and positions under RocketMQ's names, all as text."""
        return self._figures.runtime_info(self.earliest_time())

    def running_data_info(self) -> str:
        """`runtime_info` as text, one line each."""
        return "\n".join(f"{name}: {value}" for name, value in sorted(self.runtime_info().items()))


def _opened(
    kind: type[MessageStore],
    path: str | Path,
    settings: StoreSettings,
    plugins: Sequence[PluginFactory],
    opening: Opening,
) -> MessageStore:
    check_arguments(path, settings, opening)
    factories = [*plugins, *load_factories(settings.plugins)]
    store = kind(start_engine(path, settings, opening))
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
    opening = Opening(clock=clock, files=files, retention_guard=retention_guard, delivers=False)
    return _opened(MessageStore, path, settings, (), opening)
