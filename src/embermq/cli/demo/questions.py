"""Questions to the demo's store: the history of one order by its key, messages by id, by time and by tag."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from embermq import StoredMessage
from embermq.cli.demo.orders import TOPICS, OrderEvent
from embermq.cli.output import Output, Rows, TableColumn, number, show_clock, show_seconds
from embermq.store import MessageStore


def ask_questions(output: Output, store: MessageStore, events: Sequence[OrderEvent], killed_at: int) -> None:
    """`killed_at`: where the log ended when the broker was killed."""
    order_id = _order_across(store, events, killed_at)
    watch = _Stopwatch()
    life: list[StoredMessage] = []
    for topic in TOPICS:
        query = f"key {order_id} in {topic}"
        life += watch.time(query, partial(store.find, topic, order_id), _messages_text)
    life.sort(key=lambda message: message.physical_offset)
    output.show(_life(life, order_id, killed_at))

    first = life[0]
    watch.time(f"message id {first.message_id}", lambda: store.get(first.message_id), _found_text)
    then_ms = life[-1].store_timestamp
    watch.time(
        f"payments, queue 0, at {show_clock(then_ms)}",
        lambda: store.offset_at("payments", 0, then_ms),
        lambda offset: f"queue offset {offset:,}",
    )
    watch.time(
        "orders, queue 0, tag cancelled, first ones",
        lambda: store.fetch("orders", 0, 0, 32, "cancelled").messages,
        _messages_text,
    )
    columns = (TableColumn("query", "query"), TableColumn("answer", "answer"), number("seconds", "took", show_seconds))
    output.show(Rows("queries", "Questions and answers", columns, watch.rows))


class _Stopwatch:
    """Runs queries and notes what they found and how long they took."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float]] = []

    def time(self, query: str, ask: Callable[[], Any], describe: Callable[[Any], str]) -> Any:
        began = time.perf_counter()
        answer = ask()
        self.rows.append((query, describe(answer), time.perf_counter() - began))
        return answer


def _order_across(store: MessageStore, events: Sequence[OrderEvent], killed_at: int) -> str:
    """An order that was under way when the broker was killed, and has all three steps."""
    steps: dict[str, list[OrderEvent]] = defaultdict(list)
    for event in events:
        steps[event.order_id].append(event)
    whole = [order_id for order_id, life in steps.items() if len(life) == len(TOPICS)]

    def places(order_id: str) -> list[int]:
        return [one.physical_offset for topic in TOPICS for one in store.find(topic, order_id)]

    def is_across(order_id: str) -> bool:
        found = places(order_id)
        return len(found) == len(TOPICS) and min(found) < killed_at <= max(found)

    return next(filter(is_across, whole), (whole or list(steps))[0])


def _life(messages: Sequence[StoredMessage], order_id: str, killed_at: int) -> Rows:
    columns = (
        TableColumn("store_timestamp_ms", "stored at", show_clock),
        TableColumn("topic", "topic"),
        number("queue_id", "queue", str),
        number("queue_offset", "queue offset"),
        TableColumn("tags", "tag"),
        TableColumn("region", "region"),
        number("amount_eur", "amount", lambda text: f"{text} EUR"),
        TableColumn("before_kill", "written", lambda before: "before the kill" if before else "after it"),
    )
    rows = [
        (
            one.store_timestamp,
            one.topic,
            one.queue_id,
            one.queue_offset,
            one.tags,
            one.properties["region"],
            one.properties["amount"],
            one.physical_offset < killed_at,
        )
        for one in messages
    ]
    return Rows("order", f"The history of {order_id}, found by its key", columns, rows)


def _messages_text(messages: Sequence[StoredMessage]) -> str:
    return f"{len(messages)} message{'' if len(messages) == 1 else 's'}"


def _found_text(message: StoredMessage | None) -> str:
    return "not found" if message is None else f"{message.topic}, {message.tags}, {message.size} bytes"
