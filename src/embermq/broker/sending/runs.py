"""Runs of sends: many frames, of one connection or of many, stored by one packed append and answered together.

    bytes of the connections  --kernel-->  rows  --store.append_packed-->  places  --kernel-->  responses

A few frames are read by the same kernel and stored one by one.

What a run may hold is decided in two places: the kernel (columns/plain/sends.py) takes only ordinary sends and ordinary
half messages, and `Sends.flags_at` says, by the checks of the plain path itself, to which queues; what it said is
forgotten when the settings or the topics change. Everything else is left to the plain path (sends.py), which stays the
reference: a frame of a run gets, byte for byte, the record and the response that it would get there.

Kernels are loaded by another thread, once there is traffic; until then every send takes the plain path. Under
SYNC_FLUSH a run waits for the disk as one. The loop's thread, but for what a comment says.
"""

import logging
from collections.abc import Callable, Sequence

from embermq.broker.answers import Acknowledgements
from embermq.broker.sending.sends import Sends
from embermq.broker.statistics import Statistics
from embermq.broker.tables import TopicTable
from embermq.broker.transactions import Transactions
from embermq.columns import (
    ID_DIGITS,
    FrameOf,
    ReplyTemplate,
    SendLoops,
    SendRun,
    SendStop,
    ShortSend,
    pays,
    send_loops,
)
from embermq.errors import StoreError
from embermq.model.hosts import Host
from embermq.model.message import Message, Receipt
from embermq.model.properties import HALF_TOPIC
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
    ResponseCode,
    answer,
    encode_frame,
)
from embermq.settings import BrokerSettings, KernelUse
from embermq.store import MessageStore, PackedBatch, PackedReceipts
from embermq.store.tables import DataVersion

log = logging.getLogger(__name__)

Replies = list[tuple[Link, int, bytes]]  # of each connection: how many, and their frames
# So few are stored one by one: it takes less time than making arrays of them.
ONE_BY_ONE_MAX = 4
# No send is shorter: eight header fields, each with a name, a value and their lengths.
SEND_FRAME_BYTES_MIN = 64
# Numbers that stand in the gaps of a template while it is made.
_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET = 2_111_111_111, 1_222_222_222, 3_333_333_333


