"""One consumer of the Python client in a process of its own. A JSON line.

    python -m bench.network.python_consumer NAME_SERVER rate COUNT      from the first message handled to the last
    python -m bench.network.python_consumer NAME_SERVER late COUNT      how long each was on its way, in ms

Bodies begin with a number of 10 digits; those of `late` go on with the time they were sent, of the clock that all
processes of a machine share. The answer is a hash of the numbers, each of which must come once.
"""

import hashlib
import json
import sys
import threading
import time
from typing import Any

from embermq.client import Context, Message, PushConsumer, ReceivedMessage
from embermq.client import Producer as BlockingProducer

TOPIC = "bench"
GROUP = "bench"
TAG = "t"
NUMBER_DIGITS, TIME_DIGITS = 10, 20
WAIT_SECONDS = 120.0
BATCH = 200


def body_of(number: int, size: int) -> bytes:
    return b"%010d" % number + b"x" * (size - NUMBER_DIGITS)


def timed_body_of(number: int, size: int) -> bytes:
    head = b"%010d%020d" % (number, time.monotonic_ns())
    return head + b"x" * (size - len(head))


def fill(name_server: str, count: int, size: int) -> None:
    """Messages for a consumer to find; the topic is there also if there are none."""
    with BlockingProducer(name_server, "filling", send_timeout=30.0) as producer:
        producer.send(Message(TOPIC, b"makes the topic", tags="other"))
        for start in range(0, count, BATCH):
            numbers = range(start, min(start + BATCH, count))
            batch = [Message(TOPIC, body_of(number, size), tags=TAG) for number in numbers]
            assert all(result.ok for result in producer.send_many(batch))


def send_paced(name_server: str, count: int, size: int, per_second: float) -> None:
    """One message after another, each at its time."""
    with BlockingProducer(name_server, "pacing", send_timeout=30.0) as producer:
        began = time.monotonic()
        for number in range(count):
            if (early := began + number / per_second - time.monotonic()) > 0:
                time.sleep(early)
            producer.send(Message(TOPIC, timed_body_of(number, size), tags=TAG))


class Noted:
    """A handler that notes what came, and when."""

    def __init__(self, count: int, *, is_timed: bool) -> None:
        self._left, self._is_timed = count, is_timed
        self.numbers: list[bytes] = []
        self.late_ms: list[float] = []
        self.first_at = self.last_at = 0.0
        self.is_complete = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, messages: list[ReceivedMessage], context: Context) -> None:
        now = time.monotonic_ns()
        with self._lock:
            for message in messages:
                body = message.body
                self.numbers.append(body[:NUMBER_DIGITS])
                if self._is_timed:
                    sent = int(body[NUMBER_DIGITS : NUMBER_DIGITS + TIME_DIGITS])
                    self.late_ms.append((now - sent) / 1e6)
            if not self.first_at:
                self.first_at = now / 1e9
            self._left -= len(messages)
            if self._left <= 0:
                self.last_at = time.monotonic()
                self.is_complete.set()


def consume(name_server: str, kind: str, count: int) -> dict[str, Any]:
    noted = Noted(count, is_timed=kind == "late")
    options = {"pull_batch": 256, "batch_size": 32} if kind == "rate" else {}
    with PushConsumer(name_server=name_server, group=GROUP, consume_from="first", **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(TOPIC, TAG, noted)
        print("ready", flush=True)
        assert noted.is_complete.wait(WAIT_SECONDS), f"{len(noted.numbers):,} of {count:,} messages came"
    numbers = sorted(noted.numbers)
    assert len(numbers) == len(set(numbers)) == count, "a message came twice"
    answer = hashlib.sha256(b"".join(numbers)).hexdigest()[:12]
    if kind == "late":
        late = sorted(noted.late_ms)
        return {"answer": answer, "p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100]}
    return {"answer": answer, "per_second": count / (noted.last_at - noted.first_at)}


def main() -> None:
    name_server, kind, count = sys.argv[1:]
    print(json.dumps(consume(name_server, kind, int(count))))


if __name__ == "__main__":
    main()
