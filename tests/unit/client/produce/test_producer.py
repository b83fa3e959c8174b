"""Producers against brokers of ours: everything that a producer does, over real sockets."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embermq.client import Credentials, Producer, SendContext, SendStatus
from embermq.client.aio import Message
from embermq.client.aio import Producer as AsyncProducer
from embermq.client.calls import BrokerAddress, Caller, Pull, pull
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage, parse_records
from embermq.errors import (
    BodyTooLarge,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    MessageIllegal,
    NameServersUnreachable,
    ReplyMissing,
    RouteMissing,
    SendFailed,
)
from embermq.model.properties import decode_properties
from tests.support.brokers import RunningBroker, until
from tests.support.clusters import Cluster, cluster_on_thread, play

M = Message("orders", b"x")


async def all_stored(cluster: Cluster, topic: str = "orders", queues: int = 4) -> list[Any]:
    found: list[Any] = []
    for broker in cluster.brokers.values():
        for queue_id in range(queues):
            found += await broker.stored(topic, queue_id)
    return found


def test_messages_are_stored_as_they_were_sent(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g") as producer:
            message = Message("orders", b"hello", tags="paid", keys=["o-1"], properties={"a": "1"}, flag=9)
            result = await producer.send(message)
            assert (result.status, result.ok, result.queue_offset) == (SendStatus.SEND_OK, True, 0)
            assert (result.queue.topic, result.queue.broker) == ("orders", "a")
            (stored,) = await cluster.broker.stored("orders", result.queue.queue_id)
            assert (stored.body, stored.tags, stored.keys, stored.flag) == (b"hello", "paid", ["o-1"], 9)
            assert stored.properties["a"] == "1"
            assert (stored.unique_key, stored.message_id) == (result.message_id, result.offset_message_id)
            assert [queue.queue_id for queue in await producer.queues("orders")] == [0, 1, 2, 3]

    play(scenario, tmp_path)


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_large_bodies_come_back_whole(tmp_path: Path, method: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        body = b"abcdefgh" * 4000
        async with AsyncProducer(cluster.name_server, "g", compression=method) as producer:
            result = await producer.send(Message("orders", body))
            (stored,) = await cluster.broker.stored("orders", result.queue.queue_id)
            assert len(stored.body) < 2000
            assert stored.payload == body

    play(scenario, tmp_path)


def test_ordered_messages_stay_in_one_queue(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g") as producer:
            results = [await producer.send(Message("orders", b"%d" % n), queue_by="o-1") for n in range(5)]
            assert len({result.queue for result in results}) == 1
            assert [result.queue_offset for result in results] == list(range(5))
            queue = MessageQueue("orders", "a", 2)
            assert (await producer.send(M, queue_by=queue)).queue == queue
            last = await producer.send(M, queue_by=lambda queues, message: queues[-1])
            assert last.queue.queue_id == 3
            spread = {(await producer.send(M)).queue.queue_id for _ in range(8)}
            assert spread == {0, 1, 2, 3}
            with pytest.raises(ClientError, match="queue_by raised"):
                await producer.send(M, queue_by=lambda queues, message: 1 // 0)

    play(scenario, tmp_path)


def test_many_messages_in_batches(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", batch_bytes_max=2000) as producer:
            messages = [Message("orders", b"%03d" % number * 20, keys=f"k{number}") for number in range(50)]
            messages[7] = Message("orders", b"z" * 9000)
            results = await producer.send_many(messages, queue_by=1)
            assert len(results) == 50
            stored = await cluster.broker.stored("orders", 1)
            assert [one.payload for one in stored] == [message.body for message in messages]
            assert [one.unique_key for one in stored] == [result.message_id for result in results]
            assert [one.message_id for one in stored] == [result.offset_message_id for result in results]
            assert [result.queue_offset for result in results] == list(range(50))
            assert await producer.send_many([]) == []
            with pytest.raises(BodyTooLarge):
                await producer.send_many([M, Message("orders", b"x" * (5 << 20))])

    play(scenario, tmp_path)


def test_oneway_and_many_at_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", in_flight_max=10) as producer:
            await producer.send_oneway(M)
            await until(lambda: sum(cluster.broker.store.max_offset("orders", n) for n in range(4)) == 1)
            futures = [producer.send_async(Message("orders", b"%d" % number)) for number in range(50)]
            assert producer.core.sender.in_flight <= 10
            results = await asyncio.gather(*futures)
            assert len({result.offset_message_id for result in results}) == 50
            assert producer.core.sender.in_flight_bytes == 0
            refused = [producer.send_async(M) for _ in range(60)][-1]
            with pytest.raises(SendFailed, match="wait already"):
                await refused

    play(scenario, tmp_path)


def test_another_broker_takes_over(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g") as producer:
            assert {(await producer.send(M)).queue.broker for _ in range(8)} == {"a", "b"}
            await cluster.brokers["a"].broker.stop()
            results = [await producer.send(M) for _ in range(8)]
            assert {result.queue.broker for result in results} == {"b"}

    play(scenario, tmp_path, brokers=2)


def test_a_broken_broker_is_left_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", latency_faults=True, route_seconds=600) as producer:
            contexts: list[SendContext] = []
            await producer.send(M)
            cluster.brokers["a"].broker.store.close()
            for _ in range(10):
                contexts.append(SendContext("g", M, ""))
                assert (await producer.send(M)).queue.broker == "b"
            faults = producer.core.sender._choice.faults
            assert faults is not None
            assert not faults.is_available("a", asyncio.get_running_loop().time())

    play(scenario, tmp_path, brokers=2)


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", message_bytes_max=64 << 20, compression="none") as producer:
            with pytest.raises(MessageIllegal, match=r"topic 'orders'.*broker a .*make the message smaller"):
                await producer.send(Message("orders", b"x" * (5 << 20)))
            with pytest.raises(SendFailed, match=r"broker gone.*in no route") as failed:
                await producer.send(M, queue_by=MessageQueue("orders", "gone", 0))
            assert all(isinstance(one, BrokerUnreachable) for one in failed.value.attempts)
            await cluster.broker.broker.stop()
            with pytest.raises((SendFailed, RouteMissing), match="'orders'") as raised:
                await producer.send(M)
            assert isinstance(raised.value, ClientError)
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send(M)
        async with AsyncProducer("127.0.0.1:1", "g") as producer:
            with pytest.raises(NameServersUnreachable, match=r"127\.0\.0\.1:1"):
                await producer.send(M)

    play(scenario, tmp_path)


def test_a_closed_topic_is_refused_everywhere(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g") as producer:
            with pytest.raises(SendFailed, match="NO_PERMISSION") as raised:
                await producer.send(Message("SELF_TEST_TOPIC", b"x"))
            assert len(raised.value.attempts) == 3

    play(scenario, tmp_path)


def test_hooks_see_every_send_and_cannot_break_it(tmp_path: Path) -> None:
    class Seen:
        def __init__(self) -> None:
            self.before: list[str] = []
            self.after: list[SendContext] = []

        def before_send(self, context: SendContext) -> None:
            self.before.append(context.message_id)
            raise ValueError("a bad hook")

        def after_send(self, context: SendContext) -> None:
            self.after.append(context)

    async def scenario(cluster: Cluster) -> None:
        seen = Seen()
        async with AsyncProducer(cluster.name_server, "g", hooks=[seen]) as producer:
            result = await producer.send(M)
            await producer.send_oneway(M)
            assert seen.before[0] == result.message_id
            first, second = seen.after
            assert (first.result, first.error, first.group, first.tries) == (result, None, "g", 1)
            assert first.address == cluster.broker.address
            assert second.result is None
            with pytest.raises(SendFailed):
                await producer.send(Message("SELF_TEST_TOPIC", b"x"))
            assert isinstance(seen.after[2].error, SendFailed)
            assert seen.after[2].tries == 3

    play(scenario, tmp_path)


def test_traces_are_sent_to_the_trace_topic(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", trace=True) as producer:
            result = await producer.send(Message("orders", b"abc", tags="t", keys=["k1", "k2"]))
            await producer.send(Message("orders", b"", delay_level=1))
        traces = await all_stored(cluster, "RMQ_SYS_TRACE_TOPIC")
        lines = [line for trace in traces for line in trace.payload.decode().split("\x02") if line]
        first = next(line for line in lines if result.message_id in line).split("\x01")
        assert first[0] == "Pub"
        assert first[3:9] == ["g", "orders", result.message_id, "t", "k1 k2", cluster.broker.address]
        assert (first[9], first[11:]) == ("3", ["0", result.offset_message_id, "true"])
        assert any(result.message_id in trace.keys and "k1" in trace.keys for trace in traces)
        assert any(line.split("\x01")[11] == "3" for line in lines)

    play(scenario, tmp_path)


def test_namespaces_are_seen_by_brokers_only(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g", namespace="shop") as producer:
            result = await producer.send(M)
            assert result.queue.topic == "orders"
            (stored,) = await cluster.broker.stored("shop%orders", result.queue.queue_id)
            assert stored.properties["INSTANCE_ID"] == "shop"
            await producer.core.instance.beat()
            assert len(cluster.broker.broker.clients.producers("shop%g")) == 1

    play(scenario, tmp_path)


def test_a_producer_is_registered_and_leaves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        clients = cluster.broker.broker.clients
        async with AsyncProducer(
            cluster.name_server, "g", client_id="me", credentials=Credentials("a", "b")
        ) as producer:
            await producer.send(M)
            await producer.core.instance.beat()
            assert [member.client_id for member in clients.producers("g")] == ["me"]
            assert producer.core.instance.versions == {"a": 409}
        assert clients.producers("g") == []

    play(scenario, tmp_path)


def test_requests_are_replied_to(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with (
            AsyncProducer(cluster.name_server, "asking") as asking,
            AsyncProducer(cluster.name_server, "replying") as replying,
        ):
            queue = MessageQueue("questions", "a", 0)
            asked = asyncio.create_task(asking.request(Message("questions", b"6 * 7"), timeout=20.0, queue_by=queue))
            request = await received(cluster.broker, "questions")
            assert request.body == b"6 * 7"
            await replying.reply(request, b"42", colour="blue")
            reply = await asked
            assert (reply.body, reply.properties["colour"]) == (b"42", "blue")
            with pytest.raises(ClientError, match="awaits no reply"):
                await replying.reply(msgspec.structs.replace(request, property_bytes=b""), b"")
            with pytest.raises(ReplyMissing, match="questions"):
                await asking.request(Message("questions", b"?"), timeout=0.2, queue_by=3)
            large = asyncio.create_task(
                asking.request(Message("questions", b"large"), timeout=20.0, queue_by=MessageQueue("questions", "a", 1))
            )
            request = await received(cluster.broker, "questions", 1)
            await replying.reply(request, b"y" * 50_000)
            assert (await large).body == b"y" * 50_000

    play(scenario, tmp_path)


async def received(broker: RunningBroker, topic: str, queue_id: int = 0) -> ReceivedMessage:
    """The last message of a queue."""
    await until(lambda: broker.store.max_offset(topic, queue_id) > 0)
    await asyncio.to_thread(broker.store.wait_for_dispatch)
    wanted = Pull("g", topic, queue_id, broker.store.max_offset(topic, queue_id) - 1, expression="*")
    pulled = await pull(Caller(broker.client), BrokerAddress("a", broker.address), wanted, 10.0)
    return parse_records(pulled.records, "a")[-1]


def test_closing_waits_for_what_is_in_flight(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = await AsyncProducer(cluster.name_server, "g").start()
        futures = [producer.send_async(M) for _ in range(20)]
        await producer.close()
        assert [future.result().ok for future in futures] == [True] * 20
        await producer.close()

    play(scenario, tmp_path)


def test_one_that_gives_up_leaves_the_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncProducer(cluster.name_server, "g") as producer:
            first, second = producer.send_async(M), producer.send_async(M)
            first.cancel()
            assert (await second).ok
        assert len(await all_stored(cluster)) == 2

    play(scenario, tmp_path)


def test_a_second_name_server_helps(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        servers = ["127.0.0.1:1", cluster.name_server, "127.0.0.1:2"]
        async with AsyncProducer(servers, "g") as producer:
            assert (await producer.send(M)).ok

    play(scenario, tmp_path)


# -- the blocking face -----------------------------------------------------------------------------------------


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.005)


def test_the_blocking_face(tmp_path: Path) -> None:
    with cluster_on_thread(tmp_path) as cluster:
        store = cluster.broker.store
        with Producer(name_server=cluster.name_server, group="orders") as producer:
            result = producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))
            assert result.ok
            (stored,) = store.fetch("orders", result.queue.queue_id, 0).messages
            assert decode_properties(stored.property_bytes)["TAGS"] == "paid"
            producer.send_oneway(M)
            eventually(lambda: sum(store.max_offset("orders", n) for n in range(4)) == 2)
            results = producer.send_many([Message("orders", b"%d" % number) for number in range(10)])
            assert len({one.offset_message_id for one in results}) == 10
            futures = [producer.send_async(M, queue_by="o-1") for _ in range(100)]
            assert sorted(future.result(20).queue_offset for future in futures) == [
                future.result().queue_offset for future in futures
            ]
            with pytest.raises(ReplyMissing):
                producer.request(Message("questions", b"?"), timeout=0.1)
            assert len(producer.queues("orders")) == 4
            with pytest.raises(BodyTooLarge):
                producer.send(Message("orders", b"x" * (5 << 20)))
        with pytest.raises(ClientClosed, match="with"):
            producer.send(M)
        producer.close()


def test_many_threads_share_a_producer(tmp_path: Path) -> None:
    import threading

    with cluster_on_thread(tmp_path) as cluster, Producer(cluster.name_server, "g", in_flight_max=8) as producer:
        results: list[Any] = []

        def work() -> None:
            results.extend(producer.send(M) for _ in range(25))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len({result.offset_message_id for result in results}) == 150
        assert len({result.message_id for result in results}) == 150
