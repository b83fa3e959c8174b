"""The writer: gives each message its queue offset, its place and its time, and stores it.

One writer at a time: the appender takes the put lock, stores into the mapped segment and leaves;
handing messages to a thread of their own would cost a wake-up each (docs/decisions/0002-one-writer.md).

    admit (no lock)  ->  lock: time, queue offset, roll if full, bytes, position  ->  confirm (no lock)

The first 8 bytes of a record, size and magic, are stored last: a process killed in between leaves
zeros there, which read as "nothing here", and not half a message.

A signal handler may raise in the middle of an append (Ctrl-C in a notebook, an alarm). Python runs handlers after calls
and at the ends of loops, so the lock is only taken by `with`, and the two things that make a message stored, the end of
the log and the next offset of its queue, move in one assignment: what did not move is overwritten by the next message.
A kernel gives offsets out itself; `_open_run` has what they were until its messages count.
"""

import logging
import struct
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import chain
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from embermq.clock import Clock
from embermq.columns import N_PLACED_COLUMNS, R_QUEUE, Rows
from embermq.errors import (
    AppendRefused,
    DiskFull,
    MessageRejected,
    PageCacheBusy,
    SegmentUnavailable,
    StoreError,
    again,
)
from embermq.format.frame import BLANK_BYTES, MESSAGE_MAGIC
from embermq.model import flags
from embermq.model.message import Message, MessageBatch, Receipt
from embermq.model.properties import (
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    WAIT,
    decode_properties,
    encode_properties,
    has_meaning_to_store,
)
from embermq.model.status import PutStatus
from embermq.settings import KernelUse
from embermq.store.append.admission import FIXED_BUT_TOPIC_LENGTH, Admission, Admitted, check_born
from embermq.store.append.message_columns import MessageColumns
from embermq.store.append.packed import Durability, PackedBatch, PackedReader, PackedReceipts, refuse_the_rest
from embermq.store.append.queue_tails import QueueKey, QueueTail, QueueTails
from embermq.store.append.runs import MessageRun, Receipts, RunReader
from embermq.store.layout.fence import Fence
from embermq.store.log.commit_log import CommitLog
from embermq.store.statistics import COUNTED_PUT_SECONDS, SLOW_PUT_SECONDS, PutCounters

log = logging.getLogger(__name__)

