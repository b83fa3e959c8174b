"""Is the store what was promised, and did the group get it? Compares what can be fetched with the stream of orders.

Each producer sends its orders one run after another, so whatever was killed in between, every queue must hold them in
the order of their numbers. A message may be there twice, side by side with those of its run: it was stored, and the
broker was killed before the producer knew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from embermq import StoredMessage
from embermq.cli.demo.orders import OrderEvent, event_number, part_of
from embermq.cli.demo.traffic import PRODUCERS, Acknowledged, Consumed, first_offsets
from embermq.store import MessageStore

FETCH_MESSAGES = 32


@dataclass(slots=True)
class Findings:
    """Numbers of events, by what is wrong with them; all empty is good. Stored or consumed again is allowed."""

    acknowledged: int
    stored: int = 0  # different messages that can be fetched
    again: list[int] = field(default_factory=list)  # stored more than once
    missing: list[int] = field(default_factory=list)  # acknowledged, and not to be fetched
    altered: list[int] = field(default_factory=list)  # other bytes, tag, key or place than promised
    out_of_order: list[int] = field(default_factory=list)
    foreign: int = 0  # messages that were not sent
    consumed: int = 0  # different messages
    consumed_again: int = 0
    unconsumed: list[int] = field(default_factory=list)  # stored, and not consumed
    consumed_out_of_order: int = 0

    @property
    def good(self) -> bool:
        store_is_good = not (self.missing or self.altered or self.out_of_order or self.foreign)
        return store_is_good and not self.unconsumed and not self.consumed_out_of_order


def check(
    store: MessageStore,
    events: Sequence[OrderEvent],
    acknowledged: Mapping[int, Acknowledged],
    consumed: Sequence[Consumed],
) -> Findings:
    """Read every queue from its beginning and compare."""
    findings = Findings(len(acknowledged))
    places: dict[int, list[Acknowledged]] = {}
    for topic in {event.topic for event in events}:
        for queue_id in store.topics().get(topic, []):
            _check_queue(iter_queue(store, topic, queue_id), events, places, findings)
    findings.stored = len(places)
    findings.missing = sorted(acknowledged.keys() - places.keys())
    promises = acknowledged.items()
    findings.altered += [number for number, promise in promises if promise not in places.get(number, [promise])]
    _check_consumed(consumed, places.keys(), findings)
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
    places: dict[int, list[Acknowledged]],
    findings: Findings,
) -> None:
    last = [-1] * PRODUCERS
    for expected_offset, message in enumerate(messages):
        try:
            number = event_number(message.body)
            event = events[number]
        except (ValueError, IndexError):
            findings.foreign += 1
            continue
        if not _is_as_sent(message, event):
            findings.altered.append(number)
        if message.queue_offset != expected_offset:
            findings.out_of_order.append(number)
        place = Acknowledged(message.message_id, message.queue_offset)
        if number in places:
            findings.again.append(number)
            places[number].append(place)
            continue
        places[number] = [place]
        part = part_of(event, PRODUCERS)
        if number < last[part]:
            findings.out_of_order.append(number)
        last[part] = number


def _check_consumed(consumed: Sequence[Consumed], stored: Iterable[int], findings: Findings) -> None:
    numbers = {one.number for one in consumed}
    findings.consumed, findings.consumed_again = len(numbers), len(consumed) - len(set(consumed))
    findings.unconsumed = sorted(set(stored) - numbers)
    for offsets in first_offsets(consumed).values():
        findings.consumed_out_of_order += sum(later <= earlier for earlier, later in pairwise(offsets))


def _is_as_sent(message: StoredMessage, event: OrderEvent) -> bool:
    return (
        message.payload == event.body
        and message.topic == event.topic
        and message.queue_id == event.queue_id
        and message.tags == event.step
        and message.keys == [event.order_id]
        and message.properties["region"] == event.region
    )
