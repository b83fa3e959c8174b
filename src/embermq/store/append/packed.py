"""Packed batches: messages as columns and bytes, stored without an object for each.

    rows + bytes  --kernel: judge-->  runs  --kernel, under the put lock-->  records  -->  rows of receipts

A row (columns.plain.runs says what its numbers are) points to the parts of a message in three byte strings, which can
be the buffer a network connection was read into. Nothing in a row is trusted; each length is compared with its buffer.
A row that is not ordinary (delayed, asked to skip the disk, dispatched to several queues) becomes a Message and goes
the plain way in its place; so a batch gives the same bytes with kernels and without.

What is refused: a row that can never be stored (its name, a limit, a part outside of its buffer) is refused alone, and
the others are stored. When the next log file cannot be created, the rows that did not fit into this one are refused.
`PackedReceipts.refused` has the error of each. An *exception* says that nothing of the batch was stored: the store is
closed, fenced, full or busy.

Completion is one number: the batch is durable when the flushed offset has reached `PackedReceipts.end`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    BORN_NOW,
    N_RUN_COLUMNS,
    P_PHYSICAL,
    P_QUEUE_OFFSET,
    P_SIZE,
    R_BODY_AT,
    R_BODY_LEN,
    R_BORN_TIME,
    R_FLAG,
    R_HOST_AT,
    R_HOST_LEN,
    R_PREPARED,
    R_PROPS_AT,
    R_PROPS_LEN,
    R_QUEUE_ID,
    R_RECONSUME,
    R_SYS_FLAG,
    R_TOPIC_AT,
    R_TOPIC_LEN,
    Rows,
    RowStop,
    RunBytes,
)
from embermq.errors import AppendRefused, MessageRejected, SegmentUnavailable, StoreError, again
from embermq.model.hosts import Host, unpack_host
from embermq.model.message import Message, Receipt
from embermq.model.status import PutStatus
from embermq.store.append.admission import Admission, Admitted
from embermq.store.append.flush import Waiter
from embermq.store.append.runs import MessageRun, Receipts, RunReader

# A batch of fewer rows is stored sooner without kernels.
PACKED_MESSAGES_MIN = 4
_HOST_LENGTHS = (0, 8, 20)


class PackedBatch:
    """Messages as rows of numbers, and the bytes these point into. Both are lent for the time of the append.

    `rows` are int64, one row a message, as `columns.new_run_rows` makes them; the store fills in the column R_QUEUE.
    """

    __slots__ = ("parts", "rows")

    def __init__(self, rows: Rows, *, bodies: Any, topics: Any, properties: Any = b"") -> None:
        if rows.ndim != 2 or rows.shape[1] != N_RUN_COLUMNS or rows.dtype != np.int64 or not rows.flags.c_contiguous:
            raise StoreError(f"a packed batch has rows of {N_RUN_COLUMNS} 64-bit numbers, one behind another")
        if not rows.flags.writeable:
            raise StoreError("the rows of a packed batch cannot be written to")
        self.rows = rows
        self.parts = RunBytes(*(np.frombuffer(data, np.uint8) for data in (bodies, topics, properties)))

    def __len__(self) -> int:
        return len(self.rows)

    def topic(self, i: int) -> str:
        """The topic of a row; what is no UTF-8 comes out as a name that is not allowed."""
        return self._part(i, "topic", self.parts.topics, R_TOPIC_AT, R_TOPIC_LEN).decode("utf-8", "replace")

    def message(self, i: int) -> Message:
        """A row as a Message; MessageRejected if its parts do not lie in the bytes of the batch."""
        row = self.rows[i].tolist()
        if row[R_HOST_LEN] not in _HOST_LENGTHS:
            raise MessageRejected(f"row {i}: a packed born host has 8 or 20 bytes, not {row[R_HOST_LEN]}")
        host = self._part(i, "born host", self.parts.properties, R_HOST_AT, R_HOST_LEN) if row[R_HOST_LEN] else b""
        return Message(
            topic=self.topic(i),
            body=self._part(i, "body", self.parts.bodies, R_BODY_AT, R_BODY_LEN),
            queue_id=row[R_QUEUE_ID],
            flag=row[R_FLAG],
            sys_flag=row[R_SYS_FLAG],
            born_timestamp=None if row[R_BORN_TIME] == BORN_NOW else row[R_BORN_TIME],
            born_host=unpack_host(host) if host else None,
            reconsume_times=row[R_RECONSUME],
            prepared_transaction_offset=row[R_PREPARED],
            encoded_properties=self._part(i, "property string", self.parts.properties, R_PROPS_AT, R_PROPS_LEN),
        )

    def _part(self, i: int, name: str, data: NDArray[np.uint8], at_column: int, length_column: int) -> bytes:
        at, length = int(self.rows[i, at_column]), int(self.rows[i, length_column])
        if not 0 <= at <= len(data) - length or length < 0:
            raise MessageRejected(f"row {i}: its {name}, {length} bytes from {at} on, is not in the {len(data)} given")
        return data[at : at + length].tobytes()


class Durability(Protocol):
    """The part of the flusher that those need who wait for a position of the log."""

    def wait(self, end: int) -> bool: ...

    def when_durable(self, end: int, callback: Callable[[Waiter], None]) -> None: ...


class PackedReceipts:
    """Where the messages of a batch are, as arrays; and when they are as durable as the settings promise.

    A refused row has size 0. `end` is where the last stored message ends, 0 if none was stored.
    """

    __slots__ = ("_durability", "_placed", "end", "refused", "store_host", "store_timestamp")

    def __init__(
        self,
        placed: Rows,
        store_timestamp: int,
        store_host: Host,
        refused: Mapping[int, StoreError],
        durability: Durability | None,
    ) -> None:
        """`durability` is None if there is nothing to wait for."""
        self._placed, self.store_timestamp, self.store_host, self.refused = placed, store_timestamp, store_host, refused
        self._durability = durability
        stored = placed if not refused else placed[placed[:, P_SIZE] > 0]
        self.end = int(stored[-1, P_PHYSICAL] + stored[-1, P_SIZE]) if len(stored) else 0

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def placed(self) -> Rows:
        """Physical offset, size and queue offset of each (columns P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET); not to be
        changed."""
        return self._placed

    @property
    def waits(self) -> bool:
        """Whether there is something to wait for before the messages are as durable as the settings promise."""
        return self._durability is not None

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        return self._placed[:, P_PHYSICAL]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each record; 0: refused."""
        return self._placed[:, P_SIZE]

    @property
    def queue_offsets(self) -> NDArray[np.int64]:
        return self._placed[:, P_QUEUE_OFFSET]

    @property
    def store_timestamps(self) -> NDArray[np.int64]:
        """A batch is stored in one moment; 0: refused."""
        return np.where(self.sizes > 0, self.store_timestamp, 0)

    @property
    def stored(self) -> int:
        """How many messages were stored."""
        return len(self._placed) - len(self.refused)

    def in_order(self, status: PutStatus) -> Receipts:
        """The receipts of a batch of which nothing was refused, with this status."""
        assert not self.refused
        return Receipts(self._placed, self.store_timestamp, self.store_host, status)

    def status(self, row: int) -> PutStatus:
        """What RocketMQ would answer to the sender of this row, if the disk is not late."""
        error = self.refused.get(row)
        return PutStatus.PUT_OK if error is None else PutStatus(getattr(error, "status", "UNKNOWN_ERROR"))

    def receipt(self, row: int) -> Receipt:
        """The receipt of one row; raises its error if it was refused."""
        if row in self.refused:
            raise again(self.refused[row])
        physical_offset, size, queue_offset = self._placed[row].tolist()
        return Receipt(PutStatus.PUT_OK, physical_offset, size, queue_offset, self.store_timestamp, self.store_host)

    # -- completion --------------------------------------------------------------------------------------------

    def wait(self) -> PutStatus:
        """Block until what was stored is as durable as the settings promise: PUT_OK, or FLUSH_DISK_TIMEOUT.

        AppendRefused if it cannot become durable any more."""
        if self._durability is None or self._durability.wait(self.end):
            return PutStatus.PUT_OK
        return PutStatus.FLUSH_DISK_TIMEOUT

    def when_done(self, callback: Callable[[PutStatus | AppendRefused], None]) -> None:
        """Call back once with what `wait` would answer or raise: on the flusher's thread, or now if there is nothing to
        wait for."""
        if self._durability is None:
            callback(PutStatus.PUT_OK)
            return
        self._durability.when_durable(self.end, lambda waiter: callback(_outcome(waiter)))


