"""A made-up stream of orders for the demo: the same events for the same number, in every process.

An order is created, paid and shipped, or cancelled instead; each step is a message of another topic, and
many orders are under way at once. All messages of an order go to the same queue number, so their order is
kept. Pure: no files, no clock.
"""

import json
import random
from typing import NamedTuple

from embermq import Message

# Topic: number of queues.
TOPICS = {"orders": 4, "payments": 2, "shipments": 2}
SEED = 20240229
OPEN_ORDERS_MAX = 400

_REGIONS = ("eu-north", "eu-south", "us-east", "us-west", "ap-east")
_ITEMS = ("lamp", "chair", "desk", "kettle", "rug", "mirror", "shelf", "clock", "vase", "blanket")
_STEP_TOPIC = {"created": "orders", "paid": "payments", "shipped": "shipments", "cancelled": "orders"}


class OrderEvent(NamedTuple):
    """One step of one order. `number` counts all events from 0, in the order they are sent."""

    number: int
    topic: str
    queue_id: int
    step: str
    order_id: str
    region: str
    amount_cents: int
    body: bytes

    def message(self) -> Message:
        return Message(
            self.topic,
            self.body,
            tags=self.step,
            keys=[self.order_id],
            properties={"region": self.region, "amount": f"{self.amount_cents / 100:.2f}"},
            queue_id=self.queue_id,
        )


class _Order:
    """An order that is not finished."""

    __slots__ = ("amount_cents", "items", "order_id", "queue_number", "region", "steps")

    def __init__(self, number: int, chance: random.Random) -> None:
        self.order_id = f"order-{number:06d}"
        self.queue_number = number
        self.region = chance.choice(_REGIONS)
        self.items = chance.sample(_ITEMS, chance.randint(1, 4))
        self.amount_cents = chance.randint(499, 49_999)
        cancelled = chance.random() < 0.1
        self.steps = ["cancelled", "created"] if cancelled else ["shipped", "paid", "created"]

    def next_event(self, number: int) -> OrderEvent:
        step = self.steps.pop()
        topic = _STEP_TOPIC[step]
        body = json.dumps(
            {
                "event": number,
                "order": self.order_id,
                "step": step,
                "region": self.region,
                "amount": self.amount_cents / 100,
                "currency": "EUR",
                "items": self.items,
            }
        ).encode()
        queue_id = self.queue_number % TOPICS[topic]
        return OrderEvent(number, topic, queue_id, step, self.order_id, self.region, self.amount_cents, body)


def order_events(count: int) -> list[OrderEvent]:
    """The first `count` events of the stream."""
    chance = random.Random(SEED)
    under_way: list[_Order] = []
    events = []
    orders = 0
    for number in range(count):
        if len(under_way) < OPEN_ORDERS_MAX and (not under_way or chance.random() < 0.4):
            orders += 1
            under_way.append(_Order(orders, chance))
            at = len(under_way) - 1
        else:
            at = chance.randrange(len(under_way))
        events.append(under_way[at].next_event(number))
        if not under_way[at].steps:
            under_way[at] = under_way[-1]
            under_way.pop()
    return events


def event_number(body: bytes) -> int:
    """The number of the event a message body belongs to; ValueError if it is none of ours."""
    try:
        number = json.loads(body)["event"]
    except (KeyError, TypeError, UnicodeDecodeError) as problem:
        raise ValueError("not an order event") from problem
    if not isinstance(number, int):
        raise ValueError("not an order event")
    return number


def part_of(event: OrderEvent, parts: int) -> int:
    """Which of so many producers sends an event: all steps of an order are sent by the same."""
    return int(event.order_id.rpartition("-")[2]) % parts
