"""Every row of the table of retries, by raw requests to a broker whose clock stands still."""

import asyncio
from pathlib import Path

import pytest

from embermq.model.message import StoredMessage
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.testing.clock import ManualClock
from tests.support.brokers import RunningBroker, play
from tests.support.documented_states import DEAD, DELAYED, DROPPED, QUEUE, RETRIED, RETRY, Step
from tests.unit.broker.sending import test_send_back as retries

HOUR_MS = 3_600_000
# What the group is configured with, the level it gives back with, and its own limit.
GIVING_BACK: dict[str, tuple[dict[str, int], int, dict[str, int]]] = {
    "given back, level 3 + times tried": ({}, 0, {}),
    "given back again": ({}, 0, {}),
    "given back with a level": ({}, 7, {}),
    "given back with a level below 0": ({}, -1, {}),
    "given back, retryMaxTimes is 0": ({"retryMaxTimes": 0}, 0, {}),
    "given back, retryMaxTimes is 1": ({"retryMaxTimes": 1}, 0, {}),
    "given back, retryQueueNums is 0": ({"retryQueueNums": 0}, 0, {}),
    "given back, the consumer's own limit is 0": ({}, 0, {"maxReconsumeTimes": 0}),
}


async def state_of(broker: RunningBroker) -> str:
    """Where the newest copy of the message is."""
    if await broker.stored(retries.DEAD):
        return DEAD
    back = len(await broker.stored(retries.RETRY))
    parked = sum(count for _, count in await retries.parked_by(broker))
    if parked > back:
        return DELAYED
    return RETRY if back else DROPPED


async def reach(broker: RunningBroker, state: str, clock: ManualClock) -> StoredMessage:
    message = await retries.first_message(broker)
    if state == QUEUE:
        return message
    assert (await retries.give_back(broker, message)).code == 0
    if state == RETRY:
        clock.advance(ms=10_000)
        await retries.delivered(broker, retries.RETRY, 1)
        [message] = await broker.stored(retries.RETRY)
    return message


@pytest.mark.parametrize("step", RETRIED, ids=lambda step: f"{step.state}: {step.event}")
def test_a_row(tmp_path: Path, step: Step) -> None:
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        message = await reach(broker, step.state, clock)
        if step.event == "the delay ends":
            clock.advance(ms=10_000)
            await retries.delivered(broker, retries.RETRY, 1)
        elif step.event != "a restart":
            config, level, own = GIVING_BACK[step.event]
            await retries.configure(broker, **({"retryMaxTimes": 16, "retryQueueNums": 1} | config))
            assert (await retries.give_back(broker, message, level, **own)).code == 0
        assert await state_of(broker) == step.then

    play(scenario, tmp_path, clock=clock)
    if step.event == "a restart":
        play(lambda broker: check_state(broker, step.then), tmp_path, clock=clock)


async def check_state(broker: RunningBroker, state: str) -> None:
    await asyncio.to_thread(broker.store.wait_for_dispatch)
    assert SCHEDULE_TOPIC in broker.store.topics()
    assert await state_of(broker) == state
