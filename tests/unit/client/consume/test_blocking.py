"""The consumers without asyncio."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.client import Context, Message, MessageQueue, Producer, PullConsumer, PushConsumer, ReceivedMessage
from embermq.errors import ClientClosed, NameServersUnreachable, OptionInvalid
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.waiting import wait_until

T = "T"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """With eight messages in four queues."""
    with cluster_on_thread(tmp_path) as made:
        with Producer(name_server=made.name_server, group="p") as producer:
            for number in range(8):
                producer.send(Message(T, b"m%d" % number, tags=f"t{number % 2}"), queue_by=_queue(number))
        yield made


def _queue(number: int) -> Any:
    return lambda queues, *_more: queues[number % len(queues)]


def numbered(*numbers: int) -> list[bytes]:
    return [b"m%d" % number for number in numbers]


def test_a_push_consumer(cluster: Cluster) -> None:
    got: list[bytes] = []

    def handle(messages: list[ReceivedMessage], context: Context) -> None:
        got.extend(message.body for message in messages)

    with PushConsumer(name_server=cluster.name_server, group="g", consume_from="first") as consumer:
        consumer.subscribe(T, "t0", handle)
        wait_until(lambda: len(got) == 4)
        assert {queue for queue in consumer.queues if queue.topic == T} == {MessageQueue(T, "a", n) for n in range(4)}
        wait_until(lambda: sum(consumer.positions.values()) == 8)
        consumer.pause()
        consumer.resume()
        consumer.commit()
        assert not consumer.wait(0.0)
        assert "@" in consumer.client_id
        consumer.unsubscribe(T)
    assert consumer.wait()
    assert sorted(got) == numbered(0, 2, 4, 6)
    consumer.close()  # Twice does no harm.
    with pytest.raises(ClientClosed, match="the consumer of group 'g'"):
        consumer.subscribe(T, "*", handle)


def test_topics_may_be_subscribed_to_before_the_start(cluster: Cluster) -> None:
    got: list[bytes] = []
    consumer = PushConsumer(name_server=cluster.name_server, group="g", consume_from="first", orderly=True)
    consumer.subscribe(T, "*", lambda messages, _context: got.extend(one.body for one in messages))
    with consumer:
        wait_until(lambda: len(got) == 8)
    assert sorted(got) == numbered(*range(8))


def test_a_handler_may_send(cluster: Cluster) -> None:
    got: list[bytes] = []
    with (
        Producer(name_server=cluster.name_server, group="p") as producer,
        PushConsumer(name_server=cluster.name_server, group="g", consume_from="first") as consumer,
    ):

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            for message in messages:
                if len(message.body) < 4:
                    producer.send(Message(T, message.body + b"-again"))
                got.append(message.body)

        consumer.subscribe(T, "*", handle)
        wait_until(lambda: len(got) == 16)
    assert sorted(got) == sorted(numbered(*range(8)) + [one + b"-again" for one in numbered(*range(8))])


def test_a_pull_consumer(cluster: Cluster) -> None:
    with PullConsumer(name_server=cluster.name_server, group="g", consume_from="first") as pull:
        assert sorted(message.body for message in pull.messages(T, timeout=3.0)) == numbered(*range(8))
        assert len(pull.assignment) == 4
        queue = MessageQueue(T, "a", 1)
        pull.seek(queue, 1)
        assert [message.body for message in pull.poll(10.0)] == numbered(5)
        pull.commit()
        assert (pull.committed(queue), pull.end_offset(queue), pull.position(queue)) == (2, 2, 2)
        pull.seek_to_begin(queue)
        assert [message.body for message in pull.poll(10.0, 1)] == numbered(1)
        pull.seek_to_end(queue)
        pull.seek_to_time(queue, 0)
        pull.pause([queue])
        pull.resume([queue])
        assert sorted(message.body for message in pull.poll(10.0)) == numbered(1, 5)


def test_leaving_a_loop_early_loses_nothing(cluster: Cluster) -> None:
    with PullConsumer(name_server=cluster.name_server, group="g", consume_from="first") as pull:
        first = [message.body for _number, message in zip(range(3), pull.messages(T), strict=False)]
        rest = [message.body for message in pull.messages(T, timeout=3.0)]
    assert sorted(first + rest) == numbered(*range(8))
    with PullConsumer(name_server=cluster.name_server, group="g", consume_from="first") as pull:
        assert list(pull.messages(T, timeout=0.3)) == []


def test_assigned_queues(cluster: Cluster) -> None:
    with PullConsumer(name_server=cluster.name_server, group="g", consume_from="first", auto_commit=False) as pull:
        queues = pull.topic_queues(T)
        pull.assign(queues[:1], "t0")
        assert [message.body for message in pull.messages(T, timeout=3.0)] == numbered(0, 4)
        pull.unsubscribe("other")


def test_mistakes_are_named() -> None:
    async def handle(messages: list[ReceivedMessage], context: Context) -> None: ...

    consumer = PushConsumer(name_server="127.0.0.1:1", group="g")
    with pytest.raises(OptionInvalid, match=r"a coroutine function needs embermq\.client\.aio"):
        consumer.subscribe(T, "*", handle)  # type: ignore[arg-type]
    with pytest.raises(OptionInvalid, match="option handle"):
        consumer.subscribe(T)
    consumer.subscribe(T, "*", lambda _messages, _context: None)
    threads = threading.active_count()
    with pytest.raises(NameServersUnreachable):
        consumer.start()
    wait_until(lambda: threading.active_count() <= threads)  # Nothing is left of it.
    with pytest.raises(ClientClosed, match="is not open"):
        PullConsumer(name_server="127.0.0.1:1", group="g").poll()
