"""Hooks around handlers, and the message trace of consumers, against a broker of this process."""

import asyncio
import contextvars
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq.client import ConsumeContext, Context, ReceivedMessage
from embermq.client.aio import Admin, Message, Producer, PushConsumer
from embermq.client.consume.handle.hooks import hooked
from embermq.client.message_queue import MessageQueue
from tests.support.brokers import until
from tests.support.clusters import Cluster, play

SPAN: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
CONTEXT = Context(MessageQueue("T", "a", 0), "g")


class Noted:
    """A hook that remembers. Any thread."""

    def __init__(self) -> None:
        self.before: list[ConsumeContext] = []
        self.after: list[ConsumeContext] = []
        self.threads: set[str] = set()

    def before_consume(self, context: ConsumeContext) -> None:
        SPAN.set("begun")
        context.values["number"] = len(self.before)
        self.before.append(context)

    def after_consume(self, context: ConsumeContext) -> None:
        self.threads.add(threading.current_thread().name)
        self.after.append(context)


class Broken:
    def before_consume(self, context: ConsumeContext) -> None:
        raise RuntimeError("before")

    def after_consume(self, context: ConsumeContext) -> None:
        raise RuntimeError("after")


def consumer(cluster: Cluster, **more: Any) -> PushConsumer:
    return PushConsumer(**({"name_server": cluster.name_server, "group": "g", "consume_from": "first"} | more))


@pytest.mark.parametrize(
    ("answer", "is_consumed", "error"), [(None, True, None), (False, False, None), (7, False, TypeError)]
)
def test_a_hook_sees_what_a_call_came_to(answer: Any, is_consumed: bool, error: type[Exception] | None) -> None:
    noted = Noted()

    def handle(messages: list[ReceivedMessage], context: Context) -> Any:
        assert SPAN.get() == "begun"
        assert not noted.after
        return answer

    assert contextvars.copy_context().run(hooked(handle, [Broken(), noted]), [], CONTEXT) == answer
    (seen,) = noted.after
    assert (seen.group, seen.queue, seen.is_consumed, seen.values) == ("g", CONTEXT.queue, is_consumed, {"number": 0})
    assert (seen.error and type(seen.error)) is error


def test_what_a_handler_raises_is_raised_and_seen() -> None:
    noted, problem = Noted(), ValueError("no")

    def handle(messages: list[ReceivedMessage], context: Context) -> None:
        raise problem

    async def handle_async(messages: list[ReceivedMessage], context: Context) -> None:
        raise problem

    with pytest.raises(ValueError, match="no"):
        contextvars.copy_context().run(hooked(handle, [noted]), [], CONTEXT)
    with pytest.raises(ValueError, match="no"):
        asyncio.run(hooked(handle_async, [noted])([], CONTEXT))  # type: ignore[arg-type]
    assert [seen.error for seen in noted.after] == [problem, problem]


def test_without_hooks_a_handler_is_itself() -> None:
    def handle(messages: list[ReceivedMessage], context: Context) -> None: ...

    assert hooked(handle, ()) is handle


@pytest.mark.parametrize("orderly", [False, True])
def test_hooks_run_on_the_threads_of_handlers(tmp_path: Path, orderly: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        noted = Noted()
        async with Producer(cluster.name_server, "p") as producer:
            for number in range(12):
                await producer.send(Message("T", b"m%d" % number))
        async with consumer(cluster, hooks=[noted, Broken()], orderly=orderly) as one:
            await one.subscribe("T", "*", lambda messages, context: None)
            await until(lambda: len(noted.after) >= 12)
        assert sorted(message.body for seen in noted.after for message in seen.messages) == sorted(
            b"m%d" % number for number in range(12)
        )
        assert {seen.is_orderly for seen in noted.after} == {orderly}
        assert all(seen.is_consumed for seen in noted.after)
        assert all(name.startswith("embermq-consume-") for name in noted.threads)

    play(scenario, tmp_path)


def test_traces_tell_who_consumed_a_message(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with Producer(cluster.name_server, "p", trace=True) as producer:
            good = await producer.send(Message("T", b"good", keys=["o-1"]))
            bad = await producer.send(Message("T", b"bad"))
        seen: list[bytes] = []

        async def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            seen.extend(message.body for message in messages)
            context.delay_level = -1
            return messages[0].body == b"good"

        async with consumer(cluster, trace=True) as one:
            await one.subscribe("T", "*", handle)
            await until(lambda: len(seen) >= 2)
        async with Admin(name_server=cluster.name_server) as admin:
            steps = {sent.message_id: await admin.traces.of_message(sent.message_id) for sent in (good, bad)}
            keyed = await admin.traces.of_key("o-1")
        assert [(step.what, step.group, step.status) for step in steps[good.message_id]] == [
            ("send", "p", "success"),
            ("consume", "g", "success"),
        ]
        assert [(step.what, step.status) for step in steps[bad.message_id]] == [
            ("send", "success"),
            ("consume", "failed"),
        ]
        consumed = steps[good.message_id][1]
        assert (consumed.keys, consumed.retry_times, consumed.cost_ms is None) == ("o-1", 0, False)
        assert consumed.request_id != steps[bad.message_id][1].request_id
        assert keyed == steps[good.message_id]

    play(scenario, tmp_path)


def test_a_broker_may_want_no_traces(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with Producer(cluster.name_server, "p") as producer:
            silent = await producer.send(Message("T", b"x", properties={"TRACE_ON": "false"}))
            traced = await producer.send(Message("T", b"x"))
        noted = Noted()
        async with consumer(cluster, trace="Traces", hooks=[noted]) as one:
            await one.subscribe("T", "*", lambda messages, context: None)
            await until(lambda: len(noted.after) >= 2)
        async with Admin(name_server=cluster.name_server) as admin:
            assert await admin.traces.of_message(silent.message_id, topic="Traces") == []
            assert len(await admin.traces.of_message(traced.message_id, topic="Traces")) == 1

    play(scenario, tmp_path)