class SendRuns:
    """Takes the sends out of what connections give."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        sends: Sends,
        transactions: Transactions,
        acknowledgements: Acknowledgements,
        statistics: Statistics,
    ) -> None:
        self._settings, self._store, self._topics, self._sends = settings, store, topics, sends
        self._transactions = transactions
        self._acknowledgements, self._statistics = acknowledgements, statistics
        self._seen = 0
        self._loops: SendLoops | None = None
        self._run: SendRun | None = None
        self._made_for: tuple[BrokerSettings, DataVersion] | None = None
        self._places: list[tuple[str, int]] = []
        statistics.collects_from(self._collect_counts)

    # -- kernels -----------------------------------------------------------------------------------------------

    def is_ready(self, frames: int) -> bool:
        """Whether runs can be taken; kernels are loaded when enough frames have come."""
        if self._loops is not None:
            return self._sends.takes_runs()
        use = self._store.settings.kernels
        if use is KernelUse.NEVER:
            return False
        self._seen += frames
        if not pays("sends.frames", self._seen, use):
            return False
        self._loops = send_loops()
        return self._sends.takes_runs()

    # -- runs --------------------------------------------------------------------------------------------------

    def take(self, pieces: Sequence[Piece]) -> None:
        """Store and answer the sends at the beginning of each piece."""
        run = self._current_run()
        frames_max = sum(len(piece.buffer) - piece.at for piece in pieces) // SEND_FRAME_BYTES_MIN
        run.lay(pieces, takes_halves=self._transactions.takes_halves(frames_max))
        run.begin_part()
        links = [piece.link for piece in pieces]
        stop = SendStop.FULL
        while stop is not SendStop.ALL:
            stop = run.read()
            if stop is SendStop.PLACE:
                self._let_in(run)
                continue
            if run.count:
                self._store_part(run, links)
                run.begin_part()
        for piece, at in zip(pieces, run.taken_to(), strict=True):
            piece.at = at

    def _current_run(self) -> SendRun:
        """With the places and answers that are right now."""
        now = (self._settings(), self._topics.version)
        if self._run is None or self._made_for is None or not _are_same(self._made_for, now):
            assert self._loops is not None
            self._collect_counts()
            template = reply_template(self._sends, Host(*self._store.settings.store_host))
            self._run = SendRun(self._loops.with_no_places(), now[0].cluster_name, template, MAX_FRAME_BYTES)
            self._made_for, self._places = now, []
        return self._run

    def _collect_counts(self) -> None:
        if self._run is not None:
            for place, count, size in self._run.take_counts():
                self._statistics.put(*self._places[place], count, size, sends=count)

    def _let_in(self, run: SendRun) -> None:
        """Let in the queue that the run wants, if messages to it may be stored many at once."""
        name, queue_id = run.wanted
        topic = name.decode("ascii")
        sys_flags = self._sends.flags_at(topic, queue_id) if run.has_room_for_places else None
        if sys_flags is None:
            run.pass_over()
        else:
            run.let_in(name, queue_id, sys_flags)
            self._places.append((topic, queue_id))

    def _store_part(self, run: SendRun, links: list[Link]) -> None:
        if run.count <= ONE_BY_ONE_MAX:
            for send in run.one_by_one():
                self._store_one(run, links[send.piece], send)
            return
        for piece, count in run.by_piece():
            links[piece].begin_run(count)
        batch = PackedBatch(run.rows, bodies=run.data, topics=run.data, properties=run.properties)
        try:
            receipts = self._store.append_packed(batch)
        except Exception as problem:
            refusal = self._refusal(problem, run.count)
            _answer(self._each(run.frames(), links, lambda _number: refusal))
            return
        run.count_places(receipts.sizes)
        self._transactions.stored_halves(run.halves(), receipts)
        if receipts.waits or self._acknowledgements.waits_for_slave:
            self._answer_when_durable(run, links, receipts)
        elif receipts.refused:
            frames = run.frames()
            _answer(self._each(frames, links, self._reply_of(frames, receipts, PutStatus.PUT_OK, None)))
        else:
            for piece, count, made in run.replies(receipts.placed):
                links[piece].answer_run(count, made)

    def _store_one(self, run: SendRun, link: Link, send: ShortSend) -> None:
        """Store a message by itself: the checks of the plain path were made when its queue was let in."""
        topic, queue_id = self._places[send.place]
        link.begin_run(1)
        message = Message(
            HALF_TOPIC if send.is_half else topic,
            send.body,
            queue_id=0 if send.is_half else queue_id,
            flag=send.flag,
            sys_flag=send.sys_flag,
            born_timestamp=send.born_time,
            born_host=link.host,
            reconsume_times=send.reconsume_times,
            encoded_properties=send.properties,
        )
        try:
            append = self._transactions.append_half if send.is_half else self._store.append_unconfirmed
            receipt, wait_for = append(message)
        except Exception as problem:
            refusal = self._refusal(problem, 1)
            link.answer_run(1, _response(send.opaque, bool(send.is_binary), refusal))
            return
        self._statistics.put(topic, queue_id, 1, receipt.size)
        made = run.reply(send, receipt.physical_offset, receipt.queue_offset)
        if not wait_for:
            link.answer_run(1, made)
            return

        def release(status: PutStatus, reason: str | None) -> None:
            is_stored = status is PutStatus.PUT_OK
            reply = None if is_stored else self._sends.stored(receipt, status, reason, queue_id)
            link.answer_run(1, made if reply is None else _response(send.opaque, bool(send.is_binary), reply))

        self._acknowledgements.when_durable(wait_for, release)

    def _refusal(self, problem: Exception, count: int) -> Reply:
        """The answer to each send of a run of which nothing was stored."""
        if isinstance(problem, StoreError):
            return self._sends.not_stored(problem)
        log.error("event=run_failed messages=%d", count, exc_info=problem)
        return Reply(ResponseCode.SYSTEM_ERROR, "a run of sends failed in the server; its log says why")

    # -- answers -----------------------------------------------------------------------------------------------

    def _answer_when_durable(self, run: SendRun, links: list[Link], receipts: PackedReceipts) -> None:
        """All of a run wait for the same place in the log, with them what was refused of it."""
        if receipts.refused:
            listed = run.frames()
            replies = self._each(listed, links, self._reply_of(listed, receipts, PutStatus.PUT_OK, None))
        else:
            replies = [(links[piece], count, made) for piece, count, made in run.replies(receipts.placed)]
        frames_of = run.frames_later()

        def release(status: PutStatus, reason: str | None) -> None:
            if status is PutStatus.PUT_OK:
                _answer(replies)
            else:
                frames = frames_of()
                _answer(self._each(frames, links, self._reply_of(frames, receipts, status, reason)))

        self._acknowledgements.when_durable(receipts.end, release)

    def _reply_of(
        self, frames: list[FrameOf], receipts: PackedReceipts, status: PutStatus, reason: str | None
    ) -> Callable[[int], Reply]:
        def reply_of(number: int) -> Reply:
            problem = receipts.refused.get(number)
            if problem is not None:
                return self._sends.not_stored(problem)
            return self._sends.stored(receipts.receipt(number), status, reason, frames[number].queue_id)

        return reply_of

    @staticmethod
    def _each(frames: list[FrameOf], links: list[Link], reply_of: Callable[[int], Reply]) -> Replies:
        """Responses that are made one by one, joined by connection."""
        made: dict[int, list[bytes]] = {}
        for number, frame in enumerate(frames):
            made.setdefault(frame.piece, []).append(_response(frame.opaque, frame.is_binary, reply_of(number)))
        return [(links[piece], len(joined), b"".join(joined)) for piece, joined in made.items()]


def _answer(replies: Replies) -> None:
    for link, count, frames in replies:
        link.answer_run(count, frames)


def _response(opaque: int, is_binary: bool, reply: Reply) -> bytes:
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque, serialization=BINARY if is_binary else JSON)
    return encode_frame(answer(request, reply))


def _are_same(one: tuple[BrokerSettings, DataVersion], other: tuple[BrokerSettings, DataVersion]) -> bool:
    return one[0] is other[0] and one[1] is other[1]


# -- templates ---------------------------------------------------------------------------------------------------


def reply_template(sends: Sends, host: Host) -> ReplyTemplate:
    """What the plain path answers to a send, with gaps where answers differ."""
    receipt = Receipt(PutStatus.PUT_OK, 0, 1, _QUEUE_OFFSET, 0, host)
    reply = sends.stored(receipt, PutStatus.PUT_OK, None, _QUEUE_ID)
    json, binary = (_response(_OPAQUE, is_binary, reply)[8:] for is_binary in (False, True))
    numbers = [str(number).encode() for number in (_QUEUE_ID, _QUEUE_OFFSET)]
    message_id = receipt.message_id.encode()
    return ReplyTemplate.of(
        _between(json, message_id, [*numbers, str(_OPAQUE).encode()], 0), _between(binary, message_id, numbers, 4)[:-1]
    )


def _between(header: bytes, message_id: bytes, numbers: list[bytes], length_bytes: int) -> list[bytes]:
    """The parts of a header around the offset in a message id and around each number with its length."""
    assert all(header.count(gap) == 1 for gap in (message_id, *numbers)), header
    at = header.index(message_id) + len(message_id)
    parts = [header[: at - ID_DIGITS]]
    for number in numbers:
        start = header.index(number)
        parts.append(header[at : start - length_bytes])
        at = start + len(number)
    return [*parts, header[at:]]
