"""A push consumer against a broker of this process."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from embermq.client.aio import PushConsumer
from embermq.client.calls import BrokerAddress, SendBack
from embermq.client.consume.handle import concurrent
from embermq.client.consume.handle.handlers import Context
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.errors import BrokerUnreachable, ClientClosed, NameServersUnreachable, OptionInvalid, SubscriptionRefused
from embermq.remoting import RequestCode, parse_json
from tests.support.brokers import RunningBroker, until
from tests.support.clusters import Cluster, play
from tests.support.histories import History

T = "T"
PROPERTIES = "TAGS\x01{}\x02"


async def send(
    broker: RunningBroker, start: int, end: int, topic: str = T, properties: str = "", queues: int = 4
) -> None:
    for number in range(start, end):
        answer = await broker.send(topic, b"m%d" % number, properties, e=number % queues)
        assert answer.code == 0, answer.remark


def consumer(cluster: Cluster, group: str = "g", **more: Any) -> PushConsumer:
    return PushConsumer(**({"name_server": cluster.name_server, "group": group, "consume_from": "first"} | more))


class Seen:
    """A handler that remembers what it was given. Any thread."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.contexts: list[Context] = []
        self.threads: set[str] = set()

    def __call__(self, messages: list[ReceivedMessage], context: Context) -> bool | None:
        self.threads.add(threading.current_thread().name)
        self.contexts.append(context)
        self.messages += messages
        return None

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


async def committed(broker: RunningBroker, group: str = "g", topic: str = T, queues: int = 4) -> list[int]:
    found = []
    for queue_id in range(queues):
        ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = await broker.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        found.append(int((answer.ext or {})["offset"]) if answer.code == 0 else -1)
    return found


def numbered(start: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(start, end)]


# -- delivery ------------------------------------------------------------------------------------------------------


def test_every_message_is_handled_and_committed_when_the_consumer_closes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 40)
        seen = Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) >= 40)
            await send(cluster.broker, 40, 60)
            await until(lambda: len(seen.messages) >= 60)
            assert {message.topic for message in seen.messages} == {T}
            assert {context.queue for context in seen.contexts} == {MessageQueue(T, "a", n) for n in range(4)}
            assert all(name.startswith("embermq-consume-") for name in seen.threads)
        assert sorted(seen.bodies) == sorted(numbered(0, 60))
        assert await committed(cluster.broker) == [15, 15, 15, 15]
        again = Seen()
        async with consumer(cluster) as other:
            await other.subscribe(T, "*", again)
            await send(cluster.broker, 60, 61)
            await until(lambda: bool(again.messages))
        assert again.bodies == [b"m60"]

    play(scenario, tmp_path)


def test_handlers_get_as_many_messages_as_they_want(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 30, queues=1)
        sizes: list[int] = []
        async with consumer(cluster, batch_size=8) as one:
            await one.subscribe(T, "*", lambda messages, _context: sizes.append(len(messages)))
            await until(lambda: sum(sizes) >= 30)
        assert max(sizes) == 8
        assert sum(sizes) == 30

    play(scenario, tmp_path)


def test_coroutines_may_be_handlers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 20)
        loop, got = asyncio.get_running_loop(), list[bytes]()
        at_once, most = 0, 0

        async def handle(messages: list[ReceivedMessage], context: Context) -> None:
            nonlocal at_once, most
            assert asyncio.get_running_loop() is loop
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1
            got.extend(message.body for message in messages)

        async with consumer(cluster, threads=3) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: len(got) >= 20)
        assert sorted(got) == sorted(numbered(0, 20))
        assert 1 < most <= 3

    play(scenario, tmp_path)


def test_tags_and_a_changed_subscription(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for number, tag in enumerate(("paid", "sent", "made")):
            await send(cluster.broker, number, number + 1, properties=PROPERTIES.format(tag), queues=1)
        seen, other = Seen(), Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "paid || sent", seen)
            await until(lambda: len(seen.messages) >= 2)
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 3)
            await one.subscribe(T, "made", other)
            for number, tag in enumerate(("paid", "made"), 3):
                await send(cluster.broker, number, number + 1, properties=PROPERTIES.format(tag), queues=1)
            await until(lambda: bool(other.messages))
        assert (seen.bodies, other.bodies) == ([b"m0", b"m1"], [b"m4"])
        assert (await committed(cluster.broker, queues=1)) == [5]

    play(scenario, tmp_path)


