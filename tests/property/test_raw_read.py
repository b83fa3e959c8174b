"""Raw reads and fetches of the same place answer the same, on sound and on damaged stores.

A store is made at random: topics, queues, tags, sizes, an extension or light queues; then log and queue files are
overwritten, log files and topics are deleted, and it may be opened again. A fetch decodes each record on its own; a raw
read takes the short way where it can.
"""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from embermq import Message, MessageStore, StoreSettings
from embermq.format.frame import Frame, decode
from embermq.format.frame_message import as_message
from embermq.model.message import StoredMessage
from embermq.model.properties import property_value
from embermq.settings import KernelUse
from embermq.store import FilterBits, GroupFilter, MessageFilter, RawRead

SEGMENT_BYTES = 32 << 10
TAGS = ["paid", "sent", "AaAa", "BBBB", "", "grün"]  # AaAa and BBBB have the same hash.


class OddSizes:
    """A filter that knows nothing of entries but their number."""

    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: object) -> NDArray[np.bool_]:
        return np.array([n % 5 != 4 for n in range(len(tag_codes))], np.bool_)

    def matches_record(self, properties: bytes) -> bool:
        return len(properties) % 2 == 1


def condition(properties: bytes) -> bool:
    return property_value(properties, b"TAGS") in (b"paid", b"BBBB")


FILTERS: list[Callable[[], str | MessageFilter | None]] = [
    lambda: None,
    lambda: "*",
    lambda: "paid",
    lambda: "AaAa || sent",
    lambda: "grün",
    lambda: "nothing",
    lambda: GroupFilter("orders", "group", condition),
]


def decoded(read: RawRead) -> list[StoredMessage]:
    """The messages in the buffer, by the rules of the format."""
    messages, at, data = [], 0, bytes(read.data)
    while at < len(data):
        frame = decode(data, at, len(data), physical_offset=None, check_crc=True)
        assert isinstance(frame, Frame)
        messages.append(as_message(frame))
        at += frame.size
    return messages


def fill(store: MessageStore, rng: random.Random, count: int) -> None:
    light = store.settings.light_queues
    for _ in range(count):
        size = rng.choice([0, 10, 100, 1000, rng.randrange(3000)])
        topic, queue_id = rng.choice(["orders", "orders", "bills"]), rng.randrange(2)
        tags = rng.choice(TAGS) or None
        properties = {"a": "x" * rng.randrange(4)} if rng.random() < 0.5 else {}
        properties = {name: value for name, value in properties.items() if value}
        if light and rng.random() < 0.3:
            properties["INNER_MULTI_DISPATCH"] = "%LMQ%one,%LMQ%two"
        message = Message(topic, rng.randbytes(size), tags=tags, queue_id=queue_id, properties=properties)
        store.append(message)


def overwrite(path: Path, rng: random.Random, length: int) -> None:
    with path.open("r+b") as file:
        size = path.stat().st_size
        file.seek(rng.randrange(size))
        file.write(rng.choice([bytes(length), rng.randbytes(length)])[: max(0, size - file.tell())])


def damage(store: MessageStore, rng: random.Random) -> None:
    logs = sorted((store.path / "commitlog").iterdir())
    derived = sorted(path for path in store.path.glob("consumequeue*/*/*/*") if path.is_file())
    for _ in range(rng.randrange(4)):
        overwrite(rng.choice(logs[:-1] or logs), rng, rng.choice([1, 4, 300, 5000]))
    for _ in range(rng.randrange(4) if derived else 0):
        overwrite(rng.choice(derived), rng, rng.choice([1, 8, 20, 60]))
    if rng.random() < 0.2:
        store.delete_topic("bills")
        fill(store, rng, 20)
    if rng.random() < 0.2 and len(logs) > 3:
        logs[0].unlink()  # As another process would, while this store has it open.
    if rng.random() < 0.3:
        store.engine.log.segments.delete_first()


def assert_same(store: MessageStore, rng: random.Random) -> int:
    """At many places with many limits; how many messages there were."""
    store.wait_for_dispatch()
    seen = 0
    for topic, queue_ids in sorted({**store.topics(), "never": [0]}.items()):
        for queue_id in queue_ids:
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            offsets = [-1, 0, low - 1, low, high - 1, high, high + 1]
            offsets += [rng.randint(low, high) for _ in range(12)]
            for offset in offsets:
                count = rng.choice([0, 1, 7, 32, 1000])
                wanted = rng.choice([*FILTERS, OddSizes])()
                fetched = store.fetch(topic, queue_id, offset, count, wanted, wait=False)
                read = store.read_raw(topic, queue_id, offset, count, filter=wanted)
                context = (topic, queue_id, offset, count, wanted)
                assert decoded(read) == fetched.messages, context
                assert len(read.data) == fetched.bytes_total, context
                assert (read.status, read.next_offset, read.count) == (
                    fetched.status,
                    fetched.next_offset,
                    len(fetched.messages),
                ), context
                assert (read.min_offset, read.max_offset) == (fetched.min_offset, fetched.max_offset)
                assert (read.suggest_slave, read.billing) == (fetched.suggest_slave, fetched.billing), context
                seen += read.count
    return seen


def run(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(["plain", "plain", "extension", "light"])
    settings = StoreSettings(
        segment_bytes=SEGMENT_BYTES,
        queue_file_bytes=20 * rng.choice([50, 1000]),
        index_slots_max=10,
        index_entries_max=100,
        disk_full_percent=100,
        kernels=rng.choice([KernelUse.ALWAYS, KernelUse.NEVER]),
        queue_extension=kind == "extension",
        queue_extension_file_bytes=4096,
        multi_dispatch=kind == "light",
        light_queues=kind == "light",
        memory_percent_max=rng.choice([40, 0]),
        fetch_bytes_max_memory=rng.choice([262_144, 3_000]),
        fetch_bytes_max_disk=rng.choice([65_536, 2_000]),
    )
    bits = FilterBits()
    bits.register(GroupFilter("orders", "group", condition))
    seen = 0
    for _ in range(2):
        with MessageStore.open(path, settings, bit_map_for=bits) as store:
            fill(store, rng, rng.choice([60, 250]))
            seen += assert_same(store, rng)
            store.engine.queues.flush()  # type: ignore[union-attr]
            seen += assert_same(store, rng)
            damage(store, rng)
            seen += assert_same(store, rng)
    assert seen > 100


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow(2)
def test_raw_reads_answer_as_fetches_do(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_raw_reads_answer_as_fetches_do_on_many_stores(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)
