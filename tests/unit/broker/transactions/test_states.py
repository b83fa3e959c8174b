"""Every row of the table of transaction states, by raw requests to a broker whose clock stands still."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.broker.transactions.states import TRANSITIONS, Event, State, Step, Write
from embermq.model.names import CHECK_MAX_TIME_TOPIC
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.remoting import Command, RequestCode
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, play, until
from tests.support.transactions import COMMIT, ROLLBACK, TOPIC, UNKNOWN, TransactionProducer, end_fields

DECISIONS = {Event.COMMIT: COMMIT, Event.ROLLBACK: ROLLBACK, Event.UNKNOWN: UNKNOWN}
PLACES = {
    Write.HALF: (HALF_TOPIC, 0),
    Write.FINAL: (TOPIC, 2),
    Write.OP: (OP_TOPIC, 0),
    Write.GIVEN_UP: (CHECK_MAX_TIME_TOPIC, 0),
}
NO_SUCH_PLACE = {"tranStateTableOffset": 7, "commitLogOffset": 1 << 40}
Stored = dict[Write, int]


class Life:
    """One transaction, and what leaves the broker about it."""

    def __init__(self, broker: RunningBroker, producer: TransactionProducer, clock: ManualClock) -> None:
        self._broker, self._producer, self._clock = broker, producer, clock
        self._half: Command | None = None

    async def reach(self, state: State, event: Event) -> None:
        if state is State.NONE:
            return
        await self.send()
        if state is State.DECIDED and event is Event.RESUMED:
            await self.give_up()
        elif state is State.DECIDED:
            await self.end(COMMIT)

    async def take(self, event: Event) -> str:
        """What the broker answers, in the words of the table."""
        match event:
            case Event.SENT:
                await self.send()
                return "0, with the place of the half record"
            case Event.COMMIT | Event.ROLLBACK | Event.UNKNOWN:
                return await self.end(DECISIONS[event])
            case Event.CHECK_DUE:
                self._clock.advance(s=60)
                assert (await self._broker.broker.transactions.check()).checked == 1
                await until(lambda: len(self._producer.asked) == 1)
                return f"{self._producer.asked[0].code} to one producer of the group"
            case Event.GIVEN_UP:
                await self.give_up()
                return "none"
            case Event.EXPIRED:
                return await self.expire()
            case Event.RESUMED:
                [given_up] = await self._broker.stored(CHECK_MAX_TIME_TOPIC)
                fields = {"msgId": given_up.message_id}
                return str((await self._broker.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)).code)

    async def send(self) -> None:
        self._half = await self._producer.prepare(self._broker, g=self._clock.now_ms())
        assert self._half.ext is not None
        assert int(self._half.ext["msgId"][16:], 16) >= 0

    async def give_up(self) -> None:
        self._clock.advance(s=100 * 3600)
        assert (await self._broker.broker.transactions.check()).given_up == 1

    async def expire(self) -> str:
        entry = self._broker.broker.transactions.undecided.entry(0)
        assert entry is not None
        entry.physical_offset = 1 << 40
        assert (await self._broker.broker.transactions.check()).forgotten == 1
        return "none"

    async def end(self, decision: int) -> str:
        fields: dict[str, Any] = {"producerGroup": "pg", "commitOrRollback": decision}
        fields = fields | NO_SUCH_PLACE if self._half is None else end_fields(self._half, decision)
        waiting = asyncio.ensure_future(self._broker.call(RequestCode.END_TRANSACTION, fields))
        if decision == UNKNOWN:
            # Requests of a connection are taken in order: what is asked behind it is answered, and it is not.
            assert (await self._broker.heartbeat("c1", producers=["pg"])).code == 0
            assert not waiting.done()
            waiting.cancel()
            return "none"
        answer = await waiting
        return f"{answer.code}, with a remark" if answer.code == 0 and answer.remark else str(answer.code)


async def stored(broker: RunningBroker) -> Stored:
    return {write: len(await broker.stored(*place)) for write, place in PLACES.items()}


async def state_of(broker: RunningBroker) -> State:
    if len(broker.broker.transactions.undecided):
        return State.UNDECIDED
    return State.DECIDED if await broker.stored(OP_TOPIC) else State.NONE


def name_of(row: object) -> str:
    return ": ".join(row) if isinstance(row, tuple) and not isinstance(row, Step) else ""


@pytest.mark.parametrize(("row", "step"), TRANSITIONS.items(), ids=name_of)
def test_a_row(tmp_path: Path, row: tuple[State, Event], step: Step) -> None:
    state, event = row
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        life = Life(broker, producer, clock)
        await life.reach(state, event)
        before = await stored(broker)
        assert await life.take(event) == step.answer
        after = await stored(broker)
        assert {write for write in Write if after[write] == before[write] + 1} == set(step.writes)
        assert sum(after.values()) - sum(before.values()) == len(step.writes)
        assert await state_of(broker) is step.state

    play(scenario, tmp_path, clock=clock, client_table=producer.table)