def test_sql_is_evaluated_by_the_broker_and_checked_when_subscribing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(6):
            await send(cluster.broker, number, number + 1, properties=f"amount\x01{number}\x02")
        seen = Seen()
        async with consumer(cluster) as one:
            with pytest.raises(SubscriptionRefused, match=r"topic .T.*broker a "):
                await one.subscribe(T, sql="amount >", handle=seen)
            await one.subscribe(T, sql="amount > 3", handle=seen)
            await until(lambda: len(seen.messages) >= 2)
        assert sorted(seen.bodies) == [b"m4", b"m5"]

    play(scenario, tmp_path, store={"filter_properties": True})


@pytest.mark.slow(seconds=2)
def test_a_topic_that_is_made_later_is_found(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        seen = Seen()
        async with consumer(cluster, route_seconds=0.2) as one:
            await one.subscribe(T, "*", seen)
            assert not {queue for queue in one.queues if queue.topic == T}
            await send(cluster.broker, 0, 4)
            await until(lambda: len(seen.messages) >= 4)

    play(scenario, tmp_path)


def test_an_unsubscribed_topic_is_left_to_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        seen = Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) >= 4)
            await one.unsubscribe(T)
            assert not {queue for queue in one.queues if queue.topic == T}
            await send(cluster.broker, 4, 8)
        assert await committed(cluster.broker) == [1, 1, 1, 1]

    play(scenario, tmp_path)


def test_names_have_a_namespace_on_the_wire(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4, topic="ns%T")
        seen = Seen()
        async with consumer(cluster, namespace="ns") as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) >= 4)
            assert MessageQueue("%RETRY%ns%g", "a", 0) in one.queues
        assert {message.topic for message in seen.messages} == {T}
        assert await committed(cluster.broker, "ns%g", "ns%T") == [1, 1, 1, 1]

    play(scenario, tmp_path)


# -- retries -------------------------------------------------------------------------------------------------------


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("how", ["false", "raises", "nonsense"])
def test_what_is_not_consumed_comes_again(tmp_path: Path, how: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 3)
        seen = Seen()

        def handle(messages: list[ReceivedMessage], context: Context) -> Any:
            seen(messages, context)
            if messages[0].body == b"m1" and not messages[0].reconsume_times:
                context.delay_level = 1
                if how == "raises":
                    raise RuntimeError("not today")
                return False if how == "false" else "nonsense"

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: len(seen.messages) >= 4)
        again = seen.messages[-1]
        assert (again.topic, again.body, again.reconsume_times, again.queue.topic) == (T, b"m1", 1, "%RETRY%g")
        assert await committed(cluster.broker) == [1, 1, 1, 0]
        assert (await committed(cluster.broker, topic="%RETRY%g", queues=1)) == [1]

    play(scenario, tmp_path)


def test_level_minus_one_is_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)

        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            context.delay_level = -1
            return False

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 1)
            (dead,) = await cluster.broker.stored("%DLQ%g")
        assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (b"m0", 1, T)

    play(scenario, tmp_path)


def test_no_retry_left_is_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        async with consumer(cluster, retries_max=0) as one:
            await one.subscribe(T, "*", lambda _messages, _context: False)
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 1)
            assert [one.body for one in await cluster.broker.stored("%DLQ%g")] == [b"m0"]

    play(scenario, tmp_path)


async def _refuse(caller: object, to: BrokerAddress, what: object, seconds: float) -> None:
    name = "CONSUMER_SEND_MSG_BACK" if isinstance(what, SendBack) else "SEND"
    raise BrokerUnreachable(to.name, to.address, name, "cut", is_sent=False)


