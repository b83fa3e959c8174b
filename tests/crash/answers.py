"""What a store answers, as values that can be compared: two openings of the same files, or an opening and a look from
outside.

    scan      the numbers in the log, in order
    queues    what a consumer gets of each queue, with the offsets
    keys      what each key finds
"""

from dataclasses import dataclass
from typing import Any

from embermq import MessageStore
from tests.crash import numbered

Queues = dict[tuple[str, int], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Answers:
    scan: list[int]
    queues: Queues
    keys: dict[tuple[str, str], list[int]]


def of_store(store: MessageStore, count: int) -> Answers:
    """Everything a store answers that can hold the numbers below `count`."""
    queues = {
        (topic, queue_id): numbered.fetch_all(store, topic, queue_id)
        for topic, queue_ids in store.topics().items()
        for queue_id in queue_ids
    }
    keys = {}
    for n in range(count):
        one = numbered.known(n)
        for key in one.keys:
            if (one.topic, key) not in keys:
                keys[one.topic, key] = [numbered.number_of(found.body) for found in store.find(one.topic, key)]
    return Answers(numbered.numbers_in(store), without_empty(queues), keys)


def without_empty(queues: Queues) -> Queues:
    """A queue whose messages are all lost may be there, or not."""
    return {key: found for key, found in queues.items() if found}


def differences(reader: Answers, writer: Answers) -> list[str]:
    """Where a reader skips or adds something; ending earlier is fine."""
    found = []
    if not is_prefix(reader.scan, writer.scan):
        found.append(f"scan: {_first_difference(reader.scan, writer.scan)}")
    for key, messages in sorted(reader.queues.items()):
        if not is_prefix(messages, writer.queues.get(key, [])):
            found.append(f"queue {key}: {_first_difference(messages, writer.queues.get(key, []))}")
    for name, numbers in reader.keys.items():
        if not is_prefix(numbers, writer.keys.get(name, [])):
            found.append(f"key {name}: {_first_difference(numbers, writer.keys.get(name, []))}")
    return found


def is_prefix(shorter: list[Any], longer: list[Any]) -> bool:
    return longer[: len(shorter)] == shorter


def _first_difference(reader: list[Any], writer: list[Any]) -> str:
    shorter = min(len(reader), len(writer))
    at = next((i for i in range(shorter) if reader[i] != writer[i]), shorter)
    counts = f"{len(reader)} and {len(writer)} in all"
    return f"from {at} on the reader has {reader[at : at + 3]}, the writer {writer[at : at + 3]} ({counts})"
