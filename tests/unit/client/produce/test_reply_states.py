"""Every row of the table of requests that wait for a reply, with a broker and two producers."""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from embermq.client.aio import Message, Producer
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.replies import CORRELATION_ID
from embermq.client.received import ReceivedMessage
from embermq.errors import ClientClosed, ReplyMissing, RequestRefused
from embermq.model.properties import encode_properties
from tests.support.clusters import Cluster, play
from tests.support.documented_states import ANSWERED, ASKED, GONE, REPLIED, TIMED_OUT, Step
from tests.unit.client.produce.test_producer import received

TOPIC = "questions"
QUEUE = MessageQueue(TOPIC, "a", 0)


class Life:
    """One request, and what its responder learns."""

    def __init__(self, asking: Producer, replying: Producer, cluster: Cluster) -> None:
        self._asking, self._replying, self._cluster = asking, replying, cluster
        self._asked: asyncio.Task[ReceivedMessage] | None = None
        self._request: ReceivedMessage | None = None
        self.is_taken: bool | None = None

    async def reach(self, state: str, *, seconds: float) -> None:
        sent = self._asking.request(Message(TOPIC, b"?"), timeout=seconds, queue_by=QUEUE)
        self._asked = asyncio.ensure_future(sent)
        self._request = await received(self._cluster.broker, TOPIC)
        match state:
            case "answered":
                await self._reply()
            case "timed_out":
                await self.do("the timeout passes")
            case "given_up":
                await self.do("the requester closes")
        self.is_taken = None

    async def do(self, event: str) -> None:
        match event:
            case "the reply comes" | "the reply comes again":
                await self._reply()
            case "a reply to another request comes":
                await self._reply({CORRELATION_ID: "another"})
            case "the timeout passes":
                assert self._asked is not None
                await asyncio.wait([self._asked])
            case "the requester closes":
                await self._asking.close()
            case _:
                raise AssertionError(event)

    async def _reply(self, changed: dict[str, str] | None = None) -> None:
        assert self._request is not None
        properties = self._request.properties | (changed or {})
        request = msgspec.structs.replace(self._request, property_bytes=encode_properties(properties))
        try:
            self.is_taken = (await self._replying.reply(request, b"!")).ok
        except RequestRefused:
            self.is_taken = False

    async def state(self) -> str:
        assert self._asked is not None
        done, _ = await asyncio.wait([self._asked], timeout=0.05 if self.is_taken is False else 10.0)
        if not done:
            return ASKED
        try:
            assert self._asked.result().body == b"!"
            return ANSWERED
        except ReplyMissing:
            return TIMED_OUT
        except ClientClosed:
            return GONE


@pytest.mark.parametrize("step", REPLIED, ids=lambda step: f"{step.state}, {step.event}")
def test_a_row(tmp_path: Path, step: Step) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with contextlib.AsyncExitStack() as stack:
            asking = await stack.enter_async_context(Producer(cluster.name_server, "asking"))
            replying = await stack.enter_async_context(Producer(cluster.name_server, "replying"))
            life = Life(asking, replying, cluster)
            await life.reach(step.state, seconds=1.0 if TIMED_OUT in step else 60.0)
            await life.do(step.event)
            assert await life.state() == step.then
            if "reply" in step.event:
                assert life.is_taken is (step == REPLIED[0])
                assert len(await cluster.broker.stored("DefaultCluster_REPLY_TOPIC")) >= 1

    play(scenario, tmp_path)