@pytest.mark.slow(seconds=3)
def test_where_sending_back_fails_the_message_is_sent_to_the_retry_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "send_back", _refuse)

    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", lambda _messages, _context: False)
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 1)
        (parked,) = await cluster.broker.stored("SCHEDULE_TOPIC_XXXX", 2)
        assert (parked.body, parked.reconsume_times, parked.properties["DELAY"]) == (b"m0", 1, "3")
        assert parked.properties["RETRY_TOPIC"] == T

    play(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_where_that_fails_as_well_it_is_handled_here_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent, "send_back", _refuse)
    monkeypatch.setattr(concurrent, "send", _refuse)
    monkeypatch.setattr(concurrent, "LOCAL_RETRY_SECONDS", 0.05)

    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        tries: list[int] = []

        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            tries.append(messages[0].reconsume_times)
            return len(tries) == 3

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 1)
        assert tries == [0, 1, 2]

    play(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_a_handler_that_does_not_return_has_its_message_sent_back(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        go_on, began = threading.Event(), threading.Event()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            began.set()
            go_on.wait(30)

        async with consumer(cluster, consume_timeout=1) as one:
            await one.subscribe(T, "*", handle)
            await until(began.is_set)
            await asyncio.sleep(1.1)
            assert one._consumption is not None
            one._consumption.expire()
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 1)
            (parked,) = await cluster.broker.stored("SCHEDULE_TOPIC_XXXX", 2)
            assert (parked.body, parked.properties["DELAY"]) == (b"m0", "3")
            go_on.set()

    play(scenario, tmp_path)


# -- flow and time ---------------------------------------------------------------------------------------------------


def test_pulls_stop_while_too_much_waits(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 120, queues=1)
        go_on, seen = threading.Event(), Seen()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            go_on.wait(30)
            seen(messages, context)

        async with consumer(cluster, cached_messages=10, pull_batch=8, threads=2) as one:
            await one.subscribe(T, "*", handle)
            assert one._core is not None
            reader = one._core.readers.find(MessageQueue(T, "a", 0))
            assert reader is not None
            await until(lambda: len(reader.process) >= 10)
            await asyncio.sleep(0.1)
            assert len(reader.process) <= 10 + 8
            go_on.set()
            await until(lambda: len(seen.messages) >= 120)
        assert Counter(seen.bodies) == Counter(numbered(0, 120))

    play(scenario, tmp_path)


def test_one_slow_message_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 30, queues=1)
        go_on, seen = threading.Event(), Seen()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            if messages[0].body == b"m0":
                go_on.wait(30)
            seen(messages, context)

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: len(seen.messages) >= 29)
            assert one.positions.get(MessageQueue(T, "a", 0), 0) == 0  # m0 is not finished.
            go_on.set()
            await until(lambda: one.positions.get(MessageQueue(T, "a", 0)) == 30)

    play(scenario, tmp_path)


def test_closing_waits_for_handlers_and_starts_no_more(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 50, queues=1)
        began, go_on, seen = threading.Event(), threading.Event(), Seen()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            began.set()
            go_on.wait(30)
            seen(messages, context)

        one = consumer(cluster, threads=1)
        await one.start()
        await one.subscribe(T, "*", handle)
        await until(began.is_set)
        closing = asyncio.ensure_future(one.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        go_on.set()
        await closing
        assert seen.bodies == [b"m0"]
        assert await committed(cluster.broker, queues=1) == [1]
        with pytest.raises(ClientClosed, match="the consumer of group 'g' is closed"):
            await one.subscribe(T, "*", handle)

    play(scenario, tmp_path)


def test_a_paused_consumer_pulls_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        seen = Seen()
        async with consumer(cluster, route_seconds=60) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) == 1)
            one.pause()
            await send(cluster.broker, 4, 5)  # Pulls that are held bring these.
            await until(lambda: len(seen.messages) == 2)
            await send(cluster.broker, 8, 9)
            await asyncio.sleep(0.2)
            assert len(seen.messages) == 2
            one.resume()
            await until(lambda: len(seen.messages) == 3)

    play(scenario, tmp_path)


@pytest.mark.parametrize(("where", "expected"), [("first", [b"m0", b"m1", b"new"]), ("last", [b"new"])])
def test_where_a_new_group_begins(tmp_path: Path, where: str, expected: list[bytes]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 2, queues=1)
        await asyncio.to_thread(cluster.broker.store.wait_for_dispatch)  # Until then the queue ends at 0.
        seen = Seen()
        async with consumer(cluster, consume_from=where) as one:
            assert one._core is not None
            # The broker answers 0 for a queue as young as this; as for an old one, it knows no offset.
            one._core.readers._store.load = _nothing_stored  # type: ignore[method-assign]
            await one.subscribe(T, "*", seen)
            await until(lambda: MessageQueue(T, "a", 0) in one.queues)
            await cluster.broker.send(T, b"new")
            await until(lambda: b"new" in seen.bodies)
        assert seen.bodies == expected

    play(scenario, tmp_path)


