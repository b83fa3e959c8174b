"""Producers of the Python client: one suite, against Apache RocketMQ 4.9.7 and 5.3.3 and against `embermq broker`."""

import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest

from embermq.client import Credentials, Decision, Message, Producer, ReceivedMessage, TransactionProducer
from embermq.client.aio import Producer as AsyncProducer
from embermq.errors import ClientError, RequestRefused
from tests.interop.apache5 import ACCOUNT
from tests.interop.python_client import EMBERMQ, ClusterUnderTest, bodies, stored, trusting_context
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def topic() -> str:
    return f"T_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def producer(cluster: ClusterUnderTest) -> Iterator[Producer]:
    with Producer(cluster.name_server, "g", credentials=ACCOUNT, send_timeout=20.0, call_timeout=20.0) as started:
        yield started


def test_a_message_comes_back_as_it_was_sent(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    message = Message(topic, b"hello", tags="paid", keys=["o-1", "o-2"], properties={"colour": "blue"}, flag=3)
    result = producer.send(message)
    assert result.ok
    (found,) = stored(cluster, topic, 1)
    assert (found.body, found.tags, found.keys, found.flag) == (b"hello", "paid", ["o-1", "o-2"], 3)
    assert found.properties["colour"] == "blue"
    assert (found.message_id, found.offset_message_id) == (result.message_id, result.offset_message_id)
    assert (found.queue, found.queue_offset) == (result.queue, result.queue_offset)


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd", "none"])
def test_compressed_bodies(cluster: ClusterUnderTest, topic: str, method: str) -> None:
    with Producer(cluster.name_server, "g", credentials=ACCOUNT, send_timeout=20.0, compression=method) as producer:
        producer.send(Message(topic, b"0123456789" * 3000))
    (found,) = stored(cluster, topic, 1)
    assert found.body == b"0123456789" * 3000
    assert (len(found.stored_body) < 3000) is (method != "none")


def test_keys_choose_queues_and_keep_order(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    results = [producer.send(Message(topic, b"%d" % number), queue_by="o-1") for number in range(10)]
    assert len({result.queue for result in results}) == 1
    assert bodies(stored(cluster, topic, 10)) == [b"%d" % number for number in range(10)]
    assert len({producer.send(Message(topic, b"x")).queue for _ in range(8)}) == 4


def test_batches(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    messages = [Message(topic, b"%d" % number, keys=f"k{number}") for number in range(100)]
    results = producer.send_many(messages, queue_by=0)
    found = stored(cluster, topic, 100)
    assert bodies(found) == [message.body for message in messages]
    assert [one.message_id for one in found] == [result.message_id for result in results]
    assert [one.offset_message_id for one in found] == [result.offset_message_id for result in results]
    assert found[7].keys == ["k7"]


def test_oneway_and_async(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    producer.send_oneway(Message(topic, b"one"))
    futures = [producer.send_async(Message(topic, b"x")) for _ in range(200)]
    assert all(future.result(60).ok for future in futures)
    assert len(stored(cluster, topic, 201)) == 201


def test_delayed_messages(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    producer.send(Message(topic, b"later", delay_level=1))
    (found,) = stored(cluster, topic, 1)
    assert found.body == b"later"
    assert found.store_timestamp - found.born_timestamp >= 900


def test_transactions(cluster: ClusterUnderTest, topic: str) -> None:
    is_asked, asked = threading.Event(), list[ReceivedMessage]()

    def check(message: ReceivedMessage) -> bool:
        asked.append(message)
        is_asked.set()
        return True

    options = {"credentials": ACCOUNT, "send_timeout": 20.0, "call_timeout": 20.0, "heartbeat_seconds": 1.0}
    with TransactionProducer(cluster.name_server, f"tg_{topic}", check, **options) as producer:  # type: ignore[arg-type]
        committed = producer.send(Message(topic, b"committed"), lambda message, transaction_id: True)
        assert (committed.decision, committed.is_ended) == (Decision.COMMIT, True)
        rolled_back = producer.send(Message(topic, b"rolled back"), lambda message, transaction_id: False)
        assert rolled_back.is_ended
        undecided = producer.send(Message(topic, b"asked about"), lambda message, transaction_id: None)
        assert not undecided.is_ended
        assert is_asked.wait(60)
        assert sorted(bodies(stored(cluster, topic, 2))) == [b"asked about", b"committed"]
    assert {message.message_id for message in asked} == {undecided.sent.message_id}
    assert (asked[0].topic, asked[0].body) == (topic, b"asked about")


def test_requests_and_replies(cluster: ClusterUnderTest, topic: str) -> None:
    async def scenario() -> bytes:
        options = {"credentials": ACCOUNT, "send_timeout": 20.0, "call_timeout": 20.0}
        async with (
            AsyncProducer(cluster.name_server, "asking", **options) as asking,  # type: ignore[arg-type]
            AsyncProducer(cluster.name_server, "replying", **options) as replying,  # type: ignore[arg-type]
        ):
            asked = asyncio.create_task(asking.request(Message(topic, b"6 * 7"), timeout=60.0))
            (request,) = await asyncio.to_thread(stored, cluster, topic, 1)
            await replying.reply(request, b"42")
            return (await asked).body

    assert asyncio.run(scenario()) == b"42"


def test_traces(cluster: ClusterUnderTest, topic: str) -> None:
    with Producer(cluster.name_server, "g", credentials=ACCOUNT, send_timeout=20.0, trace=True) as producer:
        result = producer.send(Message(topic, b"traced"))

    def is_traced() -> bool:  # Among the traces of other tests.
        traces = stored(cluster, "RMQ_SYS_TRACE_TOPIC", 1)
        return any(result.message_id in trace.keys and topic.encode() in trace.body for trace in traces)

    wait_until(is_traced)


def test_namespaces(cluster: ClusterUnderTest, topic: str) -> None:
    with Producer(cluster.name_server, "g", credentials=ACCOUNT, send_timeout=20.0, namespace="shop") as producer:
        assert producer.send(Message(topic, b"x")).queue.topic == topic
    assert len(stored(cluster, f"shop%{topic}", 1)) == 1


def test_a_wrong_secret_is_refused(cluster: ClusterUnderTest, topic: str) -> None:
    if cluster.kind == EMBERMQ:
        pytest.skip("EmberMQ's broker has no access control")
    wrong = Credentials(ACCOUNT.access_key, "wrong-secret")
    with (
        Producer(cluster.name_server, "g", credentials=wrong, retries=0, send_timeout=20.0) as producer,
        pytest.raises(RequestRefused, match=r"broker-a.*(?i:signature|acl)") as raised,
    ):
        producer.send(Message(topic, b"x"))
    assert isinstance(raised.value, ClientError)


def test_tls(cluster: ClusterUnderTest, topic: str) -> None:
    if cluster.kind == EMBERMQ:
        pytest.skip("EmberMQ's broker does not speak TLS")
    options = {"credentials": ACCOUNT, "send_timeout": 30.0, "call_timeout": 30.0, "tls": trusting_context()}
    with Producer(cluster.name_server, "g", **options) as producer:  # type: ignore[arg-type]
        assert producer.send(Message(topic, b"secret")).ok
    assert bodies(stored(cluster, topic, 1)) == [b"secret"]
