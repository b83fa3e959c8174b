"""Runs: many ordinary messages written into the log by one kernel call.

    list of Message  --msgspec-->  packed bytes  --kernel-->  rows  --kernel, under the put lock-->  records

Nothing is asked of the messages one by one but what their fields are made of: the serialiser takes more types than
the store does (an enumeration for its value, a date for its text). A message that is not ordinary (format.messages
says what that is) is admitted the plain way and keeps its place between two runs; so every list comes out as the
same bytes as without kernels, or with the same error. Batches that come as rows already are in packed.py.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, overload

import msgspec
import numpy as np

from embermq.columns import (
    N_RUN_COLUMNS,
    R_HOST_LEN,
    PackedStop,
    RowLimits,
    Rows,
    RunBytes,
    RunLoops,
    list_head_bytes,
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
# Packed at a time: what is read then is still in the CPU's cache, and no thread waits long for the GIL.
PACKED_MESSAGES_MAX = 4096
# When more than one in so many is not ordinary, the plain way is the shorter one for all.
ORDINARY_PER_PLAIN_MIN = 4
# What a record has beside the parts of its message, and more.
RECORD_SLACK_BYTES = 160

_PACKER = msgspec.msgpack.Encoder()
# What the packer answers to something it does not know, too large a number, a lone surrogate, a view with gaps.
_NOT_PACKED = (TypeError, OverflowError, ValueError, BufferError)
_NO_KEYS = Message("").keys
_NO_PROPERTIES = Message("").properties


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
        """The compiled loops; `queues` has the tails that messages may be sent to."""
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

    def read(self, messages: Sequence[Message]) -> list[MessageRun | Admitted] | None:
        """The messages as runs, and admitted ones in between; None when all of them should go the plain way.

        MessageRejected if one can never be stored.
        """
        if not has_plain_types(messages):
            return None
        parts: list[MessageRun | Admitted] = []
        for start in range(0, len(messages), PACKED_MESSAGES_MAX):
            some = messages if len(messages) <= PACKED_MESSAGES_MAX else messages[start : start + PACKED_MESSAGES_MAX]
            try:
                packed = _PACKER.encode(some)
            except _NOT_PACKED:
                return None
            if not self._read_some(some, packed, parts):
                return None
        return parts

    def _read_some(self, messages: Sequence[Message], packed: bytes, parts: list[MessageRun | Admitted]) -> bool:
        """Add what `packed` holds to `parts`; False if too little of it is ordinary."""
        admission, loops = self._admission, self.loops
        rows = np.empty((len(messages), N_RUN_COLUMNS), np.int64)
        properties = np.empty(len(packed), np.uint8)
        whole = RunBytes(packed, packed, properties)
        at, used, done, plain = list_head_bytes(len(messages)), 0, 0, 0
        first = 0  # of the run being read
        while done < len(messages):
            filled, at, used, stop = loops.read_messages(
                packed,
                at,
                loops.queues,
                *self.limits,
                rows[done:],
                properties,
                used,
            )
            done += filled
            assert stop is not PackedStop.BROKEN, (at, len(packed))
            if stop is PackedStop.PLACE:
                self.make_place(messages[done].topic, messages[done].queue_id)
            elif stop is PackedStop.PLAIN:
                plain += 1
                if plain == 1 and not has_plain_hosts(messages):
                    return False
                if plain * ORDINARY_PER_PLAIN_MIN > len(messages):
                    return False
                if first < done:
                    parts.append(_run_of(whole, rows[first:done]))
                parts.append(admission.admit(messages[done]))
                done += 1
                first = done
        if first < done:
            parts.append(_run_of(whole, rows[first:done]))
        return plain > 0 or not rows[:, R_HOST_LEN].any() or has_plain_hosts(messages)

    def make_place(self, topic: str, queue_id: int) -> None:
        """Let the kernels know a queue; MessageRejected if there can be no such queue."""
        self._admission.check_place(topic, queue_id)
        with self._put_lock():
            tail = self._tails.obtain(topic, queue_id)
            if self.loops.queues.find(tail.name, tail.queue_id) < 0:
                self.loops.queues.add(tail.name, tail.queue_id, tail.slot)


def _run_of(parts: RunBytes, rows: Rows) -> MessageRun:
    """Rows that the reader made of packed messages: no part of one is there twice."""
    return MessageRun(parts, rows, len(parts.bodies) + len(parts.properties) + RECORD_SLACK_BYTES * len(rows))


def has_plain_types(messages: Sequence[Message]) -> bool:
    """Whether the packer and the store read the same out of these: nothing but plain types where it would matter."""
    for message in messages:
        if (
            message.__class__ is not Message
            or message.topic.__class__ is not str
            or message.queue_id.__class__ is not int
            or message.body.__class__ is not bytes
        ):
            return False
        tags, keys, properties = message.tags, message.keys, message.properties
        if tags is not None and tags.__class__ is not str:
            return False
        if keys is not _NO_KEYS and keys.__class__ is not str and not _is_list_of_texts(keys):
            return False
        if properties is not _NO_PROPERTIES and not _is_dict_of_texts(properties):
            return False
    return True


def has_plain_hosts(messages: Sequence[Message]) -> bool:
    """The same of born hosts; asked only where there are some."""
    hosts = [message.born_host for message in messages]
    return all(host is None or (host.__class__ is Host and host.address.__class__ is str) for host in hosts)


def _is_list_of_texts(keys: object) -> bool:
    return isinstance(keys, list | tuple) and all(key.__class__ is str for key in keys)


def _is_dict_of_texts(properties: object) -> bool:
    if properties.__class__ is not dict:
        return False
    assert isinstance(properties, dict)
    return all(name.__class__ is str and value.__class__ is str for name, value in properties.items())


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
