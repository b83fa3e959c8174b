"""What RocketMQ answered, asked again of our store: one function per family of answers.

Each function takes an open store and the manifest and asserts. They are used on a reopened copy, on a
recovered copy and on a read-only one. The few places where we answer more than RocketMQ are said at
the assertion that allows it.
"""

from collections.abc import Callable

from embermq import MessageStore
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK
from embermq.model.properties import KEYS, UNIQ_KEY, decode_properties, split_keys
from tests.support.golden import FOREVER, Fetched, KeyQuery, Manifest, QueueFetch, Record, host

NOBODYS_TOPIC = "NobodyWroteHere"


def fetched(store: MessageStore, topic: str, queue_id: int, call: Fetched, tags: str = "*") -> tuple[object, ...]:
    """Our answer to a recorded getMessage, in the order of `recorded`."""
    got = store.fetch(topic, queue_id, call.offset, max_messages=call.max_msg_nums, tags=tags)
    return (
        str(got.status),
        got.next_offset,
        got.min_offset,
        got.max_offset,
        got.bytes_total,
        got.suggest_slave,
        [message.physical_offset for message in got.messages],
    )


def recorded(call: Fetched) -> tuple[object, ...]:
    assert call.count == len(call.phys)
    return (
        call.status,
        call.next_begin_offset,
        call.min_offset,
        call.max_offset,
        call.bytes,
        call.suggest_slave,
        call.phys,
    )


def label(row: QueueFetch) -> str:
    return f"{row.topic}@{row.queue_id} from {row.get.offset} at most {row.get.max_msg_nums} tags {row.sub}"