async def _nothing_stored(queue: MessageQueue) -> None:
    return None


# -- members ---------------------------------------------------------------------------------------------------------


def test_members_share_the_queues(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        history = History()

        def handler(name: str) -> Any:
            def handle(messages: list[ReceivedMessage], context: Context) -> None:
                for one in messages:
                    history.delivered(name, one.queue, one.queue_offset, one.body)

            return handle

        def topic_queues(one: PushConsumer) -> int:
            return len([queue for queue in one.queues if queue.topic == T])

        async with consumer(cluster) as first:
            await first.subscribe(T, "*", handler("first"))
            assert topic_queues(first) == 4
            async with consumer(cluster) as second:
                await second.subscribe(T, "*", handler("second"))
                await until(lambda: topic_queues(first) == topic_queues(second) == 2)
                assert not first.queues & second.queues
                for number in range(40):
                    answer = await cluster.broker.send(T, b"m%d" % number, e=number % 4)
                    assert answer.code == 0
                    history.sent(b"m%d" % number)
                await until(lambda: not history.unconsumed())
            await until(lambda: topic_queues(first) == 4)
        assert {one.owner for one in history.handlings} == {"first", "second"}
        history.check(ordered=False, single_owner=False)

    play(scenario, tmp_path)


def test_a_member_that_dies_is_replaced(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        seen, other = Seen(), Seen()
        async with consumer(cluster) as first:
            await first.subscribe(T, "*", seen)
            second = consumer(cluster)
            await second.start()
            await second.subscribe(T, "*", other)
            await until(lambda: len([queue for queue in first.queues if queue.topic == T]) == 2)
            assert second._core is not None
            await second._core.membership.close()
            for reader in second._core.readers:
                reader.drop()
            await second._core.instance.connector.close()  # Without a word.
            await until(lambda: len([queue for queue in first.queues if queue.topic == T]) == 4)
            await second.close()

    play(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_a_broker_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        seen = Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) >= 4)
            group = cluster.broker.broker.clients.consumers("g")
            assert group is not None
            for member in list(group.members.values()):
                member.peer.close("as if the broker was restarted")
            await until(lambda: cluster.broker.broker.clients.consumers("g") is None)
            await send(cluster.broker, 4, 8)
            await until(lambda: len(seen.messages) >= 8)
            await until(lambda: cluster.broker.broker.clients.consumers("g") is not None)
        assert sorted(seen.bodies) == sorted(numbered(0, 8))

    play(scenario, tmp_path)


# -- broadcasting ----------------------------------------------------------------------------------------------------


def test_every_broadcasting_member_gets_everything_and_keeps_its_own_offsets(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 8)
        seen = {name: Seen() for name in ("one", "two")}
        options: dict[str, Any] = {"broadcasting": True, "offsets_path": tmp_path / "offsets"}
        for name, handler in seen.items():
            async with consumer(cluster, client_id=name, **options) as member:
                await member.subscribe(T, "*", handler)
                await until(lambda handler=handler: len(handler.messages) >= 8)  # type: ignore[misc]
        assert [sorted(one.bodies) for one in seen.values()] == [numbered(0, 8)] * 2
        file = tmp_path / "offsets" / "one" / "g" / "offsets.json"
        assert parse_json(file.read_bytes())["offsetTable"] == {
            f'{{"brokerName":"a","queueId":{n},"topic":"T"}}': 2 for n in range(4)
        }
        again = Seen()
        async with consumer(cluster, client_id="one", **options) as member:
            await member.subscribe(T, "*", again)
            await send(cluster.broker, 8, 9)
            await until(lambda: bool(again.messages))
        assert again.bodies == [b"m8"]
        assert await committed(cluster.broker) == [0, 0, 0, 0]

    play(scenario, tmp_path)


def test_what_a_broadcasting_member_does_not_consume_is_given_up(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 2, queues=1)
        options: dict[str, Any] = {"broadcasting": True, "offsets_path": tmp_path / "offsets", "client_id": "one"}
        async with consumer(cluster, **options) as member:
            await member.subscribe(T, "*", lambda _messages, _context: False)
            await until(lambda: member.positions.get(MessageQueue(T, "a", 0)) == 2)
            assert {queue.topic for queue in member.queues} == {T}  # No retry topic.

    play(scenario, tmp_path)


# -- what brokers ask ------------------------------------------------------------------------------------------------


def test_offsets_can_be_reset_while_the_consumer_runs(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 8)
        seen = Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: len(seen.messages) == 8)
            await one.commit()
            ext = {"topic": T, "group": "g", "timestamp": 0, "isForce": True}
            answer = await cluster.broker.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
            assert answer.code == 0, answer.remark
            await until(lambda: len(seen.messages) == 16)
        assert Counter(seen.bodies) == Counter(numbered(0, 8) * 2)
        assert await committed(cluster.broker) == [2, 2, 2, 2]

    play(scenario, tmp_path)


