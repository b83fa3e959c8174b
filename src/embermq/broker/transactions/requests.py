"""Transactions: half messages stored, ended by their producers (37), or taken up again (323). The loop's thread.

Records that were written long ago may have to come from the disk: they are read on another thread, and the request goes
on here when they are there.
"""

import logging
from collections.abc import Callable

import msgspec

from embermq.broker.answers import PUT_CODES, Acknowledgements, refusal_status
from embermq.broker.members import Clients
from embermq.broker.statistics import Statistics
from embermq.broker.tables import ConsumerOffsets, TopicTable
from embermq.broker.transactions.check_back import CheckBack, CheckRound
from embermq.broker.transactions.check_rules import total_checks
from embermq.broker.transactions.half_messages import (
    PRODUCER_GROUP,
    final_of,
    half_of,
    op_of,
    real_place,
    resumed_of,
)
from embermq.broker.transactions.opening import open_undecided
from embermq.broker.transactions.saved_state import Numbers, SavedState
from embermq.broker.transactions.undecided import Undecided, UndecidedHalf
from embermq.clock import Clock
from embermq.errors import StoreError
from embermq.model import flags
from embermq.model.message import Message, Receipt, StoredMessage
from embermq.model.properties import HALF_TOPIC
from embermq.model.status import PutStatus
from embermq.remoting import I32, I64, Call, Reply, RequestCode, ResponseCode, Row
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore, PackedReceipts
from embermq.store.tables import ConfigTable

log = logging.getLogger(__name__)

Read = Callable[[], StoredMessage | None]
RunOnPool = Callable[[Read, Callable[[StoredMessage | Exception | None], None]], None]
# Records this near to the end of the log are in memory.
NEAR_BYTES = 64 << 20


class EndHeader(msgspec.Struct, rename="camel"):
    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class ResumeHeader(msgspec.Struct, rename="camel"):
    msg_id: str | None = None


