"""A broker process is killed under running orderly consumers and started again on its ports: every acknowledged message
is consumed, in the order of its queue, and no queue has two owners.

A message whose answer was lost may be stored or not; it is never sent again under the same number.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.client import Context, Message, Producer, PushConsumer, ReceivedMessage
from embermq.errors import ClientError
from tests.support.broker_process import BrokerProcess
from tests.support.histories import History
from tests.support.waiting import wait_until

TOPIC = "orders"
PATIENCE_SECONDS = 300.0
PER_ROUND = 60
KILLS = 3


@contextlib.contextmanager
def sending(name_server: str, history: History) -> Iterator[None]:
    """A producer that sends one message after another until the block ends."""
    is_over = threading.Event()

    def send() -> None:
        with Producer(name_server, "p", retries=0, send_timeout=5.0, route_seconds=1.0) as producer:
            number = 0
            while not is_over.is_set():
                key = f"m{number}"
                number += 1
                history.trying(key)
                try:
                    result = producer.send(Message(TOPIC, key.encode()))
                except ClientError:
                    is_over.wait(0.05)  # The broker is down: there is nothing to hurry for.
                else:
                    history.sent(key, result.queue, result.queue_offset)

    thread = threading.Thread(target=send, name="sending")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def consumer(name_server: str, history: History, name: str) -> PushConsumer:
    def handle(messages: list[ReceivedMessage], context: Context) -> None:
        for message in messages:
            with history.handling(name, context.queue, message.queue_offset, message.body.decode()):
                pass

    made = PushConsumer(
        name_server=name_server, group="g", client_id=name, orderly=True, consume_from="first", route_seconds=1.0
    )
    made.subscribe(TOPIC, "*", handle)
    return made


@pytest.mark.long
def test_orderly_consumers_go_on_after_kills(tmp_path: Path) -> None:
    history = History()

    def consumes_more() -> None:
        more = len(history.consumed()) + PER_ROUND
        wait_until(lambda: len(history.consumed()) >= more, seconds=PATIENCE_SECONDS)

    broker = BrokerProcess(tmp_path)
    try:
        with Producer(broker.name_server, "first", send_timeout=60.0) as producer:
            result = producer.send(Message(TOPIC, b"first"))  # The topic is there when consumers look for it.
            history.sent("first", result.queue, result.queue_offset)
        with (
            consumer(broker.name_server, history, "one"),
            consumer(broker.name_server, history, "two"),
        ):
            with sending(broker.name_server, history):
                for _ in range(KILLS):
                    consumes_more()
                    broker.kill()
                    broker = BrokerProcess(tmp_path, listen=broker.address, name_server=broker.name_server)
                consumes_more()
            wait_until(lambda: not history.unconsumed(), seconds=PATIENCE_SECONDS)
        history.check()
        assert len(history.sends) > KILLS * PER_ROUND
    finally:
        broker.kill()
