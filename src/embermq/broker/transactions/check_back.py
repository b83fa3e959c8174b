"""Rounds of checks: producers are asked what became of the transactions they have not ended. The loop's thread.

A round looks at the undecided half messages from the oldest on (check_rules.py) and stops at the first that is too
young. Records are read on another thread, some at a time, so that the loop goes on meanwhile. The question goes to one
connected producer of the group, in turn; where none is connected it is not sent, and counts all the same, as in
RocketMQ.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from embermq.broker.members import Clients
from embermq.broker.tables import TopicTable
from embermq.broker.transactions.check_rules import CheckDecision, Limits, decide, facts_of, total_checks
from embermq.broker.transactions.half_messages import (
    PRODUCER_GROUP,
    check_request,
    given_up_of,
    op_of,
    real_place,
)
from embermq.broker.transactions.undecided import Undecided
from embermq.clock import Clock
from embermq.errors import StoreError
from embermq.model.message import Message, StoredMessage
from embermq.model.names import CHECK_MAX_TIME_TOPIC
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore

log = logging.getLogger(__name__)

ROUND_SECONDS_MAX = 60.0
READ_AT_ONCE = 64
TRIES = 3


class CheckRound(msgspec.Struct):
    """What a round did."""

    checked: int = 0
    given_up: int = 0
    forgotten: int = 0
    finished: int = 0


class CheckBack:
    """Asks producers about undecided transactions."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        clients: Clients,
        clock: Clock,
    ) -> None:
        self._settings, self._store, self._topics, self._clients, self._clock = settings, store, topics, clients, clock
        self._turns: dict[str, int] = {}  # of producer groups: which member is next

    async def round(self, undecided: Undecided, decided_before: frozenset[int]) -> CheckRound:
        """Look at what is undecided now; what was done."""
        done = CheckRound()
        if self._store.role is BrokerRole.SLAVE:
            return done
        began_ms, deadline = self._clock.now_ms(), self._clock.monotonic() + ROUND_SECONDS_MAX
        offsets = list(undecided)
        for start in range(0, len(offsets), READ_AT_ONCE):
            portion = [offset for offset in offsets[start : start + READ_AT_ONCE] if offset in undecided]
            places = [(offset, entry.physical_offset) for offset in portion if (entry := undecided.entry(offset))]
            records = await asyncio.to_thread(self._read, places)
            for offset in portion:
                if not self._look(undecided, offset, records.get(offset), decided_before, began_ms, done):
                    return done
            if self._clock.monotonic() > deadline:
                break
        return done

    def _read(self, places: list[tuple[int, int]]) -> dict[int, StoredMessage]:
        """On another thread."""
        found = {offset: self._store.at(place) for offset, place in places}
        return {offset: half for offset, half in found.items() if half is not None and half.queue_offset == offset}

    def _look(
        self,
        undecided: Undecided,
        offset: int,
        half: StoredMessage | None,
        decided_before: frozenset[int],
        began_ms: int,
        done: CheckRound,
    ) -> bool:
        """Do what the rules say about one half message; whether to go on behind it."""
        entry = undecided.entry(offset)
        if entry is None:
            return True  # It was decided meanwhile.
        settings = self._settings()
        hours = self._store.settings.retention_hours
        limits = Limits(settings.transaction_timeout_ms, settings.transaction_checks_max, hours)
        match decide(facts_of(half, entry.checks, decided_before, began_ms, self._clock.now_ms(), limits)):
            case CheckDecision.STOP:
                return False
            case CheckDecision.FORGET:
                undecided.forget(offset)
                done.forgotten += 1
                log.warning("event=half_message_expired half_offset=%d", offset)
            case CheckDecision.FINISH:
                done.finished += self._decide(undecided, offset, [])
            case CheckDecision.GIVE_UP:
                assert half is not None
                done.given_up += self._give_up(undecided, offset, half, entry.checks)
            case CheckDecision.CHECK:
                assert half is not None
                entry.checks += 1
                done.checked += self._ask(half, total_checks(half, entry.checks))
            case CheckDecision.WAIT:
                pass
        return True

    def _give_up(self, undecided: Undecided, offset: int, half: StoredMessage, checks: int) -> bool:
        if self._topics.ensure(CHECK_MAX_TIME_TOPIC, 1) is None:
            return False
        is_done = self._decide(undecided, offset, [given_up_of(half, total_checks(half, checks))])
        if is_done:
            log.warning(
                "event=transaction_given_up half_offset=%d checks=%d topic=%s", offset, checks, CHECK_MAX_TIME_TOPIC
            )
        return is_done

    def _decide(self, undecided: Undecided, offset: int, before: list[Message]) -> bool:
        """Store the decision on a half message, and what belongs before it; False if the store refuses."""
        try:
            receipts, _end = self._store.internal.append_unconfirmed([*before, op_of(offset)], as_is=True)
        except StoreError as problem:
            log.error("event=transaction_not_decided half_offset=%d reason=%r", offset, str(problem))
            return False
        undecided.decided(offset, receipts[-1].queue_offset)
        return True

    def _ask(self, half: StoredMessage, checks: int) -> bool:
        """Send the question to a producer of the group; False if none can be reached."""
        group, place = half.properties.get(PRODUCER_GROUP, ""), real_place(half)
        members = self._clients.producers(group)
        if not members or place is None:
            return False
        request = check_request(half, place, checks)
        for _ in range(min(TRIES, len(members))):
            turn = self._turns[group] = (self._turns.get(group, -1) + 1) % len(members)
            peer = members[turn].peer
            if peer.is_open and peer.tell(request):
                return True
        return False