class Transactions:
    """Half messages and what becomes of them."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        clients: Clients,
        offsets: ConsumerOffsets,
        table: ConfigTable[str, Numbers],
        acknowledgements: Acknowledgements,
        statistics: Statistics,
        clock: Clock,
        run_on_pool: RunOnPool,
    ) -> None:
        self._settings, self._store, self._topics, self._offsets = settings, store, topics, offsets
        self._acknowledgements, self._statistics, self._run_on_pool = acknowledgements, statistics, run_on_pool
        self._state = SavedState(table, offsets, store)
        self._check_back = CheckBack(settings, store, topics, clients, clock)
        self.undecided = Undecided()
        self._decided_before: frozenset[int] = frozenset()

    def rows(self) -> list[Row]:
        twice = "a second decision on a half message changes nothing"
        return [
            Row(RequestCode.END_TRANSACTION, EndHeader, self.end, note=twice),
            Row(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeHeader, self.resume),
        ]

    # -- life ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find out what is undecided. Before requests are taken; reads the queues of transactions."""
        self.undecided, self._decided_before = open_undecided(self._store, self._offsets, self._state.saved)

    def keep_state(self) -> bool:
        """Take down what is undecided; whether the table has something new to be written."""
        return self._state.keep(self.undecided)

    async def check(self) -> CheckRound:
        """One round of questions to producers."""
        return await self._check_back.round(self.undecided, self._decided_before)

    # -- the first half --------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether one more may be undecided."""
        return len(self.undecided) < self._settings().undecided_max

    def prepare(self, message: Message) -> tuple[Receipt, int]:
        """Store a message that begins a transaction, as `MessageStore.append_unconfirmed` does; StoreError."""
        self._topics.ensure(HALF_TOPIC, 1)
        return self.append_half(half_of(message))

    def takes_halves(self, count: int) -> bool:
        """Whether so many half messages may be stored at once: nothing would refuse one of them, or have to be made
        first."""
        settings = self._settings()
        return (
            not settings.reject_transactions
            and len(self.undecided) + count <= settings.undecided_max
            and self._topics.find(HALF_TOPIC) is not None
        )

    def stored_halves(self, rows: list[int], receipts: PackedReceipts) -> None:
        """These rows of a packed append are half messages; those that were not refused are undecided now."""
        for row in rows:
            physical_offset, size, queue_offset = receipts.placed[row].tolist()
            if size:
                self.undecided.stored(queue_offset, physical_offset)

    def append_half(self, half: Message) -> tuple[Receipt, int]:
        """Store a record of the half topic."""
        [receipt], end = self._store.internal.append_unconfirmed([half], as_is=True)
        self.undecided.stored(receipt.queue_offset, receipt.physical_offset)
        return receipt, end

    # -- the decision ----------------------------------------------------------------------------------------

    def end(self, call: Call[EndHeader]) -> Reply | None:
        if self._store.role is BrokerRole.SLAVE:
            return Reply(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions; ask the master")
        if call.header.commit_or_rollback not in (flags.COMMIT, flags.ROLLBACK):
            return None  # The producer does not know yet: it will be asked.
        place = call.header.commit_log_offset
        if place < 0:
            return self._end(call, None)
        if self._store.max_physical - place <= NEAR_BYTES:
            return self._end(call, self._store.at(place))
        self._after_reading(lambda: self._store.at(place), lambda half: self._end(call, half), call.answer)
        return None

    def _end(self, call: Call[EndHeader], half: StoredMessage | None) -> Reply | None:
        header = call.header
        problem = _objection(header, half)
        if problem is not None or half is None:
            return Reply(ResponseCode.SYSTEM_ERROR, problem)
        entry = self.undecided.entry(half.queue_offset)
        if entry is None:
            return Reply(remark="this transaction was decided before; nothing was done")
        is_commit = header.commit_or_rollback == flags.COMMIT
        place = real_place(half)
        if is_commit and place is None:
            return Reply(ResponseCode.SYSTEM_ERROR, "the half message does not say its topic and queue")
        message = [_final(half, place, entry)] if is_commit and place is not None else []
        try:
            receipts, end = self._store.internal.append_unconfirmed([*message, op_of(half.queue_offset)], as_is=False)
        except StoreError as refusal:
            return Reply(PUT_CODES[refusal_status(refusal)], str(refusal))
        self.undecided.decided(half.queue_offset, receipts[-1].queue_offset)
        if message:
            self._statistics.put(message[0].topic, message[0].queue_id, 1, receipts[0].size)
        return self._when_durable(end, call.answer)

    def resume(self, call: Call[ResumeHeader]) -> None:
        """Ask again about a half message that was given up: it becomes a new one."""
        message_id = call.header.msg_id or ""
        self._after_reading(lambda: self._store.get(message_id), lambda found: self._resume(call, found), call.answer)

    def _resume(self, call: Call[ResumeHeader], found: StoredMessage | None) -> Reply | None:
        if found is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"there is no message with the id {call.header.msg_id!r}")
        if real_place(found) is None or PRODUCER_GROUP not in found.properties:
            return Reply(ResponseCode.SYSTEM_ERROR, f"message {call.header.msg_id} is no half message")
        try:
            _receipt, end = self.append_half(resumed_of(found))
        except StoreError as refusal:
            return Reply(PUT_CODES[refusal_status(refusal)], str(refusal))
        return self._when_durable(end, call.answer)

    # -- helpers ---------------------------------------------------------------------------------------------

    def _after_reading(
        self, read: Read, then: Callable[[StoredMessage | None], Reply | None], answer: Callable[[Reply], None]
    ) -> None:
        """Answer with what `then` makes of a record, once it is read on another thread."""

        def go_on(outcome: StoredMessage | Exception | None) -> None:
            if isinstance(outcome, Exception):
                answer(Reply(ResponseCode.SYSTEM_ERROR, str(outcome)))
            elif (reply := then(outcome)) is not None:
                answer(reply)

        self._run_on_pool(read, go_on)

    def _when_durable(self, end: int, answer: Callable[[Reply], None]) -> Reply | None:
        if not end:
            return Reply()

        def release(status: PutStatus, reason: str | None) -> None:
            answer(Reply(PUT_CODES[status], reason))

        self._acknowledgements.when_durable(end, release)
        return None


def _final(half: StoredMessage, place: tuple[str, int], entry: UndecidedHalf) -> Message:
    return final_of(half, place, total_checks(half, entry.checks) if entry.checks else 0)


def _objection(header: EndHeader, half: StoredMessage | None) -> str | None:
    """Why the record at the given place is not the half message that is meant; None if it is."""
    if half is None:
        return f"there is no half message at commitLogOffset {header.commit_log_offset}"
    if half.topic != HALF_TOPIC:
        return f"the record at commitLogOffset {header.commit_log_offset} is no half message"
    if half.properties.get(PRODUCER_GROUP) != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    return None
