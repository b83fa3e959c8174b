"""RocketMQ's C++ client (PyPI `rocketmq`) in a process of its own: it has threads that outlive it, and may abort.

cpp_child.py NAME_SERVER PREFIX STEP... prints one JSON line a step; test_clients.py compares. A step is a function
below; PREFIX begins its topics and groups.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, MessageModel, Producer, PullConsumer, PushConsumer

SECONDS = 90.0
NAME_SERVER, PREFIX = sys.argv[1:3]


def own(name: str) -> str:
    return f"{PREFIX}-{name}"


def message(topic: str, body: str, *, tag: str = "", key: str = "", delay_level: int = 0) -> Any:
    one = Message(own(topic))
    one.set_body(body)
    if tag:
        one.set_tags(tag)
    if key:
        one.set_keys(key)
    if delay_level:
        one.set_delay_time_level(delay_level)
    return one


def producer(group: str) -> Any:
    made = Producer(own(group))
    made.set_namesrv_addr(NAME_SERVER)
    made.set_timeout(20_000)
    made.start()
    return made


def consumed(
    group: str,
    topic: str,
    wanted: int,
    *,
    expression: str = "*",
    orderly: bool = False,
    take: Callable[[Any], bool] = lambda one: True,
) -> list[str]:
    """What a push consumer gets: bodies, and how often each was delivered before; a moment longer than needed."""
    seen: list[str] = []

    def on_message(one: Any) -> None:
        seen.append(f"{one.body.decode()} {one.reconsume_times}")
        if not take(one):
            raise RuntimeError("not now")  # The client answers RECONSUME_LATER.

    consumer = PushConsumer(own(group), orderly)
    consumer.set_namesrv_addr(NAME_SERVER)
    consumer.subscribe(own(topic), on_message, expression)
    consumer.start()
    deadline = time.monotonic() + SECONDS
    while len(seen) < wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    consumer.shutdown()
    return seen


def produce() -> dict[str, Any]:
    sender = producer("producers")
    answers: list[Any] = []
    for number in range(6):
        sent = sender.send_sync(message("plain", f"sync-{number}", tag=("even", "odd")[number % 2], key=f"k{number}"))
        answers.append(int(sent.status))
    for number in range(4):
        sender.send_oneway(message("plain", f"oneway-{number}", tag="plain"))
    batch = sender.send_batch([message("plain", f"batch-{number}", tag="plain") for number in range(4)])
    sender.shutdown()
    return {"statuses": answers, "batch": int(batch.status)}


def push() -> dict[str, Any]:
    return {"seen": sorted(consumed("push", "plain", 14))}


def tags() -> dict[str, Any]:
    return {"seen": sorted(consumed("tags", "plain", 3, expression="odd || none"))}


def orderly() -> dict[str, Any]:
    sender = producer("producers-in-order")
    for number in range(20):
        sender.send_orderly(message("order", f"{number % 2}-{number}"), number % 2)
    sender.shutdown()
    seen = consumed("order", "order", 20, orderly=True)
    return {f"shard {shard}": [one for one in seen if one.startswith(f"{shard}-")] for shard in range(2)}


def delay() -> dict[str, Any]:
    sender = producer("producers-late")
    sender.send_sync(message("delay", "at-once"))
    began = time.monotonic()
    sender.send_sync(message("delay", "late", delay_level=1))
    sender.shutdown()
    arrived: list[float] = []

    def note(one: Any) -> bool:
        if one.body == b"late":
            arrived.append(time.monotonic() - began)
        return True

    seen = consumed("delay", "delay", 2, take=note)
    return {"seen": seen, "after its time": [seconds >= 0.95 for seconds in arrived]}


def retry() -> dict[str, Any]:
    sender = producer("producers-again")
    sender.send_sync(message("retry", "again"))
    sender.shutdown()
    return {"seen": consumed("retry", "retry", 2, take=lambda one: one.reconsume_times > 0)}


def dead() -> dict[str, Any]:
    """The group's configuration allows one retry."""
    sender = producer("producers-dead")
    sender.send_sync(message("dead", "hopeless"))
    sender.shutdown()
    return {"seen": consumed("dead", "dead", 2, take=lambda one: False)}


def pull() -> dict[str, Any]:
    sender = producer("producers-to-pull")
    for number in range(5):
        sender.send_sync(message("pulled", f"pulled-{number}", tag=("even", "odd")[number % 2]))
    sender.shutdown()
    consumer = PullConsumer(own("pulled"))
    consumer.set_namesrv_addr(NAME_SERVER)
    consumer.start()
    bodies: list[str] = []
    deadline = time.monotonic() + SECONDS
    while len(bodies) < 5 and time.monotonic() < deadline:  # A message is in its queue a moment after its answer.
        bodies += [one.body.decode() for one in consumer.pull(own("pulled"))]
    again = [one.body.decode() for one in consumer.pull(own("pulled"))]
    return {"seen": sorted(bodies), "again": again}


def broadcast() -> dict[str, Any]:
    """A member without offsets of its own begins at the end: messages are sent until each has got one."""
    sender = producer("producers-to-all")
    sender.send_sync(message("to-all", "first"))
    seen: list[list[str]] = [[], []]
    members = [broadcasting(number, bodies) for number, bodies in enumerate(seen)]
    deadline = time.monotonic() + SECONDS
    while not all(seen) and time.monotonic() < deadline:
        sender.send_sync(message("to-all", "probe"))
        time.sleep(0.1)
    wanted = {f"to-all-{number}" for number in range(6)}
    for body in sorted(wanted):
        sender.send_sync(message("to-all", body))
    while not all(wanted <= set(bodies) for bodies in seen) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    sender.shutdown()
    for member in members:
        member.shutdown()
    return {f"member {number}": sorted(one for one in bodies if one in wanted) for number, bodies in enumerate(seen)}


def broadcasting(number: int, bodies: list[str]) -> Any:
    member = PushConsumer(own("to-all"), message_model=MessageModel.BROADCASTING)
    member.set_namesrv_addr(NAME_SERVER)
    member.set_instance_name(f"member-{number}")
    member.subscribe(own("to-all"), lambda one: bodies.append(one.body.decode()))
    member.start()
    return member


STEPS = {step.__name__: step for step in (produce, push, tags, orderly, delay, retry, dead, pull, broadcast)}


def main() -> None:
    for name in sys.argv[3:]:
        print(json.dumps({"step": name, **STEPS[name]()}), flush=True)
    os._exit(0)  # Its threads do not always end, and its destructors have been seen to hang.


main()