def bounds(store: MessageStore, facts: Manifest) -> None:
    answers = facts.answers
    assert (store.min_physical, store.max_physical) == (answers.min_phy_offset, answers.max_phy_offset)
    assert store.dispatch_behind_bytes == answers.dispatch_behind_bytes
    queues = {(row.topic, row.queue_id): (row.min, row.max) for row in answers.queues}
    assert queues == {
        (topic, queue_id): (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
        for topic, queue_id in queues
    }
    after_load = {queue: row[:2] for queue, row in answers.after_load.by_queue().items()}
    assert {queue: row for queue, row in after_load.items() if queue in queues} == queues


def topics(store: MessageStore, facts: Manifest) -> None:
    expected: dict[str, list[int]] = {}
    for row in facts.answers.queues:
        expected.setdefault(row.topic, []).append(row.queue_id)
    assert {topic: sorted(ids) for topic, ids in dict(store.topics()).items()} == {
        topic: sorted(ids) for topic, ids in expected.items()
    }


def last_entries(store: MessageStore, facts: Manifest) -> None:
    """The last entry of each queue points to where RocketMQ's memory says the queue ends."""
    for row in facts.answers.queues:
        if row.max > row.min:
            physical = store.physical_offset(row.topic, row.queue_id, row.max - 1)
            message = store.at(physical)
            assert message is not None
            assert message.physical_offset + message.size == row.max_physic_offset, f"{row.topic}@{row.queue_id}"


def fetches(store: MessageStore, facts: Manifest) -> None:
    rows = [row for row in facts.answers.get_message if row.get.offset >= 0]
    assert rows
    expected = {label(row): recorded(row.get) for row in rows}
    assert {label(row): fetched(store, row.topic, row.queue_id, row.get) for row in rows} == expected


def fetches_below_zero(store: MessageStore, facts: Manifest) -> None:
    rows = [row for row in facts.answers.get_message if row.get.offset < 0]
    assert rows
    expected = {label(row): recorded(row.get) for row in rows}
    assert {label(row): fetched(store, row.topic, row.queue_id, row.get) for row in rows} == expected


def fetches_by_tag(store: MessageStore, facts: Manifest) -> None:
    rows = facts.answers.get_message_by_tag
    assert rows
    expected = {label(row): recorded(row.get) for row in rows}
    assert {label(row): fetched(store, row.topic, row.queue_id, row.get, row.sub) for row in rows} == expected


def offsets_by_time(store: MessageStore, facts: Manifest) -> None:
    for row in facts.answers.get_offset_in_queue_by_time:
        got = [(time, store.offset_at(row.topic, row.queue_id, time)) for time, _ in row.time_to_offset]
        assert got == row.time_to_offset, f"{row.topic}@{row.queue_id}"


def entries(store: MessageStore, facts: Manifest) -> None:
    for row in facts.answers.entries:
        where = (row.topic, row.queue_id)
        got = [
            (n, store.physical_offset(*where, n), store.store_time(*where, n)) for n, _, _ in row.offset_phy_store_time
        ]
        assert got == row.offset_phy_store_time, where


def look_ups(store: MessageStore, facts: Manifest) -> None:
    for look in facts.answers.look_message_by_offset:
        message = store.at(look.phy)
        assert (message is not None) == look.found, look.phy
        if message is None:
            continue
        assert (
            message.message_id,
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.size,
            message.body_crc,
            len(message.body),
            message.store_timestamp,
        ) == (
            look.msg_id,
            look.topic,
            look.queue_id,
            look.queue_offset,
            look.store_size,
            look.body_crc,
            look.body_len,
            look.store_timestamp,
        )
        # Properties too long for the manifest are null there; the records family has their checksum.
        assert look.properties is None or dict(message.properties) == look.properties
        assert store.get(message.message_id) == message


def earliest_times(store: MessageStore, facts: Manifest) -> None:
    for row in facts.answers.queues:
        assert store.earliest_time(row.topic, row.queue_id) == row.earliest_message_time, row.topic
    # RocketMQ needs 8 MiB behind the first record to answer, and says -1 for all these small stores.
    assert facts.answers.earliest_message_time == -1
    first = next((record for record in facts.records if not record.blank), None)
    assert first is not None
    assert store.earliest_time() == first.store_timestamp


def indexed_keys(record: Record, properties: bytes) -> list[str]:
    if record.sys_flag & TRANSACTION_MASK == ROLLBACK:
        return []
    decoded = decode_properties(properties)
    unique = decoded.get(UNIQ_KEY)
    return [*([unique] if unique else []), *split_keys(decoded.get(KEYS))]


def key_queries(store: MessageStore, facts: Manifest) -> None:
    """`find` gives what RocketMQ gives to that very key, colliding keys left out.

    It may give more: RocketMQ stops at 64 entries with collisions counted in, and its seconds make it
    miss entries at the edge of a window. It never gives a record without the key, or outside the window.
    """
    texts = {r.phy: r for r in facts.records if not r.blank and r.properties_string is not None}
    holders: dict[tuple[str, str], list[Record]] = {}
    for record in texts.values():
        for key in indexed_keys(record, (record.properties_string or "").encode()):
            holders.setdefault((record.topic, key), []).append(record)
    for query in [*facts.answers.query_message, *facts.more_queries]:
        truth = {
            r.phy for r in holders.get((query.topic, query.key), []) if query.begin <= r.store_timestamp <= query.end
        }
        found = store.find(query.topic, query.key, begin_ms=query.begin, end_ms=query.end, limit=query.max_num)
        got = [message.physical_offset for message in found]
        assert got == sorted(set(got)), query
        assert {phy for phy in query.phys if phy in truth} <= set(got) <= truth, query
        assert len(got) <= query.max_num, query
        if (query.begin, query.end) == (0, FOREVER):
            assert got == sorted(truth)[len(truth) - min(query.max_num, len(truth)) :], query


def raw_index_answer(store: MessageStore, query: KeyQuery) -> list[int]:
    return list(store.index_offsets(query.topic, query.key, query.begin, query.end, query.max_num))


def index_offsets(store: MessageStore, facts: Manifest) -> None:
    """The index files themselves answer as in RocketMQ: newest first, collisions, cap and all.

    Where messages were deleted from the log, our index (made again, unless read-only) forgets them. It then
    begins at another time, and since it counts seconds from there, windows cut it at other places.
    """
    queries = [*facts.answers.query_message, *facts.more_queries]
    assert queries
    log_min = facts.answers.min_phy_offset
    for query in queries:
        if log_min and (query.begin, query.end) != (0, FOREVER):
            continue
        expected = [physical for physical in query.index_offsets if physical >= log_min]
        assert [at for at in raw_index_answer(store, query) if at >= log_min] == expected, query


def unknown_topic(store: MessageStore, facts: Manifest) -> None:
    answer = facts.answers.unknown_topic
    assert (store.min_offset(NOBODYS_TOPIC, 0), store.max_offset(NOBODYS_TOPIC, 0)) == (
        answer.min,
        answer.max,
    )
    for call in (answer.get0, answer.get7):
        assert fetched(store, NOBODYS_TOPIC, 0, call) == recorded(call)
    assert NOBODYS_TOPIC not in store.topics()


def scanned(store: MessageStore, facts: Manifest) -> None:
    """A walk over the whole log meets every record RocketMQ met, with the same fields."""
    got = [
        (
            message.physical_offset,
            message.size,
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.flag,
            message.sys_flag,
            message.body_crc,
            len(message.body),
            message.born_timestamp,
            message.born_host,
            message.store_timestamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.message_id,
        )
        for message in store.scan()
    ]
    assert got == [
        (
            record.phy,
            record.size,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.flag,
            record.sys_flag,
            record.body_crc,
            record.body_len,
            record.born_timestamp,
            host(record.born_host),
            record.store_timestamp,
            host(record.store_host),
            record.reconsume_times,
            record.prepared_transaction_offset,
            record.offset_msg_id,
        )
        for record in facts.records
        if not record.blank
    ]


FAMILIES: dict[str, Callable[[MessageStore, Manifest], None]] = {
    family.__name__: family
    for family in (
        bounds,
        topics,
        last_entries,
        fetches,
        fetches_below_zero,
        fetches_by_tag,
        offsets_by_time,
        entries,
        look_ups,
        earliest_times,
        key_queries,
        index_offsets,
        unknown_topic,
        scanned,
    )
}