def test_administrators_see_what_the_consumer_does(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 8)
        seen = Seen()
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", seen)
            await until(lambda: sum(one.positions.get(MessageQueue(T, "a", n), 0) for n in range(4)) == 8)
            who = {"consumerGroup": "g", "clientId": one.client_id, "jstackEnable": True}
            answer = await cluster.broker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, who)
            info = parse_json(answer.body)
            assert answer.code == 0
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert {one["topic"] for one in info["subscriptionSet"]} == {T, "%RETRY%g"}
            assert len(info["mqTable"]) == 5
            assert info["statusTable"][T]["consumeFailedMsgs"] == 0
            assert "embermq-consume" in info["jstack"] or "thread" in info["jstack"]
            status = await cluster.broker.call(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": T, "group": "g", "clientAddr": ""}
            )
            assert status.code == 0, status.remark
            assert one.client_id in status.body.decode()

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("answer", "expected"), [(None, "CR_SUCCESS"), (False, "CR_LATER"), (RuntimeError("no"), "CR_THROW_EXCEPTION")]
)
def test_a_message_can_be_handled_directly(tmp_path: Path, answer: Any, expected: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        sent = await cluster.broker.send(T, b"again")
        calls: list[bytes] = []

        def handle(messages: list[ReceivedMessage], context: Context) -> Any:
            calls.append(messages[0].body)
            if isinstance(answer, Exception) and len(calls) > 1:
                raise answer
            return None if len(calls) == 1 else answer

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: len(calls) == 1)
            who = {
                "consumerGroup": "g",
                "clientId": one.client_id,
                "msgId": (sent.ext or {})["msgId"],
                "brokerName": "a",
            }
            reply = await cluster.broker.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, who)
            assert reply.code == 0, reply.remark
            result = parse_json(reply.body)
            assert (result["consumeResult"], result["order"], result["autoCommit"]) == (expected, False, True)
        assert calls == [b"again", b"again"]

    play(scenario, tmp_path)


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"group": ""}, "option group"),
        ({"group": "a b"}, "option group"),
        ({"threads": 0}, "option threads = 0"),
        ({"batch_size": 5000}, "option batch_size = 5000: 1 to 1,024"),
        ({"cached_messages": 0}, "option cached_messages"),
        ({"allocation": "fair"}, "option allocation = 'fair': one of average, circle, consistent_hash"),
        ({"consume_from": "middle"}, "option consume_from"),
        ({"retries_max": -2}, "option retries_max"),
        ({"name_server": "nowhere:"}, "option name_server"),
        ({"thread": 3}, "option thread: there is no such option; did you mean threads?"),
    ],
)
def test_options_that_cannot_be_used(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionInvalid) as caught:
        PushConsumer(**({"name_server": "127.0.0.1:1", "group": "g"} | given))
    assert str(caught.value).startswith(reason)


def test_a_name_server_that_is_not_there_is_named() -> None:
    async def scenario() -> None:
        async with PushConsumer(name_server="127.0.0.1:1", group="g") as one:
            with pytest.raises(NameServersUnreachable, match=r"127\.0\.0\.1:1"):
                await one.subscribe(T, "*", Seen())
            with pytest.raises(OptionInvalid, match="option handle"):
                await one.subscribe(T, "*")

    asyncio.run(scenario())


def test_a_consumer_that_was_not_started_says_so() -> None:
    with pytest.raises(ClientClosed, match="is not started"):
        _ = PushConsumer(name_server="127.0.0.1:1", group="g").queues
