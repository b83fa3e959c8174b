"""A process of the demo: sends its part of the orders, and reports each one that the broker has acknowledged.

    python -m embermq.cli.demo.producer NAME_SERVER COUNT PART PARTS SECONDS

It sends the orders whose number leaves PART when divided by PARTS, spread over SECONDS, in runs: the next run begins
when every message of the last one is acknowledged. What was not, because the broker died, is sent again, in order; so
a message may be stored twice, and is never overtaken by one behind it. One line of standard output for each message:
its number, the id that says where it lies, its queue offset. It begins with the first line of its standard input, and
ends when that ends.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence

from embermq.cli.demo.orders import OrderEvent, order_events, part_of
from embermq.cli.demo.settings import READY_LINE
from embermq.client import MessageQueue, Producer
from embermq.errors import ClientError

RUN_MESSAGES = 32
AGAIN_SECONDS = 0.1
GROUP = "shop"


def main(name_server: str, count: int, part: int, parts: int, seconds: float) -> None:
    over = threading.Event()
    mine = [event for event in order_events(count) if part_of(event, parts) == part]
    # Its own tries would let a message be overtaken.
    with Producer(name_server=name_server, group=GROUP, retries=0) as producer:
        print(READY_LINE, end="", flush=True)
        sys.stdin.readline()
        threading.Thread(target=_wait_for_parent, args=(over,), daemon=True).start()
        began = time.monotonic()
        for at in range(0, len(mine), RUN_MESSAGES):
            over.wait(began + seconds * at / len(mine) - time.monotonic())
            left: Sequence[OrderEvent] = mine[at : at + RUN_MESSAGES]
            while left and not over.is_set():
                left = list(_send(producer, left))
                if left:
                    over.wait(AGAIN_SECONDS)
        over.wait()


def _send(producer: Producer, run: Sequence[OrderEvent]) -> Iterator[OrderEvent]:
    """Those that were not acknowledged."""
    futures = [producer.send_async(event.message(), queue_by=_own_queue) for event in run]
    for event, future in zip(run, futures, strict=True):
        try:
            result = future.result()
        except ClientError:
            yield event
            continue
        if result.ok:
            sys.stdout.write(f"{event.number} {result.offset_message_id} {result.queue_offset}\n")
        else:
            yield event
    sys.stdout.flush()


def _own_queue(queues: Sequence[MessageQueue], message: object) -> MessageQueue:
    """All steps of an order go to the same queue number, so that their order is kept."""
    wanted = getattr(message, "queue_id", 0)
    return next(queue for queue in queues if queue.queue_id == wanted)


def _wait_for_parent(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
