"""Pulls: every check in its order, the answers of a queue's edges, held pulls."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.broker import PullContext
from embermq.remoting import BINARY, Command, Connector, RequestCode, ResponseCode, parse_json
from embermq.settings import FlushDisk
from embermq.store import RawRead
from embermq.store.tables import GroupConfig, TopicConfig
from tests.support.brokers import RunningBroker, consumer, play, pull_fields, subscription, until

SUSPEND = 2


def offsets(answer: Command) -> tuple[int, ...]:
    assert answer.ext is not None
    return tuple(int(answer.ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))


async def held(broker: RunningBroker, topic: str, offset: int, **more: Any) -> "asyncio.Task[Command]":
    """A pull that waits."""
    await asyncio.to_thread(broker.store.wait_for_dispatch)
    fields = pull_fields(topic, offset, sys_flag=6) | more
    before = len(broker.broker.held)
    task = asyncio.ensure_future(broker.call(RequestCode.PULL_MESSAGE, fields))
    await until(lambda: len(broker.broker.held) > before or task.done())
    return task


def test_the_bytes_of_the_log_are_the_answer(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for number in range(3):
            await broker.send("T", b"%d" % number)
        answer = await broker.pull("T", 1)
        assert (answer.code, answer.remark, offsets(answer)) == (0, "FOUND", (3, 0, 3))
        assert answer.ext is not None
        assert answer.ext["suggestWhichBrokerId"] == "0"
        first, second = (await broker.stored("T"))[1:]
        end = first.physical_offset
        assert answer.body == broker.store.read_log(end, first.size + second.size)

    play(scenario, tmp_path)


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 2), (99, 5)])
def test_no_more_than_asked_for(tmp_path: Path, limit: int, count: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for _ in range(5):
            await broker.send("T")
        assert offsets(await broker.pull("T", 0, maxMsgNums=limit))[0] == count

    play(scenario, tmp_path)


@pytest.mark.parametrize(("most", "asked", "count"), [(1 << 20, 1 << 20, 50), (1 << 20, 1000, 10), (0, 1 << 20, 32)])
def test_who_asks_for_much_at_once_gets_more_than_others(tmp_path: Path, most: int, asked: int, count: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.store.append_many([Message("T", b"x", queue_id=0) for _ in range(50)])
        await broker.send("T")
        assert offsets(await broker.pull("T", 0, maxMsgNums=50))[0] == 32
        assert offsets(await broker.pull("T", 0, maxMsgNums=50, emberMaxBytes=asked))[0] == count

    play(scenario, tmp_path, bulk_pull_bytes_max=most)


@pytest.mark.parametrize(
    ("offset", "code", "expected"),
    [
        (0, ResponseCode.SUCCESS, (2, 0, 2)),
        (2, ResponseCode.PULL_NOT_FOUND, (2, 0, 2)),
        (1000, ResponseCode.PULL_OFFSET_MOVED, (2, 0, 2)),
        (-1, ResponseCode.PULL_OFFSET_MOVED, (0, 0, 2)),
    ],
)
def test_offsets_at_and_past_the_edges(tmp_path: Path, offset: int, code: int, expected: tuple[int, int, int]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await broker.send("T")
        answer = await broker.pull("T", offset)
        assert (answer.code, offsets(answer)) == (code, expected)
        moved = await broker.stored("OFFSET_MOVED_EVENT")
        if code != ResponseCode.PULL_OFFSET_MOVED:
            assert moved == []
            return
        (event,) = moved
        assert event.tags == "g"
        assert parse_json(event.body) == {
            "consumerGroup": "g",
            "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
            "offsetNew": expected[0],
            "offsetRequest": offset,
        }

    play(scenario, tmp_path)


@pytest.mark.parametrize(("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)])
def test_an_empty_queue(tmp_path: Path, offset: int, code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.broker.topics.put(TopicConfig("T", 4, 4))
        answer = await broker.pull("T", offset, queueId=3)
        assert (answer.code, offsets(answer)) == (code, (0, 0, 0))

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "unknown"}, 17, "topic[unknown] not exist"),
        ({"topic": "write-only"}, 16, "forbidden"),
        ({"queueId": 4}, 1, "queueId[4] is illegal"),
        ({"queueId": -1}, 1, "queueId[-1] is illegal"),
        ({"consumerGroup": "off"}, 16, "no permission"),
        ({"subscription": "||"}, 23, "names no tag"),
        ({"subscription": "", "expressionType": "SQL92"}, 23, "empty"),
        ({"subscription": "a > 1", "expressionType": "SQL92"}, 1, "SQL92"),
        ({"sysFlag": 0}, 24, "group info not exist"),
    ],
)
def test_a_check_that_objects_answers(tmp_path: Path, more: dict[str, Any], code: int, remark: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        broker.broker.topics.put(TopicConfig("write-only", 1, 1, 2))
        broker.broker.groups.put(GroupConfig("off", consume_enable=False))
        answer = await broker.pull("T", 0, **more)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (answer.ext, answer.body) == ({}, b"")

    play(scenario, tmp_path)


def test_groups_are_not_made_where_that_is_switched_off(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        assert (await broker.pull("T", 0)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await broker.pull("T", 0, group="CID_RMQ_SYS_X")).code == 0

    play(scenario, tmp_path, auto_create_groups=False)


def test_an_unreadable_broker(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        assert (await broker.pull("T", 0)).code == ResponseCode.NO_PERMISSION

    play(scenario, tmp_path, permission=2)


def test_a_store_that_is_not_read_is_an_error(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        broker.store.set_readable(False)
        assert (await broker.pull("T", 0)).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


# -- filters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "bodies", "code"),
    [("*", b"012345", 0), ("a", b"024", 0), ("a || b", b"012345", 0), (" b ", b"135", 0), ("c", b"", 20)],
)
def test_tags(tmp_path: Path, expression: str, bodies: bytes, code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for number in range(6):
            await broker.send("T", b"%d" % number, f"TAGS\x01{'ab'[number % 2]}")
        answer = await broker.pull("T", 0, subscription=expression)
        assert (answer.code, offsets(answer)[0]) == (code, 6)
        stored = {message.physical_offset: message for message in await broker.stored("T")}
        wanted = [message for message in stored.values() if message.body in bodies] if bodies else []
        assert len(answer.body) == sum(message.size for message in wanted)

    play(scenario, tmp_path)


def test_a_registered_subscription_is_used(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for tag in "ab":
            await broker.send("T", tag.encode(), f"TAGS\x01{tag}")
        await broker.heartbeat(consumers=[consumer("g", subscription("T", "b", 100))])
        one = (await broker.stored("T"))[1]
        answer = await broker.pull("T", 0, sys_flag=0, subVersion=100)
        assert (answer.code, len(answer.body)) == (0, one.size)
        assert (await broker.pull("T", 0, sys_flag=0, subVersion=999)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (await broker.pull("TBW102", 0, sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    play(scenario, tmp_path)


def test_a_group_that_must_not_broadcast(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        broker.broker.groups.put(GroupConfig("g", consume_broadcast_enable=False))
        await broker.heartbeat(consumers=[consumer("g", subscription("T"), messageModel=0)])
        assert (await broker.pull("T", 0, sys_flag=0)).code == ResponseCode.NO_PERMISSION

    play(scenario, tmp_path)


# -- committing ------------------------------------------------------------------------------------------------


def test_a_pull_carries_a_commit(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await broker.pull("T", 0, sys_flag=5, commitOffset=7)
        answer = await broker.call(14, {"consumerGroup": "g", "topic": "T", "queueId": 0})
        assert answer.ext == {"offset": "7"}
        await broker.pull("T", 0, sys_flag=4, commitOffset=9)
        await broker.pull("T", 0, sys_flag=5, commitOffset=-1)
        answer = await broker.call(14, {"consumerGroup": "g", "topic": "T", "queueId": 0})
        assert answer.ext == {"offset": "7"}

    play(scenario, tmp_path)


def test_old_messages_are_read_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"old")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        queues = broker.store.engine.queues
        assert queues is not None
        await asyncio.to_thread(queues.write_out)  # What is not written yet is young, and in memory.
        monkeypatch.setattr(broker.store.engine.fetcher, "is_on_disk", lambda _offset: True)
        read_raw = broker.store.read_raw

        def noted(*arguments: Any, **more: Any) -> RawRead:
            threads.append(threading.current_thread().name)
            return read_raw(*arguments, **more)

        monkeypatch.setattr(broker.store, "read_raw", noted)
        answer = await broker.pull("T", 0, sys_flag=5, commitOffset=3)
        assert (answer.code, offsets(answer)) == (0, (1, 0, 1))
        assert b"old" in answer.body
        assert threads[0].startswith("embermq-request")
        broker.store.set_readable(False)
        assert (await broker.pull("T", 0)).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


# -- waiting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_pull_waits_for_the_next_message(tmp_path: Path, flush: FlushDisk) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"first")
        waiting = await held(broker, "T", 1)
        assert not waiting.done()
        await broker.send("T", b"second")
        answer = await waiting
        assert (answer.code, offsets(answer)) == (0, (2, 0, 2))
        assert b"second" in answer.body
        assert len(broker.broker.held) == 0

    play(scenario, tmp_path, store={"flush": flush})


def test_a_queue_that_never_was_is_waited_for(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.broker.topics.put(TopicConfig("T", 1, 1))
        waiting = await held(broker, "T", 0)
        await broker.send("T", b"first")
        assert b"first" in (await waiting).body

    play(scenario, tmp_path)


def test_a_held_pull_passes_over_what_it_does_not_want(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"0", "TAGS\x01a")
        waiting = await held(broker, "T", 1, subscription="b")
        await broker.send("T", b"not this", "TAGS\x01a")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await broker.send("T", b"this one", "TAGS\x01b")
        answer = await waiting
        assert (answer.code, offsets(answer)[0]) == (0, 3)
        assert b"this one" in answer.body
        assert b"not this" not in answer.body

    play(scenario, tmp_path)


def test_a_held_pull_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        waiting = await held(broker, "T", 1, suspendTimeoutMillis=50)
        answer = await waiting
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))

    play(scenario, tmp_path)


def test_a_binary_pull_is_answered_in_binary_after_a_wait(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        fields = pull_fields("T", 1, sys_flag=6)
        waiting = asyncio.ensure_future(broker.call(RequestCode.PULL_MESSAGE, fields, serialization=BINARY))
        await until(lambda: len(broker.broker.held) == 1)
        await broker.send("T")
        assert (await waiting).serialization == BINARY

    play(scenario, tmp_path)


def test_many_pulls_on_quiet_queues_are_left_alone(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.broker.topics.put(TopicConfig("quiet", 500, 500))
        await broker.send("T")
        quiet = [
            asyncio.ensure_future(broker.call(11, pull_fields("quiet", 0, sys_flag=6) | {"queueId": number}))
            for number in range(500)
        ]
        await until(lambda: len(broker.broker.held) == 500)
        waiting = await held(broker, "T", 1)
        await broker.send("T")
        assert (await waiting).code == 0
        assert len(broker.broker.held) == 500
        broker.broker.held.release_all()
        assert {answer.code for answer in await asyncio.gather(*quiet)} == {ResponseCode.PULL_NOT_FOUND}

    play(scenario, tmp_path)


def test_held_pulls_are_bounded(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        waiting = await held(broker, "T", 1)
        assert (await broker.pull("T", 1, sys_flag=6)).code == ResponseCode.PULL_NOT_FOUND
        await broker.send("T")
        await waiting

    play(scenario, tmp_path, held_pulls_max=1)


def test_a_closed_connection_takes_its_pulls_along(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        other = Connector()
        fields = {name: str(value) for name, value in pull_fields("T", 1, sys_flag=6).items()}
        waiting = asyncio.ensure_future(other.call(broker.address, Command(11, ext=fields), 10.0))
        await until(lambda: len(broker.broker.held) == 1)
        await other.close()
        await until(lambda: len(broker.broker.held) == 0)
        await asyncio.gather(waiting, return_exceptions=True)

    play(scenario, tmp_path)


def test_stopping_answers_held_pulls(tmp_path: Path) -> None:
    answers: list[Command] = []

    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        waiting = await held(broker, "T", 1)
        stopping = asyncio.ensure_future(broker.broker.stop())
        answers.append(await waiting)
        await stopping

    play(scenario, tmp_path)
    assert answers[0].code == ResponseCode.PULL_NOT_FOUND


class Deliveries:
    def __init__(self) -> None:
        self.seen: list[PullContext] = []

    def after_pull(self, context: PullContext) -> None:
        self.seen.append(context)


def test_hooks_see_deliveries(tmp_path: Path) -> None:
    deliveries = Deliveries()

    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        answer = await broker.pull("T", 0)
        (seen,) = deliveries.seen
        assert (seen.consumer_group, seen.messages, seen.message_bytes) == ("g", 1, len(answer.body))

    play(scenario, tmp_path, hooks=[deliveries])
