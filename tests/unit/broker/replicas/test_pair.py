"""A master and a slave as brokers, with a name server: what clients, consumers and administrators see of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import BrokerRole
from embermq.namesrv import NameServer
from embermq.remoting import RequestCode, ResponseCode, parse_json
from embermq.settings import FlushDisk, NamesrvSettings
from tests.support.brokers import RunningBroker, running, until
from tests.support.replication import log_bytes

SLAVE: dict[str, Any] = {"role": BrokerRole.SLAVE, "broker_id": 1}
SYNC: dict[str, Any] = {"role": BrokerRole.SYNC_MASTER, "slave_timeout_ms": 400}


@contextlib.asynccontextmanager
async def name_server(path: Path) -> AsyncIterator[str]:
    files = NamesrvSettings(kv_config_path=path / "kv.json", config_store_path=path / "namesrv.properties")
    server = NameServer(files)
    try:
        yield str(await server.start("127.0.0.1", 0))
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def pair(
    path: Path, upper: dict[str, Any] | None = None, lower: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[RunningBroker, RunningBroker]]:
    """A master and a slave of the same name; `upper` and `lower` are settings of their stores."""
    async with name_server(path) as address:
        names: dict[str, Any] = {"name_servers": (address,), "replicates": True} | settings
        async with (
            running(path / "m", store=upper, **names) as master,
            running(path / "s", store=SLAVE | (lower or {}), **names) as slave,
        ):
            await until(lambda: slave.broker.replication.is_following)
            await until(lambda: len(master.broker.replication.replicas) == 1)
            yield master, slave


def play_pair(
    scenario: Callable[[RunningBroker, RunningBroker], Awaitable[None]], path: Path, *stores: Any, **settings: Any
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(180), pair(path, *stores, **settings) as (master, slave):
            await scenario(master, slave)

    asyncio.run(whole())


async def caught_up(master: RunningBroker, slave: RunningBroker) -> None:
    """The slave has the master's log, and both have its messages in their queues."""
    await until(lambda: slave.store.max_physical == master.store.max_physical)
    for one in (master, slave):
        await asyncio.to_thread(one.store.wait_for_dispatch)


def test_a_slave_finds_its_master_and_has_its_log(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        for n in range(50):
            assert (await master.send("T", b"%d" % n)).code == 0
        await caught_up(master, slave)
        end = master.store.max_physical
        assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
        assert [m.body for m in await slave.stored("T")] == [b"%d" % n for n in range(50)]

    play_pair(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_a_slave_takes_topics_groups_offsets_and_delay_progress(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await master.send("T", b"x")
        master.broker.groups.find("readers")
        master.broker.offsets.commit("readers", "T", 0, 1)
        # Level 1 is due after a second: its progress is delivered with the tables.
        await master.send("T", b"later", "DELAY\x011\x02")
        await until(lambda: master.store.max_offset("T", 0) == 2)
        taken = slave.broker.replication._tables  # The turns are ten seconds apart.
        assert await taken.take(master.address)
        assert slave.broker.topics.all() == master.broker.topics.all()
        assert slave.broker.topics.version == master.broker.topics.version
        assert slave.broker.groups.all() == master.broker.groups.all()
        assert slave.broker.offsets.query("readers", "T", 0) == 1
        saved = parse_json((slave.store.path / "config" / "delayOffset.json").read_bytes())
        assert saved["offsetTable"] == {"1": 1}

    play_pair(scenario, tmp_path)


def test_a_slave_refuses_what_changes_something(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await master.send("T", b"x")
        await caught_up(master, slave)
        refused = await slave.send("T", b"y")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "SLAVE" in (refused.remark or "")
        assert (await slave.send("Unknown", b"y")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert slave.broker.topics.find("Unknown") is None
        back = {"offset": 0, "group": "g", "delayLevel": 1}
        assert (await slave.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == ResponseCode.SYSTEM_ERROR
        assert slave.store.max_physical == master.store.max_physical

    play_pair(scenario, tmp_path)


@pytest.mark.parametrize(("reads", "code"), [(True, 0), (False, ResponseCode.PULL_RETRY_IMMEDIATELY)])
def test_a_slave_serves_reads_where_it_may(tmp_path: Path, reads: bool, code: int) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await master.send("T", b"x")
        await caught_up(master, slave)
        assert await slave.broker.replication._tables.take(master.address)
        answer = await slave.pull("T", 0)
        assert answer.code == code
        assert bool(answer.body) == reads
        assert answer.ext is not None
        assert answer.ext["suggestWhichBrokerId"] == "0"
        beyond = await slave.pull("T", 100)  # A slave may be behind: it calls no offset wrong.
        assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY

    play_pair(scenario, tmp_path, slave_read=reads)


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_sync_master_answers_when_the_slave_has_it(tmp_path: Path, flush: FlushDisk) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        for n in range(20):
            answer = await master.send("T", b"%d" % n)
            assert answer.code == 0
            assert slave.store.max_physical == master.store.max_physical  # Before the answer.
            if flush is FlushDisk.SYNC:
                assert slave.store.flushed_offset == master.store.flushed_offset == master.store.max_physical
        assert master.broker.replication.replicas.mark == master.store.max_physical

    play_pair(scenario, tmp_path, SYNC | {"flush": flush, "slave_timeout_ms": 30_000}, {"flush": flush})


def test_a_sync_master_without_a_slave_says_so(tmp_path: Path) -> None:
    async def whole() -> None:
        async with running(tmp_path, store=SYNC, replicates=True) as master:
            answer = await master.send("T", b"x")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert answer.ext is not None
            assert answer.ext["queueOffset"] == "0"  # It is stored, and says where.
            assert (await master.send("T", b"y", "WAIT\x01false\x02")).code == 0
            assert [m.body for m in await master.stored("T")] == [b"x", b"y"]

    asyncio.run(whole())


@pytest.mark.slow(seconds=2)
def test_a_slave_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        assert (await master.send("T", b"x")).code == 0
        with slave.store.engine.writer.put_lock.lock:  # It stands still: nothing can be stored there.
            late = await master.send("T", b"y")
            assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert late.ext is not None
            assert late.ext["queueOffset"] == "1"
        assert (await master.send("T", b"z")).code == 0  # It has caught up.
        assert slave.store.max_physical == master.store.max_physical

    play_pair(scenario, tmp_path, SYNC | {"slave_timeout_ms": 1000})


def test_figures_of_both(tmp_path: Path) -> None:
    async def scenario(master: RunningBroker, slave: RunningBroker) -> None:
        await master.send("T", b"x")
        await caught_up(master, slave)
        end = master.store.max_physical
        await until(lambda: master.broker.replication.replicas.mark == end)
        await until(lambda: slave.broker.replication.figures()["emberMasterFollowed"] == "true")
        shown = parse_json((await master.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert shown["emberReplicas"] == "1"
        assert shown["emberReplicatedOffset"] == str(end)
        assert shown["emberReplicasBehindBytes"].endswith("=0")
        shown = parse_json((await slave.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert shown["emberBehindMasterBytes"] == "0"
        assert shown["emberMasterProblem"] == ""

    play_pair(scenario, tmp_path)
