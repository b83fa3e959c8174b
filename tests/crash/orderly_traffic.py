"""A producer and orderly consumers that go on whatever happens to their broker, and note what they see in a history.

A message whose answer was lost may be stored or not; it is never sent again under the same number.
"""

import contextlib
import threading
from collections.abc import Iterator

from embermq.client import Context, Message, Producer, PushConsumer, ReceivedMessage
from embermq.errors import ClientError
from tests.support.histories import History

TOPIC = "orders"


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
