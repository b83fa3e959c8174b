"""Runs of ends: many END_TRANSACTION frames, of one connection or of many, decided by one append and answered together.

    bytes of the connections, the log  --kernel-->  rows: final and op records  --one append-->  answers

The kernel (columns/plain/ends.py) takes ordinary ends only. What remains is compared here with the undecided half
messages; an end of one that is decided, or that was asked about, is left to the plain path (requests.py) with what
follows it on its connection. The plain path stays the reference: an end of a run gets, byte for byte, the records and
the response that it would get there. The final and the op record of each lie side by side, and all records of a run in
one log file; where the store refuses a run, nothing of it is stored, and the plain path answers each end.

The loop's thread.
"""

import logging
import struct
from collections.abc import Sequence

from embermq.broker.answers import PUT_CODES, Acknowledgements
from embermq.broker.statistics import Statistics
from embermq.broker.transactions.half_messages import op_of
from embermq.broker.transactions.requests import NEAR_BYTES, Transactions
from embermq.columns import (
    P_QUEUE_OFFSET,
    P_SIZE,
    R_QUEUE_ID,
    R_TOPIC_AT,
    R_TOPIC_LEN,
    EndOf,
    EndRun,
    EndStop,
    HalfLog,
    Rows,
    end_reader,
)
from embermq.errors import StoreError
from embermq.model.hosts import Host, pack_host
from embermq.model.status import PutStatus
from embermq.remoting import (
    BINARY,
    JSON,
    MAX_FRAME_BYTES,
    Command,
    Link,
    Piece,
    Reply,
    RequestCode,
    answer,
    encode_frame,
)
from embermq.store import MessageStore, PackedBatch

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">iI")
_OPAQUE = 2_111_111_111  # stands in the template while it is made
_BINARY_OPAQUE_AT = 13  # behind the head of the frame, code, language and version


class EndRuns:
    """Takes the ends of transactions out of what connections give."""

    def __init__(
        self,
        store: MessageStore,
        transactions: Transactions,
        acknowledgements: Acknowledgements,
        statistics: Statistics,
    ) -> None:
        self._store, self._transactions = store, transactions
        self._acknowledgements, self._statistics = acknowledgements, statistics
        self._store_host = pack_host(Host(*store.settings.store_host))
        self._run: EndRun | None = None
        self._before, self._after = _response(_OPAQUE, False, Reply())[_HEAD.size :].split(b"%d" % _OPAQUE)
        self._binary = _response(_OPAQUE, True, Reply())

    def take(self, pieces: Sequence[Piece]) -> bool:
        """Decide and answer the ends at the beginning of each piece; whether there were any. Kernels are loaded."""
        window = self._store.internal.log_tail(NEAR_BYTES) if len(self._transactions.undecided) else None
        if window is None:
            return False
        half_log = HalfLog(window.data, window.base, self._store_host)
        run = self._run = self._run or _new_run()
        run.lay([(piece.buffer, piece.at) for piece in pieces])
        links = [piece.link for piece in pieces]
        stop, is_taken = EndStop.FULL, False
        while stop is not EndStop.ALL:
            stop = run.read(half_log)
            number = self._first_unusual(run.ends)
            if number is not None:
                run.cut(number)
                stop = EndStop.FULL
            if run.ends:
                if not self._decide(run, links):
                    break
                is_taken = True
        for number, piece in enumerate(pieces):
            piece.at = run.taken_to(number)
        return is_taken

    def _first_unusual(self, ends: list[EndOf]) -> int | None:
        """The first end whose half message is decided, was asked about, or is named by an end before it."""
        entry_of, named = self._transactions.undecided.entry, set()
        for number, end in enumerate(ends):
            entry = entry_of(end.half_offset)
            if entry is None or entry.checks or entry.physical_offset != end.place or end.half_offset in named:
                return number
            named.add(end.half_offset)
        return None

    def _decide(self, run: EndRun, links: list[Link]) -> bool:
        """Store the decisions, and answer; False if the store refuses, and nothing is stored."""
        parts = run.parts
        try:
            placed, wait_for = self._store.internal.append_packed(
                PackedBatch(run.rows, bodies=parts, topics=parts, properties=parts)
            )
        except StoreError:
            run.give_back()  # The plain path says why, to each.
            return False
        ends = run.ends
        decided = self._transactions.undecided.decided
        for end, op_offset in zip(ends, placed[[end.op_row for end in ends], P_QUEUE_OFFSET].tolist(), strict=True):
            decided(end.half_offset, op_offset)
        self._count(run, placed)
        self._answer(ends, links, wait_for)
        return True

    def _count(self, run: EndRun, placed: Rows) -> None:
        finals = [end.op_row - 1 for end in run.ends if end.is_commit]
        totals: dict[tuple[bytes, int], list[int]] = {}
        parts, rows = run.parts.data, run.rows[finals][:, (R_TOPIC_AT, R_TOPIC_LEN, R_QUEUE_ID)].tolist()
        for (topic_at, topic_len, queue_id), size in zip(rows, placed[finals, P_SIZE].tolist(), strict=True):
            total = totals.setdefault((bytes(parts[topic_at : topic_at + topic_len]), queue_id), [0, 0])
            total[0] += 1
            total[1] += size
        for (topic, queue_id), (count, size) in totals.items():
            self._statistics.put(topic.decode(), queue_id, count, size, sends=count)

    # -- answers -----------------------------------------------------------------------------------------------

    def _answer(self, ends: list[EndOf], links: list[Link], wait_for: int) -> None:
        """Answer all of them, when their records are as durable as the settings promise."""
        by_piece: dict[int, list[EndOf]] = {}
        for end in ends:
            by_piece.setdefault(end.piece, []).append(end)
        waiting: list[tuple[Link, list[EndOf]]] = []
        for piece, listed in by_piece.items():
            answered = [end for end in listed if not end.is_oneway]
            links[piece].begin_run(len(answered), len(listed) - len(answered))
            if answered:
                waiting.append((links[piece], answered))
        if not wait_for:
            for link, answered in waiting:
                link.answer_run(len(answered), b"".join(map(self._decided, answered)))
            return

        def release(status: PutStatus, reason: str | None) -> None:
            reply = Reply(PUT_CODES[status], reason)
            for link, answered in waiting:
                made = [_response(end.opaque, bool(end.is_binary), reply) for end in answered]
                link.answer_run(len(answered), b"".join(made))

        self._acknowledgements.when_durable(wait_for, release)

    def _decided(self, end: EndOf) -> bytes:
        """The response to an end that was stored."""
        if end.is_binary:
            at = _BINARY_OPAQUE_AT
            return self._binary[:at] + end.opaque.to_bytes(4, "big", signed=True) + self._binary[at + 4 :]
        header = b"%b%d%b" % (self._before, end.opaque, self._after)
        return _HEAD.pack(4 + len(header), len(header)) + header


def _new_run() -> EndRun:
    op = op_of(0)
    return EndRun(end_reader(), op.topic.encode(), op.property_bytes(), MAX_FRAME_BYTES)


def _response(opaque: int, is_binary: bool, reply: Reply) -> bytes:
    request = Command(RequestCode.END_TRANSACTION, opaque, serialization=BINARY if is_binary else JSON)
    return encode_frame(answer(request, reply))
