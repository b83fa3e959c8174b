"""Filter bits are a shortcut: over registrations, changed expressions, members that leave, restarts and lost extension
files, a group gets exactly the messages that its expression matches, with bits and without."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from embermq.model.properties import encode_properties
from embermq.remoting import RequestCode
from embermq.sql92 import compile_expression
from tests.support.brokers import RunningBroker, consumer, running, subscription

ON = {"filter_properties": True}
BITS = ON | {"filter_bits": True, "queue_extension": True}
GROUPS = ("g1", "g2", "g3")
EXPRESSIONS = (
    "n > 5",
    "n <= 3 OR kind = 'odd'",
    "kind = 'even' AND n BETWEEN 2 AND 7",
    "missing IS NULL AND n <> 4",
    "kind IN ('odd', 'none') AND NOT n = 3",
    "missing = 1",
)
TOPIC = "T"


class Script:
    """A course of random steps; the same for the same seed, whatever the broker is like."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._stored: list[bytes] = []  # properties, in order
        self._registered: dict[str, tuple[str, int]] = {}  # by group: expression and version
        self._version = 1
        self.checked = 0

    async def play(self, broker: RunningBroker, steps: int) -> None:
        """Groups are back from the start, as after a restart of the broker."""
        for group in self._registered:
            await self._heartbeat(broker, group)
        for _ in range(steps):
            await self._random.choice((self._send, self._send, self._register, self._leave))(broker)
            for group in self._registered:
                await self._check(broker, group)

    async def _send(self, broker: RunningBroker) -> None:
        for _ in range(self._random.randint(1, 12)):
            pairs = {"n": str(self._random.randint(0, 9)), "kind": self._random.choice(("even", "odd"))}
            if self._random.random() < 0.2:
                pairs["missing"] = "1"
            properties = encode_properties(pairs)
            assert (await broker.send(TOPIC, b"x", properties.decode())).code == 0
            self._stored.append(properties)

    async def _register(self, broker: RunningBroker) -> None:
        group = self._random.choice(GROUPS)
        self._version += 1
        self._registered[group] = self._random.choice(EXPRESSIONS), self._version
        await self._heartbeat(broker, group)

    async def _heartbeat(self, broker: RunningBroker, group: str) -> None:
        expression, version = self._registered[group]
        given = consumer(group, subscription(TOPIC, expression, version, "SQL92"))
        assert (await broker.heartbeat(f"client-{group}", consumers=[given])).code == 0

    async def _leave(self, broker: RunningBroker) -> None:
        if self._registered:
            group = self._random.choice(sorted(self._registered))
            del self._registered[group]
            fields = {"clientID": f"client-{group}", "consumerGroup": group}
            assert (await broker.call(RequestCode.UNREGISTER_CLIENT, fields)).code == 0

    async def _check(self, broker: RunningBroker, group: str) -> None:
        expression, version = self._registered[group]
        matches = compile_expression(expression).matches
        wanted = [offset for offset, properties in enumerate(self._stored) if matches(properties)]
        found: list[int] = []
        at = 0
        while at < len(self._stored):
            asked: dict[str, Any] = {"subscription": "", "sysFlag": 0, "subVersion": version}
            answer = await broker.pull(TOPIC, at, group=group, **asked)
            assert answer.ext is not None, answer.remark
            found += queue_offsets(answer.body)
            assert int(answer.ext["nextBeginOffset"]) > at
            at = int(answer.ext["nextBeginOffset"])
        assert found == wanted, (group, expression)
        self.checked += 1


def queue_offsets(records: bytes) -> list[int]:
    view, at, found = memoryview(records), 0, []
    while at < len(view):
        found.append(int.from_bytes(view[at + 20 : at + 28]))
        at += int.from_bytes(view[at : at + 4])
    return found


@pytest.mark.parametrize("store", [ON, BITS], ids=["plain", "bits"])
@pytest.mark.parametrize("seed", range(3))
def test_a_group_gets_what_its_expression_matches(tmp_path: Path, seed: int, store: dict[str, Any]) -> None:
    script = Script(seed)

    async def whole() -> None:
        for start in range(3):
            if start == 2:
                assert (tmp_path / "store" / "consumequeue_ext").exists() is (store is BITS)
                shutil.rmtree(tmp_path / "store" / "consumequeue_ext", ignore_errors=True)
            async with running(tmp_path, store=store) as broker:
                broker.broker.topics.ensure(TOPIC, 1)
                await script.play(broker, 10)

    asyncio.run(whole())
    assert script.checked > 10
