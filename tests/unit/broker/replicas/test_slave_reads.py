"""Reads from a slave: where a master sends consumers that are far behind, and what a slave says of offsets it lacks."""

import asyncio
from pathlib import Path

import pytest

from embermq.remoting import Command, RequestCode, ResponseCode
from tests.support.brokers import RunningBroker, pull_fields
from tests.unit.broker.replicas.test_pair import caught_up, play_pair

# So nothing counts as recent: every consumer is far behind.
FAR: dict[str, int] = {"memory_percent_max": 0}
GROUP = b'{"groupName":"g","brokerId":0,"whichBrokerWhenConsumeSlowly":1}'


def suggested(answer: Command) -> str:
    assert answer.ext is not None
    return answer.ext["suggestWhichBrokerId"]


async def filled(master: RunningBroker, slave: RunningBroker) -> None:
    """Ten messages and the group on both."""
    for n in range(10):
        assert (await master.send("T", b"%d" % n)).code == 0
    assert (await master.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GROUP)).code == 0
    await caught_up(master, slave)
    assert await slave.broker.replication._tables.take(master.address)


@pytest.mark.parametrize(("reads", "far", "broker_id"), [(True, True, "1"), (True, False, "0"), (False, True, "0")])
def test_a_master_sends_slow_consumers_to_the_slave(tmp_path: Path, reads: bool, far: bool, broker_id: str) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await filled(master, slave)
        answer = await master.pull("T", 0)
        assert (answer.code, suggested(answer)) == (0, broker_id)
        assert answer.body
        there = await slave.pull("T", 0)
        if reads:
            # The same records, byte for byte; more of them, since they are recent there.
            assert (there.code, there.body.startswith(answer.body)) == (0, True)
        else:
            assert (there.code, there.body, suggested(there)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, b"", "0")

    play_pair(scenario, tmp_path, FAR if far else None, slave_read=reads)


def test_a_consumer_that_has_caught_up_at_the_slave_goes_back(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await filled(master, slave)
        assert suggested(await slave.pull("T", 0)) == "0"  # Its own log is recent to the slave.
        at_the_end = await slave.pull("T", 10)
        assert (at_the_end.code, suggested(at_the_end)) == (ResponseCode.PULL_NOT_FOUND, "0")

    play_pair(scenario, tmp_path, FAR, slave_read=True)


@pytest.mark.parametrize(
    ("checks", "code", "onward"),
    [(False, ResponseCode.PULL_RETRY_IMMEDIATELY, "100"), (True, ResponseCode.PULL_OFFSET_MOVED, "10")],
)
def test_offsets_a_slave_does_not_have(tmp_path: Path, checks: bool, code: int, onward: str) -> None:
    """Without offsetCheckInSlave it may just be behind: nothing is corrected, and the master is asked."""

    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await filled(master, slave)
        answer = await slave.pull("T", 100)
        assert (answer.code, suggested(answer)) == (code, "0")
        assert answer.ext is not None
        assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == (onward, "10")
        end = slave.store.max_physical
        assert end == master.store.max_physical  # No note of the moved offset was put into its log.
        right = await master.pull("T", 100)
        assert right.code == ResponseCode.PULL_OFFSET_MOVED
        assert (right.ext or {})["nextBeginOffset"] == "10"

    play_pair(scenario, tmp_path, None, {"check_offset_in_slave": checks}, slave_read=True)


def test_a_pull_at_the_slave_waits_for_what_comes_from_the_master(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await filled(master, slave)
        fields = pull_fields("T", 10, sys_flag=4 | 2)
        pulling = asyncio.create_task(slave.call(RequestCode.PULL_MESSAGE, fields))
        await asyncio.sleep(0)
        assert (await master.send("T", b"new")).code == 0
        answer = await pulling
        assert (answer.code, b"new" in answer.body) == (0, True)

    play_pair(scenario, tmp_path, slave_read=True)


def test_a_slave_keeps_no_offsets_that_pulls_bring(tmp_path: Path) -> None:
    """They are the master's: what came with a pull here would be put over what the master says."""

    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await filled(master, slave)
        assert (await slave.pull("T", 5, sys_flag=4 | 1, commitOffset=5)).code == 0
        assert slave.broker.offsets.query("g", "T", 0) in (None, -1)
        assert (await master.pull("T", 5, sys_flag=4 | 1, commitOffset=5)).code == 0
        assert await slave.broker.replication._tables.take(master.address)
        assert slave.broker.offsets.query("g", "T", 0) == 5

    play_pair(scenario, tmp_path, slave_read=True)
