"""What both sides say about one store, laid side by side.

RocketMQ is asked first and its answers are kept, since only one of the two can have a store open; then
ours is asked the same.
"""

import hashlib
import ipaddress
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from embermq import MessageStore
from embermq.model import flags
from embermq.model.message import Message, MessageBatch, StoredMessage
from embermq.model.properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, decode_properties
from tests.interop.reference import Dump, Record, ReferenceSession, copied
from tests.interop.workload import Put

KEYS_ASKED_MAX = 60
TIMES_ASKED_MAX = 12
_CHECKPOINT_MARGIN_MS = 3000
_ENTRY = struct.Struct(">qiq")


class Answers(msgspec.Struct, frozen=True):
    """RocketMQ's view of a store."""

    dump: Dump
    found: dict[tuple[str, str], list[int]]
    times: dict[tuple[str, int, int], int]
    indexed_from: int  # RocketMQ finds by key every record from here on


def reference_answers(directory: Path, settings: Mapping[str, str], *, drop_empty_files: bool = False) -> Answers:
    """What RocketMQ says about a copy: first its records, then, with file times aligned, the queries."""
    with copied(directory, drop_empty_files=drop_empty_files) as copy:
        with ReferenceSession(copy, settings) as session:
            session.settle()
            records = session.dump().records
        align_queue_times(copy, records)
        with ReferenceSession(copy, settings) as session:
            return _ask(session, indexed_from(directory, settings, records))


def indexed_from(directory: Path, settings: Mapping[str, str], records: list[Record]) -> int:
    """The physical offset from which RocketMQ must still find everything by key.

    After a clean close that is 0. After a kill it deletes each index file its checkpoint does not prove, and
    indexes again only from the log file its recovery begins in: the newest that starts, in store time, no
    later than three seconds before the checkpoint. Keys before that file are lost to it, not to us.
    """
    if not (directory / "abort").exists():
        return 0
    log_time, queue_time = struct.unpack(">qq", (directory / "checkpoint").read_bytes()[:16])
    proven_ms = max(0, min(log_time, queue_time) - _CHECKPOINT_MARGIN_MS)
    file_bytes = int(settings.get("mappedFileSizeCommitLog", 1 << 30))
    begins = [r.phy for r in records if r.phy % file_bytes == 0 and r.store_timestamp <= proven_ms]
    return max(begins, default=0)