SIZE_MAGIC = struct.Struct(">ii")
# Everything between size-and-magic and the body, for each pair of host lengths.
HEADS = {(born, store): struct.Struct(f">iiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
_HEAD_V4 = HEADS[8, 8]
_PROPERTIES_LENGTH = struct.Struct(">h")
# A global is found faster than a method of an object, or a member of an enumeration.
PUT_OK = PutStatus.PUT_OK
_PACK_HEAD_V4, _PACK_PROPERTIES_LENGTH = _HEAD_V4.pack, _PROPERTIES_LENGTH.pack
_PACK_SIZE_MAGIC_INTO = SIZE_MAGIC.pack_into
LMQ_PREFIX = "%LMQ%"
_NO_TOKEN = memoryview(bytes(8)).cast("q")


class Refusal(IntEnum):
    """Why nothing is appended; where several apply, the first is the answer."""

    FOR_GOOD = 0  # closed, a failed sync, another writer
    ROLE = 1  # a slave's log is written by its master
    NOT_WRITABLE = 2  # switched off by the operator
    DISK_FULL = 3


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
        self._log, self._admission, self._clock = log, admission, clock
        self._now_ms, self._monotonic = clock.now_ms, clock.monotonic
        self._fence = fence
        self._token, self._own_token = (fence.cell, fence.stamp) if fence is not None else (_NO_TOKEN, 0)
        self._busy_seconds_max = busy_ms_max / 1000
        self._lock = threading.Lock()
        self._locked_since = 0.0
        self._light_queues_max = light_queues_max
        self._tails = QueueTails()
        self._runs = RunReader(admission, self._tails, self._lock, kernels)
        self._packed = PackedReader(admission, self._runs)
        self._plain_bytes_max = admission.plain_bytes_max
        self._store_host, self._packed_host = admission.store_host, admission.packed_store_host
        self.refusal: StoreError | None = None  # What there is against appending: the first of `_refusals`.
        self._refusals: dict[Refusal, StoreError] = {}
        self._wake_dispatch = wake_dispatch if wake_dispatch is not None else _nothing
        self._record_put = record_put if record_put is not None else _ignore_put
        # Of a run being written: its slots, their offsets before it, and how many bytes it takes at most.
        self._open_run: tuple[NDArray[np.int64], NDArray[np.int64], int] | None = None
        self._count = self._bytes = self._failed = 0
        self._refused = 0  # Messages that did not come so far as to be written.
        self._refused_lock = threading.Lock()  # Guards that number alone: refusals come with and without the put lock.

    @property
    def counters(self) -> PutCounters:
        """Totals since the store was opened."""
        return PutCounters(self._count, self._bytes, self._failed + self._refused)

    def refuse(self, reason: StoreError) -> None:
        """Wait for the append under way, and refuse every later one, for good."""
        self.refuse_while(Refusal.FOR_GOOD, reason)

    def refuse_while(self, cause: Refusal, reason: StoreError | None) -> None:
        """Wait for the append under way, and refuse later ones until this cause is gone: None. Others may stay."""
        with self._lock:
            if reason is None:
                self._refusals.pop(cause, None)
            else:
                self._refusals[cause] = reason
            self.refusal = self._refusals[min(self._refusals)] if self._refusals else None

    def abandon(self, reason: StoreError) -> None:
        """Refuse everything, in a process in which no thread holds the put lock any more: it may have been forked."""
        self._lock = threading.Lock()
        self.refuse(reason)

    def refuse_while_full(self, reason: DiskFull | None) -> None:
        """Refuse while the disk is full, or, with None, no longer. Other refusals stay."""
        self.refuse_while(Refusal.DISK_FULL, reason)

    @contextmanager
    def raw_turn(self) -> Iterator[None]:
        """The put lock, for storing bytes of another log (raw.py); raises what there is against storing anything."""
        with self._lock:
            for cause in (Refusal.FOR_GOOD, Refusal.DISK_FULL):
                if cause in self._refusals:
                    raise again(self._refusals[cause])
            if self._token[0] != self._own_token:
                self._refuse_fenced()
            yield
        self._wake_dispatch()

    # -- queue offsets ---------------------------------------------------------------------------------

    def adopt_offsets(self, next_offsets: Iterable[tuple[str, int, int]]) -> None:
        """Continue these queues (topic, queue id, next offset). Before the first append."""
        self._tails.adopt(next_offsets)

    def adopt_derived_offsets(self, next_offsets: Iterable[tuple[str, int, int]]) -> None:
        """Continue these queues: they were derived from a log that another store has written."""
        with self._lock:
            self._tails.adopt(next_offsets)

    def next_offsets(self) -> dict[QueueKey, int]:
        with self._lock:
            self._take_back_open_run()
            return self._tails.all_next()

    def forget_topic(self, topic: str, cut: Callable[[int], None] | None = None) -> None:
        """A deleted topic starts again at offset 0. `cut` gets where the log ends now, before anything follows."""
        with self._lock:
            self._take_back_open_run()
            self._tails.forget(topic)
            if cut is not None:
                cut(self._log.wrote_offset)

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
            and message.born_host is None
            and message.store_host is None
            and message.wait_for_store is True
            and message.body.__class__ is bytes
            and message.queue_id.__class__ is int
        ):
            tail = self._tails.by_key.get((message.topic, message.queue_id))
            if tail is not None and tail.topic_part is not None:
                try:
                    properties = message.property_bytes()
                except StoreError:
                    self._count_refused(1)
                    raise
                parts = len(message.body) + len(properties)
                # Well within every limit, so that none of them has to be looked at one by one.
                if parts <= self._plain_bytes_max and not has_meaning_to_store(properties):
                    return self._store_plain(tail, tail.topic_part, message, properties, entered), True
                return self._admit_and_store(message, entered, properties)
        return self._admit_and_store(message, entered)

    def _admit_and_store(
        self, message: Message, entered: float, properties: bytes | None = None
    ) -> tuple[Receipt, bool]:
        try:
            admitted = self._admission.admit(message, properties)
        except StoreError:
            self._count_refused(1)
            raise
        return self._store_one(admitted, entered), admitted.wait

    def _admit(self, messages: Sequence[Message], admit: Callable[[Message], Admitted]) -> list[Admitted]:
        """What is to be stored; if one of them is rejected none is, and all count as refused."""
        try:
            return [admit(message) for message in messages]
        except StoreError:
            self._count_refused(len(messages))
            raise

    def _store_plain(
        self, tail: QueueTail, topic_part: bytes, message: Message, properties: bytes, entered: float
    ) -> Receipt:
        """Store a message without anything rare about it, by the shortest way: what `_put` does, and no more.

        Reading the clock is a good part of it: of a free put lock it is taken as held since `entered`.
        """
        body = message.body
        body_bytes = len(body)
        size = FIXED_BUT_TOPIC_LENGTH + body_bytes + len(topic_part) + len(properties)
        born = message.born_timestamp
        crc = crc32(body) & 0x7FFFFFFF
        host = self._packed_host
        lock, monotonic = self._lock, self._monotonic
        is_contended = lock.locked()
        if is_contended:
            self._check_busy()
        with lock:
            if self.refusal is not None or self._open_run is not None or self._token[0] != self._own_token:
                self._check_turn()
            self._locked_since = began = monotonic() if is_contended else entered
            try:
                now_ms = self._now_ms()
                segment = self._log.active
                if segment is None or segment.wrote + size + BLANK_BYTES > segment.size:
                    segment = self._log.roll()
                at = segment.wrote
                end = at + size
                physical_offset = segment.start + at
                next_offsets = self._tails.next
                slot = tail.slot
                queue_offset = next_offsets[slot]
                record = b"".join(
                    (
                        _PACK_HEAD_V4(
                            crc,
                            tail.queue_id,
                            0,
                            queue_offset,
                            physical_offset,
                            0,
                            now_ms if born is None else born,
                            host,
                            now_ms,
                            host,
                            0,
                            0,
                            body_bytes,
                        ),
                        body,
                        topic_part,
                        _PACK_PROPERTIES_LENGTH(len(properties)),
                        properties,
                    )
                )
                target = segment.target
                target[at + 8 : end] = record
                _PACK_SIZE_MAGIC_INTO(target, at, size, MESSAGE_MAGIC)
                segment.store_timestamp = now_ms
                segment.wrote, next_offsets[slot] = end, queue_offset + 1
            except BaseException:
                self._finish(began, 0, 1)
                if born is not None:
                    check_born(born)  # The one number here that was not checked yet.
                raise
            self._bytes += size
            self._count += 1
            ended = monotonic()
            self._locked_since = 0.0
        if ended - entered >= COUNTED_PUT_SECONDS:
            self._note_time(ended - began, ended - entered, 1)
        self._wake_dispatch()
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

    def _store_one(self, admitted: Admitted, entered: float, *, although_full: bool = False) -> Receipt:
        self._check_busy()
        stored = 0
        with self._lock:
            began = self._begin(although_full)
            try:
                receipt = self._put(admitted, self._now_ms())
                stored = 1
            finally:
                held = self._finish(began, stored, 1 - stored)
        self._wake(held, began + held - entered, 1)
        return receipt

    def append_many(self, messages: Sequence[Message]) -> tuple[Sequence[Receipt], bool]:
        """Store messages one after another; all are admitted first, so a bad one leaves nothing behind."""
        entered = self._monotonic()
        if self._runs.prefers_kernel(len(messages)):
            parts = self._read_runs(messages)
            if parts is not None:
                return self._store_parts(parts, len(messages), entered)
        return self._store_all(self._admit(messages, self._admission.admit), entered)

    def _read_runs(self, messages: Sequence[Message]) -> list[MessageRun | Admitted] | None:
        try:
            return self._runs.read(messages)
        except StoreError:
            self._count_refused(len(messages))
            raise

    def _store_all(
        self, admitted: list[Admitted], entered: float, although_full: bool = False
    ) -> tuple[Sequence[Receipt], bool]:
        receipts: list[Receipt] = []
        self._check_busy(len(admitted))
        with self._lock:
            began = self._begin(although_full, len(admitted))
            try:
                now_ms = self._now_ms()
                for one in admitted:
                    receipts.append(self._put(one, now_ms))
            finally:
                held = self._finish(began, len(receipts), len(admitted) - len(receipts))
        self._wake(held, began + held - entered, len(receipts))
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
            self._count_refused(len(batch.rows))
            raise refused[min(refused)]
        placed = np.zeros((len(batch.rows), N_PLACED_COLUMNS), np.int64)
        stored, waits, broken = 0, False, None
        self._check_busy(len(batch.rows))
        with self._lock:
            began = self._begin(count=len(batch.rows))
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
                held = self._finish(began, stored, len(batch.rows) - stored)
        self._wake(held, began + held - entered, stored)
        if broken is not None:
            refuse_the_rest(placed, refused, broken)
        return PackedReceipts(placed, now_ms, self._store_host, refused, durability if waits else None)

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
            yield from self._write_run(part, now_ms, placed[: len(part.rows)])
            return
        receipt = self._put(part, now_ms)
        placed[0] = receipt.physical_offset, receipt.size, receipt.queue_offset
        yield 1

    def _store_parts(
        self, parts: list[MessageRun | Admitted], count: int, entered: float
    ) -> tuple[Sequence[Receipt], bool]:
        """Store runs, and what is not ordinary between them: `count` messages in all."""
        receipts: list[Sequence[Receipt]] = []
        stored = 0
        self._check_busy(count)
        with self._lock:
            began = self._begin(count=count)
            try:
                now_ms = self._now_ms()
                for part in parts:
                    if isinstance(part, Admitted):
                        receipts.append([self._put(part, now_ms)])
                        stored += 1
                    else:
                        placed = np.empty((len(part.rows), N_PLACED_COLUMNS), np.int64)
                        for written in self._write_run(part, now_ms, placed):
                            stored += written
                        receipts.append(Receipts(placed, now_ms, self._store_host))
            finally:
                held = self._finish(began, stored, count - stored)
        self._wake(held, began + held - entered, count)
        waits = any(isinstance(part, MessageRun) or part.wait for part in parts)
        return receipts[0] if len(receipts) == 1 else list(chain.from_iterable(receipts)), waits

    def _write_run(self, run: MessageRun, now_ms: int, placed: Rows) -> Iterator[int]:
        """Let the kernel write a run, rolling when a segment is full; tells how many came into each. Put lock held."""
        encode_batch = self._runs.loops.encode_batch
        done = 0
        while done < len(run.rows):
            segment = self._log.active
            if segment is None or segment.is_full:  # An interrupted roll leaves a full one, which is sealed by now.
                segment = self._log.roll()
            at, numbers, slots = segment.wrote, self._tails.numbers(), run.rows[done:, R_QUEUE]
            self._open_run = slots, numbers[slots], run.room
            count, end = encode_batch(
                segment.target_array,
                at,
                segment.size,
                segment.start,
                run.parts,
                run.rows[done:],
                numbers,
                now_ms,
                self._packed_host,
                placed[done:],
            )
            segment.wrote, self._open_run = end if count else at, None
            if count:
                self._bytes += end - at
                segment.store_timestamp = now_ms
                done += count
                yield count
            if done < len(run.rows):
                self._log.roll()

    def append_batch(self, batch: MessageBatch) -> tuple[Receipt, bool]:
        """Store a batch side by side in one segment."""
        entered = self._monotonic()
        items = self._admit_batch(batch)
        total = sum(item.size for item in items)
        receipts: list[Receipt] = []
        self._check_busy(len(items))
        with self._lock:
            began = self._begin(count=len(items))
            try:
                now_ms = self._now_ms()
                segment = self._log.active
                if segment is None or segment.wrote + total + BLANK_BYTES > segment.size:
                    self._log.roll()
                for item in items:
                    receipts.append(self._put(item, now_ms))
            finally:
                held = self._finish(began, len(receipts), len(items) - len(receipts))
        self._wake(held, began + held - entered, len(items))
        first = receipts[0]
        later = tuple(receipt.physical_offset for receipt in receipts[1:])
        whole = Receipt(
            PutStatus.PUT_OK,
            first.physical_offset,
            total,
            first.queue_offset,
            first.store_timestamp,
            first.store_host,
            len(items),
            later,
        )
        return whole, items[0].wait

    def _admit_batch(self, batch: MessageBatch) -> list[Admitted]:
        try:
            return self._admission.admit_batch(batch)
        except StoreError:
            self._count_refused(max(1, len(batch.items)))
            raise

    def _check_busy(self, count: int = 1) -> None:
        """PageCacheBusy for `count` messages if the put lock has been held for too long. Before it is taken."""
        since = self._locked_since
        if since and self._lock.locked():
            held = self._monotonic() - since
            if held > self._busy_seconds_max:
                self._count_refused(count)
                raise PageCacheBusy(int(held * 1000))

    def _begin(self, although_full: bool = False, count: int = 1) -> float:
        """The time from which the put lock counts as held; raises what there is against appending. Put lock held."""
        if self.refusal is not None or self._open_run is not None or self._token[0] != self._own_token:
            self._check_turn(although_full, count)
        self._locked_since = began = self._monotonic()
        return began

    def _check_turn(self, although_full: bool = False, count: int = 1) -> None:
        """Put right what an interrupted run has left; raise what there is against appending `count` messages. Put lock
        held."""
        self._take_back_open_run()
        try:
            if self.refusal is not None and not (although_full and isinstance(self.refusal, DiskFull)):
                raise again(self.refusal)
            if self._token[0] != self._own_token:
                self._refuse_fenced()
        except StoreError:
            self._count_refused(count)
            raise

    def _count_refused(self, count: int) -> None:
        with self._refused_lock:
            self._refused += count

    def _refuse_fenced(self) -> None:
        """Raise: another process has the store, and what is written now would lie over its messages."""
        assert self._fence is not None
        self._fence.check()

    def _take_back_open_run(self) -> None:
        """Offsets that a run was given whose messages never counted are for the next ones. Put lock held."""
        if self._open_run is not None:
            slots, before, room = self._open_run
            self._tails.numbers()[slots] = before
            self._clear_end(room)
            self._open_run = None

    def _clear_end(self, room: int = BLANK_BYTES) -> None:
        """Make what lies behind the end of the log read as nothing: a record there was never stored. Put lock held."""
        segment = self._log.active
        is_ours = self._token[0] == self._own_token
        if is_ours and segment is not None and segment.wrote < segment.size:
            at, end = segment.wrote, min(segment.wrote + room, segment.size)
            segment.target[at:end] = bytes(end - at)

    def _finish(self, began: float, stored: int, failed: int) -> float:
        """Count, before the put lock is given back; for how long it was held."""
        held = self._monotonic() - began
        self._locked_since = 0.0
        if failed:
            self._clear_end()
        self._count += stored
        self._failed += failed
        return held

    def _wake(self, held: float, elapsed: float, count: int) -> None:
        """Let the dispatcher know, after the put lock was given back."""
        if elapsed >= COUNTED_PUT_SECONDS:
            self._note_time(held, elapsed, count)
        self._wake_dispatch()

    def _note_time(self, held: float, elapsed: float, count: int) -> None:
        """A put of so many messages held the put lock for `held` of the `elapsed` seconds it took."""
        self._record_put(elapsed, count)
        if held > SLOW_PUT_SECONDS:
            log.warning("slow append held_ms=%d wrote_offset=%d", int(held * 1000), self._log.wrote_offset)

    @property
    def held_ms(self) -> int:
        """How long the current append has been going on; 0 when none is."""
        since = self._locked_since
        return int((self._monotonic() - since) * 1000) if since and self._lock.locked() else 0

    def _put(self, one: Admitted, now_ms: int) -> Receipt:
        """Store one record. Put lock held."""
        if one.multi_dispatch:
            one = self._with_multi_offsets(one)
        segment = self._log.active
        if segment is None or segment.wrote + one.size + BLANK_BYTES > segment.size:
            segment = self._log.roll()
        tails = self._tails
        tail = tails.by_key.get((one.topic, one.queue_id)) or tails.obtain(one.topic, one.queue_id)
        tail.topic_part = one.topic_part
        queued = one.sys_flag & flags.PREPARED == 0
        queue_offset = tails.next[tail.slot] if queued else 0
        at = segment.wrote
        physical_offset = segment.start + at
        body = one.body
        born_timestamp = one.born_timestamp
        v4 = one.sys_flag & flags.HOST_V6_MASK == 0
        head = _HEAD_V4 if v4 else HEADS[len(one.born_host), len(one.packed_store_host)]
        record = b"".join(
            (
                head.pack(
                    crc32(body) & 0x7FFFFFFF,
                    one.queue_id,
                    one.flag,
                    queue_offset,
                    physical_offset,
                    one.sys_flag,
                    now_ms if born_timestamp is None else born_timestamp,
                    one.born_host,
                    now_ms,
                    one.packed_store_host,
                    one.reconsume_times,
                    one.prepared_transaction_offset,
                    len(body),
                ),
                body,
                one.topic_part,
                _PROPERTIES_LENGTH.pack(len(one.properties)),
                one.properties,
            )
        )
        end = at + one.size
        target = segment.target
        target[at + 8 : end] = record
        SIZE_MAGIC.pack_into(target, at, one.size, MESSAGE_MAGIC)
        segment.store_timestamp = now_ms
        if not queued:
            segment.wrote = end
        elif one.multi_dispatch:
            segment.wrote, tails.next = end, self._advanced_multi(one, tail.slot, queue_offset)
        else:
            next_offsets, slot = tails.next, tail.slot
            segment.wrote, next_offsets[slot] = end, queue_offset + 1
        self._bytes += one.size
        return Receipt(PUT_OK, physical_offset, one.size, queue_offset, now_ms, one.store_host)

    # -- one message into several queues (light message queues) --------------------------------------------

    def _multi_keys(self, one: Admitted, properties: dict[str, str]) -> list[QueueKey]:
        """The queues that names stand for; light queues are all queue 0, and there is a limit to their number."""
        names = properties[MULTI_DISPATCH].split(",")
        keys = [(name, 0 if self._is_light(name) else one.queue_id) for name in names]
        new = [key for key in dict.fromkeys(keys) if self._is_light(key[0]) and key not in self._tails.by_key]
        if new:
            room = self._light_queues_max - sum(tail.topic.startswith(LMQ_PREFIX) for tail in self._tails)
            if len(new) > room:
                raise AppendRefused(
                    f"{new[max(room, 0)][0]!r} is one light queue too many: maxLmqConsumeQueueNum is"
                    f" {self._light_queues_max:,}",
                    "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
                )
        return keys

    def _is_light(self, name: str) -> bool:
        return self._light_queues_max > 0 and name.startswith(LMQ_PREFIX)

    def _with_multi_offsets(self, one: Admitted) -> Admitted:
        """Write the message's offset in each further queue into its properties. Put lock held."""
        properties = decode_properties(one.properties)
        tails = [self._tails.by_key.get(key) for key in self._multi_keys(one, properties)]
        offsets = [0 if tail is None else self._tails.next[tail.slot] for tail in tails]
        properties[MULTI_QUEUE_OFFSET] = ",".join(map(str, offsets))
        properties.pop(WAIT, None)
        encoded = encode_properties(properties)
        size = one.size + len(encoded) - len(one.properties)
        self._admission.check_sizes(len(encoded), size)
        return msgspec.structs.replace(one, properties=encoded, size=size)

    def _advanced_multi(self, one: Admitted, slot: int, queue_offset: int) -> "array[int]":
        """Next offsets once the ones that the record says are taken. A name may be there twice, or be the message's own
        queue."""
        properties = decode_properties(one.properties)
        offsets = properties[MULTI_QUEUE_OFFSET].split(",")
        slots = [self._tails.obtain(*key).slot for key in self._multi_keys(one, properties)]
        advanced = self._tails.next[:]
        advanced[slot] = queue_offset + 1
        for other, offset in zip(slots, offsets, strict=True):
            advanced[other] = int(offset) + 1
        return advanced


def _nothing() -> None:
    """Nothing to wake: without a dispatcher."""


def _ignore_put(seconds: float, messages: int) -> None:
    """Without statistics, or where a put is not over yet."""
