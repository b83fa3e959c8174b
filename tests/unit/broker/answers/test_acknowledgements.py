"""Answers that wait for the disk, for a slave, or for both: the status each of them gets, without a network."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import BrokerRole, Message, MessageStore
from embermq.broker.answers.acknowledgements import Acknowledgements
from embermq.model.status import PutStatus
from embermq.replication import Replicas
from embermq.replication.replicas import Replica
from embermq.settings import FlushDisk
from tests.support.brokers import until
from tests.support.replication import settings


class Bench:
    """A store, its marks, and what became of each message."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.store = MessageStore.open(path, settings(BrokerRole.SYNC_MASTER, **more), replicated=True)
        self.replicas = Replicas(1 << 20)
        self.waiting = Acknowledgements(self.store, asyncio.get_running_loop(), self.replicas)
        self.ended: list[tuple[int, PutStatus]] = []

    def put(self, number: int, *, wait: bool = True) -> int:
        _receipt, end = self.store.append_unconfirmed(Message("T", b"x", wait_for_store=wait))
        if end:
            self.waiting.when_durable(end, lambda status, _reason: self.ended.append((number, status)))
        return end

    def joined(self) -> Replica:
        replica = self.replicas.joined("a:1")
        self.replicas.moved(replica, 0, 1 << 19, 0)
        return replica

    def has(self, replica: Replica, end: int) -> None:
        self.replicas.moved(replica, 0, 1 << 19, end)


def bench(path: Path, scenario: Callable[[Bench], Any], **more: Any) -> None:
    async def whole() -> None:
        made = Bench(path, **more)
        try:
            async with asyncio.timeout(60):
                await scenario(made)
        finally:
            await asyncio.to_thread(made.store.close)

    asyncio.run(whole())


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_answers_come_in_order_when_the_slave_has_them(tmp_path: Path, flush: FlushDisk) -> None:
    async def scenario(on: Bench) -> None:
        replica = on.joined()
        ends = [on.put(n) for n in range(5)]
        await asyncio.sleep(0.05)
        assert on.ended == []
        assert len(on.waiting) == 5
        on.has(replica, ends[2])
        await until(lambda: len(on.ended) == 3)
        on.has(replica, ends[4])
        await until(lambda: len(on.ended) == 5)
        assert on.ended == [(n, PutStatus.PUT_OK) for n in range(5)]
        assert len(on.waiting) == 0

    bench(tmp_path, scenario, flush=flush, slave_timeout_ms=30_000)


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_without_a_slave_it_is_said_at_once(tmp_path: Path, flush: FlushDisk) -> None:
    async def scenario(on: Bench) -> None:
        on.put(0)
        await until(lambda: bool(on.ended))
        assert on.ended == [(0, PutStatus.SLAVE_NOT_AVAILABLE)]

    bench(tmp_path, scenario, flush=flush, slave_timeout_ms=30_000)


def test_a_late_slave_times_out_what_it_has_not_acknowledged(tmp_path: Path) -> None:
    async def scenario(on: Bench) -> None:
        replica = on.joined()
        first, _second = on.put(0), on.put(1)
        on.has(replica, first)
        await until(lambda: len(on.ended) == 2)
        assert on.ended == [(0, PutStatus.PUT_OK), (1, PutStatus.FLUSH_SLAVE_TIMEOUT)]
        assert on.put(2)
        await until(lambda: len(on.ended) == 3)
        assert on.ended[2] == (2, PutStatus.FLUSH_SLAVE_TIMEOUT)

    bench(tmp_path, scenario, slave_timeout_ms=50)


def test_a_sender_that_does_not_wait_is_not_kept(tmp_path: Path) -> None:
    async def scenario(on: Bench) -> None:
        on.joined()
        assert on.put(0, wait=False) == 0

    bench(tmp_path, scenario)


def test_an_async_master_waits_for_no_slave(tmp_path: Path) -> None:
    async def scenario(on: Bench) -> None:
        on.joined()
        await asyncio.to_thread(on.store.set_role, BrokerRole.ASYNC_MASTER)
        assert not on.waiting.waits_for_slave
        assert on.put(0) == 0

    bench(tmp_path, scenario)


def test_what_the_slave_has_before_the_disk_waits_for_the_disk(tmp_path: Path) -> None:
    async def scenario(on: Bench) -> None:
        replica = on.joined()
        end = on.put(0)
        on.has(replica, end)
        await until(lambda: bool(on.ended))
        assert on.ended == [(0, PutStatus.PUT_OK)]
        assert on.store.flushed_offset >= end

    bench(tmp_path, scenario, flush=FlushDisk.SYNC)
