"""Is the store what was promised? Compares what can be fetched with the stream of orders.

The stream was appended by one writer, so what a crash leaves must be a beginning of it: at least up to
the last acknowledged message, perhaps a little more (stored, and killed before it could say so).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from embermq import StoredMessage
from embermq.cli.killed_writer import Acknowledged
from embermq.cli.orders import OrderEvent, event_number
from embermq.store import MessageStore

FETCH_MESSAGES = 32


@dataclass(slots=True)
class Findings:
    """Numbers of events, by what is wrong with them; all empty is good."""

    acknowledged: int
    stored: int = 0  # messages that can be fetched
    missing: list[int] = field(default_factory=list)  # acknowledged, or followed by one that is stored
    altered: list[int] = field(default_factory=list)  # other bytes, tag, key or place than promised
    repeated: list[int] = field(default_factory=list)
    out_of_order: list[int] = field(default_factory=list)
    foreign: int = 0  # messages that were not sent

    @property
    def good(self) -> bool:
        return not (self.missing or self.altered or self.repeated or self.out_of_order or self.foreign)

    @property
    def unacknowledged(self) -> int:
        """Stored, but killed before the acknowledgement came through."""
        return self.stored - self.acknowledged


def check(store: MessageStore, events: Sequence[OrderEvent], acknowledged: Mapping[int, Acknowledged]) -> Findings:
    """Read every queue from its beginning and compare."""
    findings = Findings(len(acknowledged))
    seen: set[int] = set()
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            _check_queue(iter_queue(store, topic, queue_id), events, acknowledged, seen, findings)
    expected = max(max(seen, default=-1), max(acknowledged, default=-1)) + 1
    findings.missing = [number for number in range(expected) if number not in seen]
    findings.stored = len(seen)
    return findings


def iter_queue(store: MessageStore, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    """Every message of a queue, as a consumer that starts at the beginning gets them."""
    offset = store.min_offset(topic, queue_id)
    end = store.max_offset(topic, queue_id)
    while offset < end:
        outcome = store.fetch(topic, queue_id, offset, FETCH_MESSAGES)
        yield from outcome.messages
        if outcome.next_offset <= offset:
            return
        offset = outcome.next_offset


def _check_queue(
    messages: Iterator[StoredMessage],
    events: Sequence[OrderEvent],
    acknowledged: Mapping[int, Acknowledged],
    seen: set[int],
    findings: Findings,
) -> None:
    last = -1
    for expected_offset, message in enumerate(messages):
        try:
            number = event_number(message.body)
            event = events[number]
        except (ValueError, IndexError):
            findings.foreign += 1
            continue
        if number in seen:
            findings.repeated.append(number)
        if number < last or message.queue_offset != expected_offset:
            findings.out_of_order.append(number)
        if not _is_as_sent(message, event) or not _is_as_promised(message, acknowledged.get(number)):
            findings.altered.append(number)
        seen.add(number)
        last = number


def _is_as_sent(message: StoredMessage, event: OrderEvent) -> bool:
    return (
        message.body == event.body
        and message.topic == event.topic
        and message.queue_id == event.queue_id
        and message.tags == event.step
        and message.keys == [event.order_id]
        and message.properties["region"] == event.region
    )


def _is_as_promised(message: StoredMessage, promise: Acknowledged | None) -> bool:
    return promise is None or (message.message_id, message.queue_offset) == promise
