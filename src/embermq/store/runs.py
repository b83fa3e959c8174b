"""Runs: many ordinary messages written into the log by one kernel call.

A message is ordinary if it is not delayed, not part of a transaction, and leaves hosts to the store.
`make_run` turns a list of them into the kernel's columns, or answers None when one of them is not ordinary,
or not valid; the plain way then takes them all and says what is wrong.

Time is spent on the messages one by one, so whatever can be asked of all of them at once is: rare fields
are compared as tuples, separators counted over all properties joined together, lengths as columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import overload

import numpy as np

from embermq.format import runs as r
from embermq.format.columns import Rows
from embermq.format.frame import FIXED_BYTES, PROPERTIES_BYTES_MAX
from embermq.kernels import is_loaded
from embermq.model.hosts import Host
from embermq.model.message import Message, Receipt
from embermq.model.status import PutStatus
from embermq.settings import KernelUse
from embermq.store.queue_tails import QueueTail

RUN_MESSAGES_MIN = 32
# Loading the kernel takes as long as appending some ten thousand messages without it.
MESSAGES_BEFORE_KERNEL = 20_000

BORN_NOW = -1  # Stands for the time of the append until that is known.

PLACE = attrgetter("topic", "queue_id")
_TAGS_AND_KEYS = attrgetter("keys", "tags")
RARE = attrgetter(
    "delay_level", "flag", "sys_flag", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset",
    "wait_for_store",
)  # fmt: skip
PLAIN = RARE(Message("plain"))
_PROPERTIES = attrgetter("properties", "encoded_properties")
_NO_PROPERTIES = _PROPERTIES(Message("plain"))


_L, _W = b"LW"


def has_meaning_to_store(encoded: bytes) -> bool:
    """May one of these properties tell the store what to do? Asked of one property string, or of many joined."""
    if _L not in encoded and _W not in encoded:
        return False  # Each of the names has one of these letters, and a letter is found fast.
    return b"DELAY\x01" in encoded or b"WAIT\x01" in encoded or b"INNER_MULTI_DISPATCH\x01" in encoded


class Run:
    """Messages as columns: payload and rows as in format.runs; a row's queue is the slot of its tail."""

    __slots__ = ("payload", "rows")

    def __init__(self, payload: bytes, rows: Rows) -> None:
        self.payload, self.rows = payload, rows

    @property
    def largest_record(self) -> int:
        """Bytes of the largest record of the run."""
        parts = self.rows[:, r.R_BODY_LEN : r.R_PROPS_LEN + 1].sum(axis=1)
        return int(parts.max()) + FIXED_BYTES


class RunChoice:
    """When to use the kernel: at once, never, or when it is loaded or has become worth loading."""

    def __init__(self, use: KernelUse) -> None:
        self._use = use
        self._seen = 0

    def prefers_kernel(self, count: int) -> bool:
        if count < RUN_MESSAGES_MIN or self._use is KernelUse.NEVER:
            return False
        self._seen += count
        if self._use is KernelUse.ALWAYS or is_loaded("encode"):
            return True
        return self._seen >= MESSAGES_BEFORE_KERNEL


def make_run(
    messages: Sequence[Message], tails: list[QueueTail], store_host_number: int, body_bytes_max: int
) -> Run | None:
    """The messages, each going to the queue of its tail, as a run; or None."""
    if list(map(RARE, messages)).count(PLAIN) != len(messages):
        return None
    properties = _encoded_properties(messages)
    if properties is None:
        return None
    rows = np.zeros((len(messages), r.N_RUN_COLUMNS), np.int64)
    bodies = [m.body for m in messages]
    rows[:, r.R_BODY_LEN] = [len(body) for body in bodies]
    rows[:, r.R_PROPS_LEN] = [len(encoded) for encoded in properties]
    rows[:, r.R_BORN_HOST] = store_host_number
    borns = [m.born_timestamp for m in messages]
    all_now = borns.count(None) == len(borns)
    rows[:, r.R_BORN_TIME] = BORN_NOW if all_now else [BORN_NOW if born is None else born for born in borns]
    if rows[:, r.R_BODY_LEN].max() > body_bytes_max or rows[:, r.R_PROPS_LEN].max() > PROPERTIES_BYTES_MAX:
        return None
    names = _place(rows, tails)
    try:
        payload = b"".join(chain.from_iterable(zip(bodies, names, properties, strict=False)))
    except TypeError:
        return None  # A body that is no bytes: the plain way says so.
    return Run(payload, rows)


def _place(rows: Rows, tails: list[QueueTail]) -> Iterable[bytes]:
    """Put each message into its queue; the topic of each. Mostly they all go to the same one."""
    first = tails[0]
    if tails.count(first) == len(tails):
        rows[:, r.R_QUEUE] = first.slot
        rows[:, r.R_QUEUE_ID] = first.queue_id
        rows[:, r.R_TOPIC_LEN] = len(first.name)
        return repeat(first.name)
    names = [tail.name for tail in tails]
    rows[:, r.R_QUEUE] = [tail.slot for tail in tails]
    rows[:, r.R_QUEUE_ID] = [tail.queue_id for tail in tails]
    rows[:, r.R_TOPIC_LEN] = [len(name) for name in names]
    return names


def _encoded_properties(messages: Sequence[Message]) -> list[bytes] | None:
    """The property string of each message, or None if one of them needs a closer look."""
    if list(map(_PROPERTIES, messages)).count(_NO_PROPERTIES) == len(messages):
        texts = _tags_and_keys(messages)
        return None if texts is None else [text.encode() for text in texts]
    encoded = [message.property_bytes() for message in messages]
    return None if has_meaning_to_store(b"\x02".join(encoded)) else encoded


def _tags_and_keys(messages: Sequence[Message]) -> list[str] | None:
    """The property string of each message, or None if one of them needs a closer look."""
    texts: list[str] = []
    pairs = joints = 0
    for keys, tags in map(_TAGS_AND_KEYS, messages):
        if keys.__class__ is not str:
            if len(keys) == 1:
                keys = keys[0]
                if " " in keys or not keys:
                    return None
            else:
                joined = " ".join(keys)
                if joined.split(" ") != list(keys) and joined:
                    return None
                keys = joined
        if keys:
            pairs += 1
            if tags:
                joints += 1
                texts.append(f"KEYS\x01{keys}\x02TAGS\x01{tags}")
            else:
                texts.append(f"KEYS\x01{keys}")
        elif tags:
            pairs += 1
            texts.append(f"TAGS\x01{tags}")
        else:
            texts.append("")
    together = "".join(texts)
    fits = together.isascii() and together.count("\x01") == pairs + joints and together.count("\x02") == joints
    return texts if fits else None


class Receipts(Sequence[Receipt]):
    """The receipts of a run, made when looked at: whoever appends thousands looks at few."""

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

    def with_status(self, status: PutStatus) -> "Receipts":
        return Receipts(self._placed, self._store_timestamp, self._host, status)

