"""The writer: gives each message its queue offset, its place and its time, and stores it.

One writer at a time: the appender takes the put lock, stores into the mapped segment and leaves;
handing messages to a thread of their own would cost a wake-up each (docs/decisions/0002-one-writer.md).

    admit (no lock)  ->  lock: time, queue offset, roll if full, bytes, position  ->  confirm (no lock)

Each way in (one message, a list, a batch, packed rows, columns) admits, takes its turn at the put lock (put_lock.py),
and has the records stored at the end of the log (log_end.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from zlib import crc32

import numpy as np

from embermq.clock import Clock
from embermq.columns import N_PLACED_COLUMNS, P_PHYSICAL, P_SIZE, Rows
from embermq.errors import AppendRefused, DiskFull, MessageRejected, SegmentUnavailable, StoreError
from embermq.format.frame import BLANK_BYTES, put_record
from embermq.model.message import NO_PROPERTIES, Message, MessageBatch, Receipt
from embermq.model.properties import has_meaning_to_store
from embermq.settings import KernelUse
from embermq.store.append.admission import FIXED_BUT_TOPIC_LENGTH, Admission, Admitted, check_born, packed_v4
from embermq.store.append.log_end import PUT_OK, LogEnd
from embermq.store.append.message_columns import MessageColumns
from embermq.store.append.packed import Durability, PackedBatch, PackedReader, PackedReceipts, refuse_the_rest
from embermq.store.append.parked import ParkedReader
from embermq.store.append.put_lock import PutLock, Refusal
from embermq.store.append.queue_tails import QueueKey, QueueTail, QueueTails
from embermq.store.append.runs import MessageRun, Receipts, RunReader
from embermq.store.layout.fence import Fence
from embermq.store.log.commit_log import CommitLog
from embermq.store.statistics import COUNTED_PUT_SECONDS, PutCounters


class Writer:
    """Appends to a commit log. Any thread may call; the put lock makes them take turns."""

    def __init__(
        self,
        log: CommitLog,
        admission: Admission,
        clock: Clock,
        *,
        busy_ms_max: int,
        kernels: KernelUse,
        light_queues_max: int = 0,
        fence: Fence | None = None,
        wake_dispatch: Callable[[], None] | None = None,
        record_put: Callable[[float, int], None] | None = None,
    ) -> None:
        """`record_put` gets the seconds and messages of each put that took COUNTED_PUT_SECONDS or more here. Under
        SYNC_FLUSH a put goes on to wait for the disk, and is measured there."""
        self._admission = admission
        self._now_ms, self._monotonic = clock.now_ms, clock.monotonic
        self._tails = QueueTails()
        self._end = LogEnd(log, admission, self._tails, light_queues_max=light_queues_max, fence=fence)
        self.put_lock = PutLock(
            self._end, clock, busy_ms_max=busy_ms_max, wake_dispatch=wake_dispatch, record_put=record_put
        )
        self._runs = RunReader(admission, self._tails, lambda: self.put_lock.lock, kernels)
        self._packed = PackedReader(admission, self._runs)
        self.parked = ParkedReader(log, self._runs, admission.packed_store_host, kernels)
        self._plain_bytes_max = admission.plain_bytes_max
        self._log, self._store_host, self._packed_host = log, admission.store_host, admission.packed_store_host

    @property
    def counters(self) -> PutCounters:
        return self.put_lock.counters

    @property
    def held_ms(self) -> int:
        return self.put_lock.held_ms

    @property
    def refusal(self) -> StoreError | None:
        """What there is against appending now."""
        return self.put_lock.refusal

    def refuse(self, reason: StoreError) -> None:
        """Wait for the append under way, and refuse every later one, for good."""
        self.put_lock.refuse_while(Refusal.FOR_GOOD, reason)

    def refuse_while(self, cause: Refusal, reason: StoreError | None) -> None:
        """Wait for the append under way, and refuse later ones until this cause is gone: None. Others may stay."""
        self.put_lock.refuse_while(cause, reason)

    def refuse_while_full(self, reason: DiskFull | None) -> None:
        """Refuse while the disk is full, or, with None, no longer. Other refusals stay."""
        self.put_lock.refuse_while(Refusal.DISK_FULL, reason)

    def abandon(self, reason: StoreError) -> None:
        """Refuse everything, in a process in which no thread holds the put lock any more: it may have been forked."""
        self.put_lock.abandon(reason)

    def raw_turn(self) -> AbstractContextManager[None]:
        """The put lock, for storing bytes of another log (raw.py); raises what there is against storing anything."""
        return self.put_lock.raw_turn()

    # -- queue offsets ---------------------------------------------------------------------------------

    def adopt_offsets(self, next_offsets: Iterable[tuple[str, int, int]]) -> None:
        """Continue these queues (topic, queue id, next offset). Before the first append."""
        self._tails.adopt(next_offsets)

    def adopt_derived_offsets(self, next_offsets: Iterable[tuple[str, int, int]]) -> None:
        """Continue these queues: they were derived from a log that another store has written."""
        with self.put_lock.lock:
            self._tails.adopt(next_offsets)

    def next_offsets(self) -> dict[QueueKey, int]:
        with self.put_lock.lock:
            self._end.take_back_open_run()
            return self._tails.all_next()

    def forget_topic(self, topic: str, cut: Callable[[int], None] | None = None) -> None:
        """A deleted topic starts again at offset 0. `cut` gets where the log ends now, before anything follows."""
        with self.put_lock.lock:
            self._end.take_back_open_run()
            self._tails.forget(topic)
            if cut is not None:
                cut(self._end.offset)

    # -- appending -------------------------------------------------------------------------------------

    def append(self, message: Message) -> tuple[Receipt, bool]:
        """Store one message; the receipt, and whether its sender waits for the disk."""
        entered = self._monotonic()
        if (
            message.flag == 0
            and message.sys_flag == 0
            and message.delay_level == 0
            and message.reconsume_times == 0
            and message.prepared_transaction_offset == 0
            and message.store_host is None
            and message.wait_for_store is True
            and message.body.__class__ is bytes
            and message.queue_id.__class__ is int
        ):
            tail = self._tails.by_key.get((message.topic, message.queue_id))
            born_host = self._packed_host if message.born_host is None else packed_v4(message.born_host)
            if tail is not None and tail.topic_part is not None and born_host is not None:
                properties = message.encoded_properties
                if properties is None or message.tags or message.keys:
                    try:
                        properties = message.property_bytes()
                    except StoreError:
                        self.put_lock.count_refused(1)
                        raise
                parts = len(message.body) + len(properties)
                # Well within every limit, so that none of them has to be looked at one by one; TAGS and KEYS alone
                # mean nothing to the store.
                if parts <= self._plain_bytes_max and (
                    (message.properties is NO_PROPERTIES and message.encoded_properties is None)
                    or not has_meaning_to_store(properties)
                ):
                    return self._store_plain(tail, tail.topic_part, message, properties, born_host, entered), True
                return self._admit_and_store(message, entered, properties)
        return self._admit_and_store(message, entered)

    def _admit_and_store(
        self, message: Message, entered: float, properties: bytes | None = None
    ) -> tuple[Receipt, bool]:
        try:
            admitted = self._admission.admit(message, properties)
        except StoreError:
            self.put_lock.count_refused(1)
            raise
        return self._store_one(admitted, entered), admitted.wait

    def _admit(self, messages: Sequence[Message], admit: Callable[[Message], Admitted]) -> list[Admitted]:
        """What is to be stored; if one of them is rejected none is, and all count as refused."""
        try:
            return [admit(message) for message in messages]
        except StoreError:
            self.put_lock.count_refused(len(messages))
            raise

    def _store_plain(
        self,
        tail: QueueTail,
        topic_part: bytes,
        message: Message,
        properties: bytes,
        born_host: bytes,
        entered: float,
    ) -> Receipt:
        """Store a message without anything rare about it, by the shortest way: what `LogEnd.put` does, and no more.

        Reading the clock is a good part of it: of a free put lock it is taken as held since `entered`.
        """
        body, born, turn, end = message.body, message.born_timestamp, self.put_lock, self._end
        size = FIXED_BUT_TOPIC_LENGTH + len(body) + len(topic_part) + len(properties)
        crc = crc32(body) & 0x7FFFFFFF
        host, lock, monotonic = self._packed_host, turn.lock, self._monotonic
        is_contended = lock.locked()
        if is_contended:
            turn.check_busy()
        with lock:
            if turn.refusal is not None or end.open_run is not None or end.token[0] != end.own_token:
                turn.check_turn()
            turn.held_since = began = monotonic() if is_contended else entered
            try:
                now_ms = self._now_ms()
                segment = self._log.active
                if segment is None or segment.wrote + size + BLANK_BYTES > segment.size:
                    segment = self._log.roll()
                at, next_offsets, slot = segment.wrote, self._tails.next, tail.slot
                physical_offset, queue_offset = segment.start + at, next_offsets[slot]
                put_record(
                    segment.target,
                    at,
                    size,
                    crc,
                    body,
                    topic_part,
                    properties,
                    tail.queue_id,
                    queue_offset,
                    physical_offset,
                    now_ms if born is None else born,
                    born_host,
                    now_ms,
                    host,
                )
                segment.store_timestamp = now_ms
                segment.wrote, next_offsets[slot] = at + size, queue_offset + 1
            except BaseException:
                turn.finish(began, 0, 1)
                if born is not None:
                    check_born(born)  # The one number here that was not checked yet.
                raise
            end.stored_bytes += size
            turn.stored += 1
            ended = monotonic()
            turn.held_since = 0.0
        if ended - entered >= COUNTED_PUT_SECONDS:
            turn.note_time(ended - began, ended - entered, 1)
        turn.wake_dispatch()
        return Receipt(PUT_OK, physical_offset, size, queue_offset, now_ms, self._store_host)

    def append_as_is(self, message: Message, *, although_full: bool) -> tuple[Receipt, bool]:
        """Store a message of the broker's own (internal.py), if asked past the mark of a full disk as well."""
        entered = self._monotonic()
        [admitted] = self._admit([message], self._admission.admit_as_is)
        return self._store_one(admitted, entered, although_full=although_full), admitted.wait

    def append_many_as_is(self, messages: Sequence[Message], *, although_full: bool) -> tuple[Sequence[Receipt], bool]:
        """Store messages of the broker's own one after another; a bad one leaves nothing behind."""
        entered = self._monotonic()
        return self._store_all(self._admit(messages, self._admission.admit_as_is), entered, although_full)

    def append_together(
        self, messages: Sequence[Message], *, as_is: bool, although_full: bool = False
    ) -> tuple[Sequence[Receipt], bool]:
        """Store messages side by side in one segment, in order: nothing can be refused after the first is stored. A bad
        one leaves nothing behind."""
        entered = self._monotonic()
        admitted = self._admit(messages, self._admission.admit_as_is if as_is else self._admission.admit)
        return self._store_all(admitted, entered, although_full, room=sum(one.size for one in admitted))

    def _store_one(self, admitted: Admitted, entered: float, *, although_full: bool = False) -> Receipt:
        self.put_lock.check_busy()
        stored = 0
        with self.put_lock.lock:
            began = self.put_lock.begin(although_full)
            try:
                receipt = self._end.put(admitted, self._now_ms())
                stored = 1
            finally:
                held = self.put_lock.finish(began, stored, 1 - stored)
        self.put_lock.wake(held, began + held - entered, 1)
        return receipt

    def append_many(self, messages: Sequence[Message]) -> tuple[Sequence[Receipt], bool]:
        """Store messages one after another; all are admitted first, so a bad one leaves nothing behind."""
        entered = self._monotonic()
        if self._runs.prefers_kernel(len(messages)):
            return self._store_parts(self._read_runs(messages), len(messages), entered)
        return self._store_all(self._admit(messages, self._admission.admit), entered)

    def _read_runs(self, messages: Sequence[Message]) -> list[MessageRun | Admitted]:
        try:
            return self._runs.read(messages)
        except StoreError:
            self.put_lock.count_refused(len(messages))
            raise

    def _store_all(
        self, admitted: list[Admitted], entered: float, although_full: bool = False, room: int = 0
    ) -> tuple[Sequence[Receipt], bool]:
        """`room`: so many bytes of the segment are there before the first one is stored."""
        receipts: list[Receipt] = []
        self.put_lock.check_busy(len(admitted))
        with self.put_lock.lock:
            began = self.put_lock.begin(although_full, len(admitted))
            try:
                now_ms = self._now_ms()
                if room:
                    self._end.segment_for(room)
                for one in admitted:
                    receipts.append(self._end.put(one, now_ms))
            finally:
                held = self.put_lock.finish(began, len(receipts), len(admitted) - len(receipts))
        self.put_lock.wake(held, began + held - entered, len(receipts))
        return receipts, any(one.wait for one in admitted)

    def append_packed(
        self, batch: PackedBatch, durability: Durability | None, *, all_or_none: bool = False
    ) -> PackedReceipts:
        """Store the rows of a batch, each one that can be stored; what an error says in packed.py.

        With `all_or_none` a row that cannot be admitted is an error, and nothing is stored."""
        entered = self._monotonic()
        refused: dict[int, StoreError] = {}
        parts = self._packed.read(batch, refused)
        if all_or_none and refused:
            self.put_lock.count_refused(len(batch.rows))
            raise refused[min(refused)]
        placed = np.zeros((len(batch.rows), N_PLACED_COLUMNS), np.int64)
        stored, waits, broken = 0, False, None
        self.put_lock.check_busy(len(batch.rows))
        with self.put_lock.lock:
            began = self.put_lock.begin(count=len(batch.rows))
            try:
                now_ms = self._now_ms()
                for first, part in parts:
                    try:
                        for written in self._store_rows(part, now_ms, placed[first:]):
                            stored += written
                            waits |= isinstance(part, MessageRun) or part.wait
                    except SegmentUnavailable as problem:
                        broken = problem
                        break
                    except (AppendRefused, MessageRejected) as problem:
                        refused[first] = problem  # Of this message alone: its further queues.
            finally:
                held = self.put_lock.finish(began, stored, len(batch.rows) - stored)
        self.put_lock.wake(held, began + held - entered, stored)
        if broken is not None:
            refuse_the_rest(placed, refused, broken)
        return PackedReceipts(placed, now_ms, self._store_host, refused, durability if waits else None)

    def append_packed_together(self, batch: PackedBatch) -> Rows:
        """Store the rows of a batch side by side in one segment: all of them, or with an error none."""
        entered, count, stored = self._monotonic(), len(batch.rows), 0
        refused: dict[int, StoreError] = {}
        parts = self._packed.read(batch, refused)
        room = sum(part.room if isinstance(part, MessageRun) else part.size for _first, part in parts)
        if refused or room > self._admission.record_bytes_max:  # Not counted: the caller stores them another way.
            raise refused[min(refused)] if refused else MessageRejected(f"{room:,} bytes do not fit a log file")
        placed = np.zeros((count, N_PLACED_COLUMNS), np.int64)
        self.put_lock.check_busy(count)
        with self.put_lock.lock:
            began = self.put_lock.begin(count=count)
            try:
                now_ms = self._now_ms()
                self._end.segment_for(room)
                for first, part in parts:
                    for written in self._store_rows(part, now_ms, placed[first:]):
                        stored += written
            finally:
                held = self.put_lock.finish(began, stored, count - stored)
        self.put_lock.wake(held, began + held - entered, count)
        return placed

    def append_run(self, run: MessageRun) -> int:
        """Store a run side by side in one segment, past the mark of a full disk as well: all of it, or with an error
        nothing. Where its last record ends."""
        entered, count, stored = self._monotonic(), len(run.rows), 0
        placed = np.empty((count, N_PLACED_COLUMNS), np.int64)
        self.put_lock.check_busy(count)
        with self.put_lock.lock:
            began = self.put_lock.begin(True, count)
            try:
                now_ms = self._now_ms()
                self._end.segment_for(run.room)
                for written in self._end.write_run(self._runs.loops.encode_batch, run, now_ms, placed):
                    stored += written
            finally:
                held = self.put_lock.finish(began, stored, count - stored)
        self.put_lock.wake(held, began + held - entered, count)
        return int(placed[-1, P_PHYSICAL] + placed[-1, P_SIZE])

    def append_columns(self, columns: MessageColumns, durability: Durability | None) -> Sequence[Receipt]:
        """Store messages that come as columns, all or none, and wait until they are durable if there is one to ask."""
        batch = columns.pack(compiled=self._runs.are_kernels_ready)
        receipts = self.append_packed(batch, durability, all_or_none=True)
        if receipts.refused:  # Half way: the next file could not be made.
            raise receipts.refused[min(receipts.refused)]
        return receipts.in_order(receipts.wait())

    def _store_rows(self, part: MessageRun | Admitted, now_ms: int, placed: Rows) -> Iterator[int]:
        """Store a run, or one message; tells how many, each time some are stored. Put lock held."""
        if isinstance(part, MessageRun):
            yield from self._end.write_run(self._runs.loops.encode_batch, part, now_ms, placed[: len(part.rows)])
            return
        receipt = self._end.put(part, now_ms)
        placed[0] = receipt.physical_offset, receipt.size, receipt.queue_offset
        yield 1

    def _store_parts(
        self, parts: list[MessageRun | Admitted], count: int, entered: float
    ) -> tuple[Sequence[Receipt], bool]:
        """Store runs, and what is not ordinary between them: `count` messages in all."""
        placed = np.empty((count, N_PLACED_COLUMNS), np.int64)
        alone: dict[int, Receipt] = {}  # Of what is not ordinary, by its number in the list.
        encode_batch = self._runs.loops.encode_batch
        stored = 0
        self.put_lock.check_busy(count)
        with self.put_lock.lock:
            began = self.put_lock.begin(count=count)
            try:
                now_ms = self._now_ms()
                for part in parts:
                    if isinstance(part, Admitted):
                        alone[stored] = self._end.put(part, now_ms)
                        stored += 1
                        continue
                    places = placed[stored : stored + len(part.rows)]
                    for written in self._end.write_run(encode_batch, part, now_ms, places):
                        stored += written
            finally:
                held = self.put_lock.finish(began, stored, count - stored)
        self.put_lock.wake(held, began + held - entered, count)
        waits = any(isinstance(part, MessageRun) or part.wait for part in parts)
        receipts = Receipts(placed, now_ms, self._store_host)
        return receipts if not alone else receipts.with_others(alone), waits

    def append_batch(self, batch: MessageBatch) -> tuple[Receipt, bool]:
        """Store a batch side by side in one segment."""
        entered = self._monotonic()
        items = self._admit_batch(batch)
        total = sum(item.size for item in items)
        receipts: list[Receipt] = []
        self.put_lock.check_busy(len(items))
        with self.put_lock.lock:
            began = self.put_lock.begin(count=len(items))
            try:
                now_ms = self._now_ms()
                self._end.segment_for(total)
                for item in items:
                    receipts.append(self._end.put(item, now_ms))
            finally:
                held = self.put_lock.finish(began, len(receipts), len(items) - len(receipts))
        self.put_lock.wake(held, began + held - entered, len(items))
        first = receipts[0]
        later = tuple(receipt.physical_offset for receipt in receipts[1:])
        places = first.physical_offset, total, first.queue_offset, first.store_timestamp
        whole = Receipt(PUT_OK, *places, first.store_host, len(items), later)
        return whole, items[0].wait

    def _admit_batch(self, batch: MessageBatch) -> list[Admitted]:
        try:
            return self._admission.admit_batch(batch)
        except StoreError:
            self.put_lock.count_refused(max(1, len(batch.items)))
            raise
