"""Consumers of the Python client: one suite, against Apache RocketMQ 4.9.7 and 5.3.3 and against `embermq broker`."""

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embermq.client import Admin, Context, Message, MessageQueue, Producer, PullConsumer, PushConsumer, ReceivedMessage
from tests.interop.apache5 import ACCOUNT
from tests.interop.python_client import EMBERMQ, ClusterUnderTest, bodies, stored
from tests.support.histories import History
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def topic() -> str:
    return f"T_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def producer(cluster: ClusterUnderTest) -> Iterator[Producer]:
    with Producer(cluster.name_server, "p", credentials=ACCOUNT, send_timeout=20.0, call_timeout=20.0) as started:
        yield started


def push(cluster: ClusterUnderTest, topic: str, **more: Any) -> PushConsumer:
    options: dict[str, Any] = {"credentials": ACCOUNT, "call_timeout": 20.0, "consume_from": "first"}
    return PushConsumer(name_server=cluster.name_server, group=f"g_{topic}", **(options | more))


def pull(cluster: ClusterUnderTest, topic: str, **more: Any) -> PullConsumer:
    options: dict[str, Any] = {"credentials": ACCOUNT, "call_timeout": 20.0, "consume_from": "first"}
    return PullConsumer(name_server=cluster.name_server, group=f"g_{topic}", **(options | more))


def send(producer: Producer, topic: str, start: int, end: int) -> list[bytes]:
    """Numbered messages with a tag; keys in turn."""
    made = [b"m%d" % number for number in range(start, end)]
    for number, body in enumerate(made, start):
        assert producer.send(Message(topic, body, tags=f"t{number % 2}", keys=[f"k{number}"])).ok
    return made


def test_messages_with_a_tag_are_handled_and_committed(
    cluster: ClusterUnderTest, producer: Producer, topic: str
) -> None:
    sent = send(producer, topic, 0, 40)
    got: list[ReceivedMessage] = []
    with push(cluster, topic) as consumer:
        consumer.subscribe(topic, "t0", lambda messages, _context: got.extend(messages))
        wait_until(lambda: len(got) >= 20)
    assert Counter(bodies(got)) == Counter(sent[::2])
    later: list[bytes] = []
    with push(cluster, topic) as consumer:
        consumer.subscribe(topic, "*", lambda messages, _context: later.extend(bodies(messages)))
        more = send(producer, topic, 40, 44)
        wait_until(lambda: len(later) >= 4)
    assert sorted(later) == sorted(more)


def test_what_is_not_consumed_comes_again_or_is_a_dead_letter(
    cluster: ClusterUnderTest, producer: Producer, topic: str
) -> None:
    send(producer, topic, 0, 3)
    got: list[tuple[bytes, int, str]] = []

    def handle(messages: list[ReceivedMessage], context: Context) -> bool:
        (message,) = messages
        got.append((message.body, message.reconsume_times, message.topic))
        context.delay_level = 1 if message.body == b"m0" else -1
        return message.body == b"m2" or message.reconsume_times > 0

    with push(cluster, topic) as consumer:
        consumer.subscribe(topic, "*", handle)
        wait_until(lambda: len(got) >= 4)
        dead = stored(cluster, f"%DLQ%g_{topic}", 1)
    assert Counter(got) == Counter([(b"m0", 0, topic), (b"m1", 0, topic), (b"m2", 0, topic), (b"m0", 1, topic)])
    assert bodies(dead) == [b"m1"]


def test_queues_are_handled_in_order_by_members_that_come_and_go(
    cluster: ClusterUnderTest, producer: Producer, topic: str
) -> None:
    history = History()

    def member(name: str) -> PushConsumer:
        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            (message,) = messages
            one = history.begin(name, message.queue, message.queue_offset, message.body)
            is_consumed = message.queue_offset % 5 != 2 or message.reconsume_times > 0
            context.suspend = 0.01
            history.finish(one, consumed=is_consumed)
            return is_consumed

        consumer = push(cluster, topic, orderly=True)
        consumer.subscribe(topic, "*", handle)
        return consumer

    def note(start: int, end: int) -> None:
        for body in send(producer, topic, start, end):
            history.sent(body)

    note(0, 40)
    with member("first") as first:
        wait_until(lambda: not history.unconsumed())
        with member("second") as second:
            wait_until(lambda: _share(first, topic) == _share(second, topic) == 2)
            note(40, 80)
            wait_until(lambda: not history.unconsumed())
        wait_until(lambda: _share(first, topic) == 4)
        note(80, 100)
        wait_until(lambda: not history.unconsumed())
    # A queue's offset is committed without an answer before its lock is given up. Apache's brokers carry out the two on
    # threads of their own, so the next owner may ask for the offset before it is there.
    history.check(exactly_once=cluster.kind == EMBERMQ)
    assert {one.owner for one in history.handlings} == {"first", "second"}


def _share(consumer: PushConsumer, topic: str) -> int:
    return len([queue for queue in consumer.queues if queue.topic == topic])


def test_pulling_seeking_and_committing(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    sent = send(producer, topic, 0, 40)
    with pull(cluster, topic) as consumer:
        assert sorted(bodies(list(consumer.messages(topic, timeout=3.0)))) == sorted(sent)
        queue = MessageQueue(topic, next(iter(consumer.assignment)).broker, 0)
        end = consumer.end_offset(queue)
        consumer.commit()
        assert consumer.committed(queue) == end
        consumer.seek(queue, end - 1)
        (again,) = consumer.poll(20.0)
        assert (again.queue, again.queue_offset) == (queue, end - 1)
    with pull(cluster, topic) as consumer:
        assert list(consumer.messages(topic, timeout=2.0)) == []
        more = send(producer, topic, 40, 42)
        assert sorted(bodies(list(consumer.messages(topic, timeout=3.0)))) == more


def test_assigned_queues_are_read_whatever_the_group_does(
    cluster: ClusterUnderTest, producer: Producer, topic: str
) -> None:
    send(producer, topic, 0, 20)
    with pull(cluster, topic, auto_commit=False) as consumer:
        queues = consumer.topic_queues(topic)
        consumer.assign(queues[:2])
        found = list(consumer.messages(topic, timeout=3.0))
        assert {message.queue for message in found} == set(queues[:2])
        assert len(found) == sum(consumer.end_offset(queue) for queue in queues[:2])


def test_sql_is_evaluated_by_the_broker(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    for number in range(6):
        producer.send(Message(topic, b"m%d" % number, properties={"amount": str(number)}))
    got: list[bytes] = []
    with push(cluster, topic) as consumer:
        consumer.subscribe(topic, sql="amount > 3", handle=lambda messages, _context: got.extend(bodies(messages)))
        wait_until(lambda: len(got) >= 2)
    assert sorted(got) == [b"m4", b"m5"]


def test_traces_tell_who_consumed_a_message(cluster: ClusterUnderTest, producer: Producer, topic: str) -> None:
    sent = producer.send(Message(topic, b"traced", keys=[f"k_{topic}"]))
    got: list[bytes] = []
    with push(cluster, topic, trace=True) as consumer:
        consumer.subscribe(topic, "*", lambda messages, _context: got.extend(bodies(messages)))
        wait_until(lambda: bool(got))
    with Admin(cluster.name_server, credentials=ACCOUNT) as admin:
        wait_until(lambda: bool(admin.traces.of_message(sent.message_id)))  # The index of a broker lags behind.
        (step,) = admin.traces.of_message(sent.message_id)
    assert (step.what, step.status, step.group, step.keys) == ("consume", "success", f"g_{topic}", f"k_{topic}")
