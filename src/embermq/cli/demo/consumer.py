"""A process of the demo: a member of a consumer group that consumes orders in order, and reports each one.

    python -m embermq.cli.demo.consumer NAME_SERVER

One line of standard output for each message: its number, its topic, its queue, its queue offset. When its standard
input ends, it commits and leaves the group.
"""

import sys
import threading

from embermq.cli.demo.orders import TOPICS, event_number
from embermq.cli.demo.settings import READY_LINE
from embermq.client import PushConsumer, ReceivedMessage

GROUP = "billing"
BATCH_MESSAGES = 32
_lock = threading.Lock()  # Queues are consumed by several threads.


def consume(messages: list[ReceivedMessage], _context: object) -> bool:
    lines = [f"{event_number(one.body)} {one.topic} {one.queue.queue_id} {one.queue_offset}\n" for one in messages]
    with _lock:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    return True


def main(name_server: str) -> None:
    consumer = PushConsumer(
        name_server=name_server, group=GROUP, orderly=True, consume_from="first", batch_size=BATCH_MESSAGES
    )
    for topic in TOPICS:
        consumer.subscribe(topic, "*", consume)
    with consumer:
        with _lock:
            print(READY_LINE, end="", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