def _ask(session: ReferenceSession, from_physical: int) -> Answers:
    session.settle()
    dump = session.dump()
    asked = sorted({(record.topic, key) for record in dump.records for key in keys_of(record)})
    step = max(1, len(asked) // KEYS_ASKED_MAX)
    found = {(topic, key): session.find(topic, key) for topic, key in asked[::step]}
    times = {
        (queue.topic, queue.queue_id, time_ms): session.offset_at(queue.topic, queue.queue_id, time_ms)
        for queue in dump.queues
        for time_ms in _times_worth_asking(dump, queue.phys)
    }
    return Answers(dump, found, times, from_physical)


def keys_of(record: Record) -> list[str]:
    """What the index holds of a record: its unique key and the words of KEYS; nothing if rolled back."""
    if record.sys_flag & flags.TRANSACTION_MASK == flags.ROLLBACK:
        return []
    unique = record.properties.get("UNIQ_KEY")
    return ([unique] if unique else []) + [word for word in (record.keys or "").split(" ") if word]


def _times_worth_asking(dump: Dump, physical_offsets: list[int]) -> list[int]:
    stored = {record.phy: record.store_timestamp for record in dump.records}
    times = sorted({stored[offset] for offset in physical_offsets})
    inner = times[:: max(1, len(times) // TIMES_ASKED_MAX)]
    return [times[0] - 1000, *inner, *(time + 1 for time in inner), times[-1] + 1000] if times else []


def assert_agree(store: MessageStore, theirs: Answers) -> None:
    """Ours answers as RocketMQ did."""
    for record in theirs.dump.records:
        assert_same_record(store.at(record.phy), record)
    # RocketMQ makes a queue object when one is merely asked for; only those with messages count.
    queues = [queue for queue in theirs.dump.queues if queue.max > 0]
    mine = {(topic, queue_id) for topic, ids in store.topics().items() for queue_id in ids}
    assert mine == {(queue.topic, queue.queue_id) for queue in queues}
    for queue in queues:
        assert not queue.odd, f"RocketMQ cannot read {queue.topic}/{queue.queue_id}: {queue.odd}"
        assert store.min_offset(queue.topic, queue.queue_id) == queue.min
        assert store.max_offset(queue.topic, queue.queue_id) == queue.max
        assert pulled(store, queue.topic, queue.queue_id) == queue.phys
    for (topic, queue_id, time_ms), offset in theirs.times.items():
        assert store.offset_at(topic, queue_id, time_ms) == offset, (topic, queue_id, time_ms)
    for (topic, key), offsets in theirs.found.items():
        expected = {r.phy for r in theirs.dump.records if r.topic == topic and key in keys_of(r)}
        assert {message.physical_offset for message in store.find(topic, key=key)} == expected, (topic, key)
        # RocketMQ does not look at the key itself, so words of equal hash may come along.
        assert {offset for offset in expected if offset >= theirs.indexed_from} <= set(offsets), (topic, key)


def pulled(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """Physical offsets of a whole queue, as a consumer meets them."""
    physical_offsets: list[int] = []
    queue_offset = store.min_offset(topic, queue_id)
    while queue_offset < store.max_offset(topic, queue_id):
        outcome = store.fetch(topic, queue_id, offset=queue_offset, max_messages=32)
        assert outcome.next_offset > queue_offset, outcome.status
        physical_offsets += [message.physical_offset for message in outcome.messages]
        queue_offset = outcome.next_offset
    return physical_offsets


def assert_same_record(ours: StoredMessage | None, theirs: Record) -> None:
    assert ours is not None, f"no record at {theirs.phy}"
    reported = {
        "size": (ours.size, theirs.size),
        "msg_id": (ours.message_id, theirs.msg_id),
        "topic": (ours.topic, theirs.topic),
        "queue": (ours.queue_id, theirs.queue_id),
        "queue_offset": (ours.queue_offset, theirs.queue_offset),
        "flag": (ours.flag, theirs.flag),
        "sys_flag": (ours.sys_flag, theirs.sys_flag),
        "born": (ours.born_timestamp, theirs.born_timestamp),
        "born_host": (_plain(ours.born_host), _plain(theirs.born_host)),
        "stored": (ours.store_timestamp, theirs.store_timestamp),
        "store_host": (_plain(ours.store_host), _plain(theirs.store_host)),
        "reconsumed": (ours.reconsume_times, theirs.reconsume_times),
        "prepared": (ours.prepared_transaction_offset, theirs.prepared_transaction_offset),
        "crc": (ours.body_crc, theirs.body_crc),
        "properties": (ours.properties, theirs.properties),
        "body": (hashlib.sha256(ours.body).hexdigest(), theirs.body_hash),
    }
    assert not {name: pair for name, pair in reported.items() if pair[0] != pair[1]}, theirs.phy


def _plain(host: tuple[str, int]) -> tuple[object, int]:
    return ipaddress.ip_address(host[0]), host[1]


def assert_holds(records: dict[int, Record], physical_offset: int, put: Put) -> None:
    """RocketMQ reads at `physical_offset` what was put there, a batch item by item."""
    if isinstance(put, MessageBatch):
        shared = put.header.all_properties()
        for item in put.items:
            record = records[physical_offset]
            assert record.body_hash == hashlib.sha256(item.body).hexdigest()
            assert record.properties == {**decode_properties(item.property_bytes()), **shared}
            physical_offset += record.size
        return
    record = records[physical_offset]
    topic, queue_id, properties = destination(put)
    assert (record.topic, record.queue_id, record.properties) == (topic, queue_id, properties)
    assert record.body_hash == hashlib.sha256(put.body).hexdigest()
    assert (record.flag, record.born_timestamp) == (put.flag, put.born_timestamp)
    assert record.sys_flag & ~flags.HOST_V6_MASK == put.sys_flag


def destination(message: Message) -> tuple[str, int, dict[str, str]]:
    """Topic, queue and properties a message is stored with: a delayed one waits elsewhere."""
    properties = message.all_properties()
    if DELAY not in properties or message.sys_flag & flags.PREPARED:
        return message.topic, message.queue_id, properties
    properties |= {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    return SCHEDULE_TOPIC, int(properties[DELAY]) - 1, properties


def align_queue_times(directory: Path, records: list[Record]) -> None:
    """Gives each queue file the modification time of its newest message.

    RocketMQ picks a queue file for a time query by that; ours by what is in the file. Only so aligned
    is one answer right for both.
    """
    stored = {record.phy: record.store_timestamp for record in records}
    for path in sorted((directory / "consumequeue").glob("*/*/*")):
        entries = [entry for entry in _ENTRY.iter_unpack(path.read_bytes()) if entry[1] > 0]
        if entries and entries[-1][0] in stored:
            os.utime(path, ns=(stored[entries[-1][0]] * 1_000_000,) * 2)


def assert_finds_every_key(theirs: Answers) -> None:
    """RocketMQ finds every record by each of its keys, however old, also after a kill of ours."""
    for (topic, key), offsets in theirs.found.items():
        expected = {record.phy for record in theirs.dump.records if record.topic == topic and key in keys_of(record)}
        assert expected <= set(offsets), (topic, key)
