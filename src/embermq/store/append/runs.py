"""Runs: many ordinary messages written into the log by one kernel call.

    list of Message  --kernel-->  rows, and a buffer with the parts  --kernel, under the put lock-->  records

The first kernel reads the objects in place. A message that is not ordinary (columns.plain.messages says what that is)
is admitted the plain way and keeps its place between two runs; so every list comes out as the same bytes as without
kernels, or with the same error. Batches that come as rows already are in packed.py.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import numpy as np

from embermq.columns import (
    N_RUN_COLUMNS,
    RowLimits,
    Rows,
    RowStop,
    RunBytes,
    RunLoops,
    pays,
    run_loops,
)
from embermq.model.hosts import Host
from embermq.model.message import Message, Receipt
from embermq.model.status import PutStatus
from embermq.settings import KernelUse
from embermq.store.append.admission import Admission, Admitted
from embermq.store.append.queue_tails import QueueTails

RUN_MESSAGES_MIN = 32
# Read at a time: what is copied then is still in the CPU's cache, and no thread waits long for the GIL.
RUN_MESSAGES_MAX = 4096
# Room for the parts of messages: as much for topic and properties of each, and at most so much in one piece.
PROPERTIES_BYTES = 256
BUFFER_BYTES_MAX = 4 << 20
# When more than one in so many is not ordinary, the plain way is the shorter one for all.
ORDINARY_PER_PLAIN_MIN = 4
# What a record has beside body, properties and born host of its message, and more; messages may share a topic.
RECORD_SLACK_BYTES = 256


class MessageRun(NamedTuple):
    """Messages as rows (columns.plain.runs); a row's queue is the slot of its tail. `room`: bytes they take at most."""

    parts: RunBytes
    rows: Rows
    room: int


class RunReader:
    """Makes runs of the messages for one store. Any thread, without the put lock."""

    def __init__(
        self, admission: Admission, tails: QueueTails, put_lock: Callable[[], threading.Lock], use: KernelUse
    ) -> None:
        """`put_lock` gives the put lock: it is another one after a fork."""
        self._admission, self._tails, self._put_lock, self._use = admission, tails, put_lock, use
        self.limits = RowLimits(admission.body_bytes_max, admission.record_bytes_max, len(admission.packed_store_host))
        self._seen = 0
        self._loops: RunLoops | None = None  # Loaded when they pay.

    @property
    def loops(self) -> RunLoops:
        """The compiled loops; `places` has the tails that messages may be sent to."""
        return self._loops or self.load()

    def load(self) -> RunLoops:
        """Load the loops, if they are not yet."""
        if self._loops is None:
            self._loops = run_loops()
        return self._loops

    def prefers_kernel(self, count: int, count_min: int = RUN_MESSAGES_MIN) -> bool:
        """Whether so many messages are worth a run; kernels are loaded when that has become worth it."""
        if count < count_min or self._use is KernelUse.NEVER:
            return False
        self._seen += count
        return pays("messages", self._seen, self._use)

    @property
    def are_kernels_ready(self) -> bool:
        """Whether kernels may be used and cost no loading, or are wanted at any price."""
        return pays("messages", 0, self._use)

    def read(self, messages: Sequence[Message]) -> list[MessageRun | Admitted]:
        """The messages as runs, and admitted ones in between; MessageRejected if one can never be stored."""
        parts: list[MessageRun | Admitted] = []
        rows = np.empty((len(messages), N_RUN_COLUMNS), np.int64)
        buffer = _Buffer(messages)
        done = plain = 0
        while done < len(messages) and plain * ORDINARY_PER_PLAIN_MIN <= len(messages):
            count, stop = self._read_run(messages, done, rows[done : done + RUN_MESSAGES_MAX], buffer, parts)
            done += count
            if stop is RowStop.PLAIN:
                parts.append(self._admission.admit(messages[done]))
                done += 1
                plain += 1
        parts.extend(self._admission.admit(message) for message in messages[done:])
        return parts

    def _read_run(
        self, messages: Sequence[Message], first: int, rows: Rows, buffer: "_Buffer", parts: list[MessageRun | Admitted]
    ) -> tuple[int, RowStop]:
        """Add one run of messages[first:] to `parts`, as long as it can be; how many messages, and why no more."""
        loops = self.loops
        done, begin = 0, buffer.used
        while True:
            filled, buffer.used, needed, stop = loops.read_messages(
                messages, first + done, loops.queues, self.limits, rows[done:], buffer.data, buffer.used
            )
            done += filled
            if stop is RowStop.PLACE:
                self.make_place(messages[first + done].topic, messages[first + done].queue_id)
            elif stop is RowStop.FULL and done == 0:
                buffer.renew(needed)
                begin = 0
            else:
                break
        if done:
            room = buffer.used - begin + RECORD_SLACK_BYTES * done
            parts.append(MessageRun(RunBytes(buffer.data, buffer.data, buffer.data), rows[:done], room))
        return done, stop

    def make_place(self, topic: str, queue_id: int) -> None:
        """Let the kernels know a queue; MessageRejected if there can be no such queue."""
        self._admission.check_place(topic, queue_id)
        with self._put_lock():
            tail = self._tails.obtain(topic, queue_id)
            if self.loops.queues.find(tail.name, tail.queue_id) < 0:
                self.loops.queues.add(tail.name, tail.queue_id, tail.slot)


class _Buffer:
    """Where the parts of messages are copied to; at first there is room for all of them if they are like the first."""

    __slots__ = ("_size", "data", "used")

    def __init__(self, messages: Sequence[Message]) -> None:
        body = getattr(messages[0], "body", b"")
        like = len(body) if body.__class__ is bytes else 0
        self._size = min(len(messages) * (like + PROPERTIES_BYTES), BUFFER_BYTES_MAX)
        self.renew(0)

    def renew(self, needed: int) -> None:
        """New room, for at least so many bytes; runs keep what was there before."""
        self.data, self.used = np.empty(max(self._size, needed), np.uint8), 0
        self._size = min(2 * self._size, BUFFER_BYTES_MAX)  # The first one may have been a small one.


class Receipts(Sequence[Receipt]):
    """The receipts of a run, made when looked at: a caller that appends thousands looks at few."""

    __slots__ = ("_host", "_placed", "_status", "_store_timestamp")

    def __init__(self, placed: Rows, store_timestamp: int, host: Host, status: PutStatus = PutStatus.PUT_OK) -> None:
        self._placed, self._store_timestamp, self._host, self._status = placed, store_timestamp, host, status

    def __len__(self) -> int:
        return len(self._placed)

    @overload
    def __getitem__(self, at: int) -> Receipt: ...

    @overload
    def __getitem__(self, at: slice) -> "Receipts": ...

    def __getitem__(self, at: int | slice) -> "Receipt | Receipts":
        if isinstance(at, slice):
            return Receipts(self._placed[at], self._store_timestamp, self._host, self._status)
        physical_offset, size, queue_offset = self._placed[at].tolist()
        return Receipt(self._status, physical_offset, size, queue_offset, self._store_timestamp, self._host)

    def __iter__(self) -> Iterator[Receipt]:
        for physical_offset, size, queue_offset in self._placed.tolist():
            yield Receipt(self._status, physical_offset, size, queue_offset, self._store_timestamp, self._host)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Receipts({list(self)!r})"

    def with_others(self, others: Mapping[int, Receipt]) -> list[Receipt]:
        """All receipts, some of which are others than these."""
        listed = list(self)
        for at, receipt in others.items():
            listed[at] = receipt
        return listed
