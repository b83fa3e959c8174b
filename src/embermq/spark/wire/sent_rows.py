"""Rows of one partition on their way to brokers: who sent them, in which chunks, to which queues. Pure.

Every message carries who sent it and where it stood: the properties EMBER_PRODUCER (a digest of write, batch and
partition: the same for every attempt at these rows) and EMBER_SEQUENCE (the row's number in the partition). UNIQ_KEY
follows from the same, so that an index finds the message; the two properties tell it from one with the same key.

Rows go out in chunks, and a chunk only when all of the chunk before it is acknowledged; the first is the first row
alone. So what an attempt that was cut short has left is all rows up to some chunk, some of that one, and none behind
it; and if the first row is not there, nothing is.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from embermq.client import MessageQueue
from embermq.format.client_batch import ITEM_BYTES
from embermq.model.properties import UNIQ_KEY, decode_properties
from embermq.spark.writing.write_rows import PartitionId
from embermq.store.append import has_meaning_to_store

PRODUCER, SEQUENCE = "EMBER_PRODUCER", "EMBER_SEQUENCE"
CHUNK_ROWS = 1024
CHUNK_BYTES = 4 << 20
REQUEST_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class SentRow:
    """One message. `turn` chooses among the queues of its topic, unless `queue_id` names one."""

    number: int
    topic: str
    body: bytes
    properties: bytes
    turn: int
    queue_id: int | None = None

    @property
    def size(self) -> int:
        return ITEM_BYTES + len(self.body) + len(self.properties)

    @property
    def has_meaning(self) -> bool:
        """A property tells the broker what to do with it (a delay): it cannot be part of a batch."""
        return has_meaning_to_store(self.properties)

    @property
    def unique_key(self) -> str:
        return decode_properties(self.properties).get(UNIQ_KEY, "")


def producer_of(partition: PartitionId) -> str:
    """Who sends the rows of a partition."""
    text = f"{partition.write}\n{partition.batch}\n{partition.partition}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def signed(properties: bytes, producer: str, number: int) -> bytes:
    """A row's properties with who sent it and its number."""
    mark = f"{PRODUCER}\x01{producer}\x02{SEQUENCE}\x01{number}".encode()
    return properties + b"\x02" + mark if properties else mark


def is_signed(properties: dict[str, str], producer: str, number: int) -> bool:
    """Whether a stored message is this row."""
    return properties.get(PRODUCER) == producer and properties.get(SEQUENCE) == str(number)


def chunked(rows: Iterable[SentRow]) -> Iterator[list[SentRow]]:
    """The rows in order, the first alone; where chunks end depends on the rows alone."""
    chunk: list[SentRow] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) >= CHUNK_ROWS or size + row.size > CHUNK_BYTES or chunk[0].number == 0):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row.size
    if chunk:
        yield chunk


def chosen_queue(row: SentRow, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """The queue of a row; None if the one it names is not there."""
    if row.queue_id is None:
        return queues[row.turn % len(queues)] if queues else None
    return next((one for one in queues if one.queue_id == row.queue_id), None)


def requests_of(rows: Iterable[SentRow]) -> Iterator[list[SentRow]]:
    """Rows of one queue, in order, as they share a request."""
    request: list[SentRow] = []
    size = 0
    for row in rows:
        alone = row.has_meaning or (bool(request) and request[-1].has_meaning)
        if request and (alone or size + row.size > REQUEST_BYTES):
            yield request
            request, size = [], 0
        request.append(row)
        size += row.size
    if request:
        yield request