def _outcome(waiter: Waiter) -> PutStatus | AppendRefused:
    if waiter.failure is None:
        return PutStatus.PUT_OK
    if isinstance(waiter.failure, AppendRefused):
        return again(waiter.failure)
    return PutStatus.FLUSH_DISK_TIMEOUT


class PackedPart(NamedTuple):
    """Rows of a batch from `first` on that are stored in one go: a run, or one message admitted the plain way."""

    first: int
    content: MessageRun | Admitted


class PackedReader:
    """Judges the rows of batches for one store. Any thread, without the put lock."""

    def __init__(self, admission: Admission, runs: RunReader) -> None:
        self._admission, self._runs = admission, runs

    def read(self, batch: PackedBatch, refused: dict[int, StoreError]) -> list[PackedPart]:
        """The batch as parts to be stored in this order; rows that never can be are put into `refused`."""
        parts: list[PackedPart] = []
        if not self._runs.prefers_kernel(len(batch), PACKED_MESSAGES_MIN):
            for i in range(len(batch)):
                self._admit_plainly(batch, i, parts, refused)
            return parts
        loops, rows = self._runs.loops, batch.rows
        first = at = room = 0
        while at < len(rows):
            at, record_bytes, stop = loops.admit_rows(batch.parts, rows, at, loops.queues, self._runs.limits)
            room += record_bytes
            if stop is RowStop.PLACE and self._make_place(batch, at, refused):
                continue
            if first < at:
                parts.append(PackedPart(first, MessageRun(batch.parts, rows[first:at], room)))
            if stop is RowStop.PLAIN:
                self._admit_plainly(batch, at, parts, refused)
            at += 1
            first, room = at, 0
        return parts

    def _admit_plainly(
        self, batch: PackedBatch, i: int, parts: list[PackedPart], refused: dict[int, StoreError]
    ) -> None:
        try:
            parts.append(PackedPart(i, self._admission.admit(batch.message(i))))
        except MessageRejected as problem:
            refused[i] = problem

    def _make_place(self, batch: PackedBatch, i: int, refused: dict[int, StoreError]) -> bool:
        """Let the kernels know the queue of a row; False if there can be no such queue."""
        try:
            self._runs.make_place(batch.topic(i), int(batch.rows[i, R_QUEUE_ID]))
        except MessageRejected as problem:
            refused[i] = problem
            return False
        return True


def refuse_the_rest(placed: Rows, refused: dict[int, StoreError], reason: SegmentUnavailable) -> None:
    """Refuse the rows that were not reached; raise the reason if nothing was stored at all."""
    missing = np.flatnonzero(placed[:, P_SIZE] == 0).tolist()
    if len(missing) == len(placed):
        raise reason
    for row in missing:
        refused.setdefault(row, reason)
