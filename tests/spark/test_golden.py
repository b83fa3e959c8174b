"""Stores of RocketMQ as tables: every record with its fields, and RocketMQ's own answers.

Each store is read in all three ways: the log in order, through queue entries, and by the index.
"""

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq.columns.plain.select import is_system_topic
from embermq.errors import OptionInvalid
from embermq.model.flags import has_queue_entry
from embermq.model.properties import decode_properties
from embermq.spark.planning import plan
from tests.support import golden
from tests.support.golden import Record
from tests.support.spark_reads import Read, Row, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

StoreCopy = Callable[[str], Path]


@pytest.fixture
def by_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jumps cost less than nothing: whatever has a queue is read through it."""
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20))


def records_of(name: str) -> list[Record]:
    return [record for record in golden.manifest(name).records if not record.blank]


def is_shown(record: Record) -> bool:
    """What a consumer could see."""
    return has_queue_entry(record.sys_flag) and not is_system_topic(record.topic)


def host_text(pair: golden.HostPair) -> str:
    host = golden.host(pair)
    return f"[{host.address}]:{host.port}" if ":" in host.address else f"{host.address}:{host.port}"


def moment(time_ms: int) -> datetime | None:
    """What Spark cannot show is null."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def assert_is(row: Row, record: Record) -> None:
    assert row["physicalOffset"] == record.phy
    assert row["msgId"] == record.offset_msg_id
    assert (row["topic"], row["queueId"], row["queueOffset"]) == (record.topic, record.queue_id, record.queue_offset)
    assert (row["flag"], row["sysFlag"], row["size"]) == (record.flag, record.sys_flag, record.size)
    assert (row["bodyCrc"], len(row["body"])) == (record.body_crc, record.body_len)
    assert (row["bornTimestamp"], row["bornHost"]) == (moment(record.born_timestamp), host_text(record.born_host))
    assert (row["storeTimestamp"], row["storeHost"]) == (moment(record.store_timestamp), host_text(record.store_host))
    assert row["reconsumeTimes"] == record.reconsume_times
    assert row["preparedTransactionOffset"] == record.prepared_transaction_offset
    if record.body_hex is not None:
        assert row["body"].hex() == record.body_hex
    if record.properties_string is not None:
        properties = decode_properties(record.properties_string.encode())
        assert dict(row["properties"]) == properties
        assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
        assert row["uniqKey"] == properties.get("UNIQ_KEY")


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_every_record_with_every_field(name: str, golden_store: StoreCopy) -> None:
    store = golden_store(name)
    before = golden.tree_state(store)
    got = read(store, includeSystemTopics="true", decompress="false")
    records = records_of(name)
    assert len(got.rows) == len(records)
    for row, record in zip(got.rows, records, strict=True):
        assert_is(row, record)
    assert golden.tree_state(store) == before


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_by_default_what_a_consumer_would_see(name: str, golden_store: StoreCopy) -> None:
    got = read(golden_store(name)).column("physicalOffset")
    assert got == [record.phy for record in records_of(name) if is_shown(record)]


@pytest.mark.usefixtures("by_queue")
@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_every_queue_as_rocketmq_has_it(name: str, golden_store: StoreCopy) -> None:
    """All records of the queue, and of those RocketMQ was asked for, the same places."""
    store, facts = golden_store(name), golden.manifest(name)
    shown = [record for record in records_of(name) if is_shown(record)]
    for queue in facts.answers.entries:
        expected = [
            (record.queue_offset, record.phy)
            for record in shown
            if (record.topic, record.queue_id) == (queue.topic, queue.queue_id)
        ]
        if not expected:
            continue  # A system topic, or a light queue, which holds records of other topics.
        got = read(store, topic=queue.topic, queues=str(queue.queue_id))
        assert got.methods == {"queue"}
        rows = sorted(zip(got.column("queueOffset"), got.column("physicalOffset"), strict=True))
        assert rows == expected, queue.topic
        asked = {(offset, phy) for offset, phy, time_ms in queue.offset_phy_store_time if time_ms >= 0}
        assert asked <= set(rows)


@pytest.mark.parametrize("topic", ["%LMQ%q1", "other"])
def test_queues_of_other_topics_messages(spark: "SparkSession", topic: str, golden_store: StoreCopy) -> None:
    """They cannot be read as topics; the error says what to do instead, and that is the right answer."""
    store = golden_store("lmq")
    with pytest.raises(OptionInvalid, match="has no messages of its own") as refused:
        read(store, topic=topic)
    filter_text = str(refused.value).split(" where ")[1]
    rows = spark.read.format("rocketmq").load(str(store)).where(filter_text).select("physicalOffset").collect()
    answers = golden.manifest("lmq").answers
    asked = {
        phy
        for queue in answers.entries
        for _, phy, time_ms in queue.offset_phy_store_time
        if queue.topic == topic and time_ms >= 0
    }
    assert asked
    assert asked <= {row["physicalOffset"] for row in rows}
    assert len(rows) == sum(queue.total for queue in answers.queues if queue.topic == topic)


@pytest.mark.usefixtures("by_queue")
@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_tags_as_rocketmq_answers(name: str, golden_store: StoreCopy) -> None:
    """By hash and then by text: RocketMQ's stage in the queue lets colliding tags pass, a consumer does not."""
    store, facts = golden_store(name), golden.manifest(name)
    records = {record.phy: record for record in records_of(name) if record.properties_string is not None}
    topics = {record.topic for record in records_of(name) if is_shown(record)}
    seen = 0
    for call in facts.answers.get_message_by_tag:
        if call.sub == "*" or call.topic not in topics:
            continue  # Light queues hold records of other topics.
        wanted = {tag.strip() for tag in call.sub.split("||")}
        phys = {phy for phy in call.get.phys if phy not in records or tag_of(records[phy]) in wanted}
        got = read(store, topic=call.topic, queues=str(call.queue_id), subExpression=call.sub)
        assert phys <= set(got.column("physicalOffset")), call
        assert set(got.column("tags")) <= wanted
        seen += 1
    assert seen or not any(call.sub != "*" for call in facts.answers.get_message_by_tag)


def tag_of(record: Record) -> str | None:
    return decode_properties((record.properties_string or "").encode()).get("TAGS")


def test_keys_as_rocketmq_answers(golden_store: StoreCopy) -> None:
    store, facts = golden_store("index"), golden.manifest("index")
    shown = [record for record in records_of("index") if is_shown(record)]
    asked = 0
    for query in facts.answers.query_message:
        truth = [record for record in shown if record.topic == query.topic and query.key in keys_of(record)]
        if (query.begin, query.end) != (0, golden.FOREVER) or not truth:
            continue
        got = read(store, topic=query.topic, keys=json.dumps([query.key]))
        assert got.methods == {"places"}
        assert got.column("physicalOffset") == [record.phy for record in truth], query
        assert set(query.phys) & {record.phy for record in truth} <= set(got.column("physicalOffset"))
        # Only candidates of the index are read: the right ones, and few with the same hash.
        assert got.counts.records < len(shown) / 3
        asked += 1
    assert asked > 10


def keys_of(record: Record) -> list[str]:
    properties = decode_properties((record.properties_string or "").encode())
    words = properties.get("KEYS", "").split(" ")
    return [word for word in (properties.get("UNIQ_KEY", ""), *words) if word]


@pytest.mark.usefixtures("by_queue")
def test_offsets_by_time(golden_store: StoreCopy) -> None:
    """The times RocketMQ was asked for: what is stored from then on, and what before."""
    store, facts = golden_store("basic"), golden.manifest("basic")
    times = {record.phy: record.store_timestamp for record in records_of("basic")}
    queue = facts.answers.get_offset_in_queue_by_time[0]
    where = {"topic": queue.topic, "queues": str(queue.queue_id)}
    every = sorted(read(store, **where).column("physicalOffset"))
    for time_ms, _ in queue.time_to_offset:
        late = read(store, **where, startingTimestamp=str(time_ms)).column("physicalOffset")
        early = read(store, **where, endingTimestamp=str(time_ms)).column("physicalOffset")
        assert sorted(late) == [phy for phy in every if times[phy] >= time_ms]
        assert sorted(early) == [phy for phy in every if times[phy] < time_ms]
        # Without a topic a time is a place in the log.
        late = read(store, startingTimestamp=str(time_ms)).column("physicalOffset")
        assert late == [phy for phy in times if times[phy] >= time_ms]


@pytest.mark.parametrize("name", ["compressed", "compressed-raw"])
def test_bodies_come_decompressed(name: str, golden_store: StoreCopy) -> None:
    store = golden_store(name)
    kinds = set()
    stored = {row["physicalOffset"]: row for row in read(store, decompress="false").rows}
    for row in read(store).rows:
        properties = dict(row["properties"])
        if "plain" in properties:
            length, _, checksum = properties["plain"].partition(":")
        elif "plainLen" in properties:
            length, checksum = properties["plainLen"], properties["plainCrc32"]
        else:
            continue
        assert (len(row["body"]), zlib.crc32(row["body"])) == (int(length), int(checksum))
        raw = stored[row["physicalOffset"]]["body"]
        assert zlib.crc32(raw) & 0x7FFF_FFFF == row["bodyCrc"]
        kinds.add(row["sysFlag"] & 0x701)
    assert {0x101, 0x201, 0x301} <= kinds


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_stores_of_a_killed_broker(name: str, golden_store: StoreCopy) -> None:
    """Up to the last complete record; queue files that lag behind or run ahead change nothing."""
    store, facts = golden_store(name), golden.manifest(name)
    end = facts.log_zeroed_from if facts.log_zeroed_from is not None else facts.answers.max_phy_offset
    shown = [record for record in records_of(name) if is_shown(record) and record.phy + record.size <= end]
    assert read(store).column("physicalOffset") == [record.phy for record in shown]
    for topic in sorted({record.topic for record in shown}):
        got = read(store, topic=topic).column("physicalOffset")
        assert sorted(got) == [record.phy for record in shown if record.topic == topic]


def test_torn_tails(golden_store: StoreCopy, tmp_path: Path) -> None:
    """The last record is torn in nine ways: all before it are there, and it is nowhere.

    Two of the ways change what no sum covers; the record is whole then, as it is for RocketMQ."""
    records = [record.phy for record in records_of("basic")]
    for number, case in enumerate(golden.torn_tail().patches):
        store = golden.restore("basic", tmp_path / str(number))
        case.patch.apply(store)
        got = read(store).column("physicalOffset")
        assert got in (records[:-1], records), case.what
        if case.abnormal.records == len(records) - 1:
            assert got == records[:-1], case.what


def test_through_spark(spark: "SparkSession", golden_store: StoreCopy) -> None:
    """The same rows from tasks in other processes, and several stores of a glob at once."""
    names = {"basic": "golden-basic", "ipv6": "golden-ipv6", "transaction": "broker-a"}
    root = {golden_store(name).parents[1] for name in names}.pop()
    frame = spark.read.format("rocketmq").load(f"{root}/golden-*/store")
    got = sorted((row.brokerName, row.topic, row.physicalOffset, row.msgId, bytes(row.body)) for row in frame.collect())
    expected = [
        (names[name], record.topic, record.phy, record.offset_msg_id, record.body_hex)
        for name in names
        for record in records_of(name)
        if is_shown(record)
    ]
    assert [row[:4] for row in got] == sorted(row[:4] for row in expected)
    bodies = {row[:4]: row[4] for row in got}
    assert all(hexes is None or bodies[tuple(key)].hex() == hexes for *key, hexes in expected)  # type: ignore[index]


def unchanged(got: Read) -> list[Any]:
    return sorted(got.column("physicalOffset"))


@pytest.mark.parametrize("name", ["basic", "batch", "delay", "retry-dlq", "cqext", "deleted-segments"])
def test_all_ways_of_reading_agree(name: str, golden_store: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store(name)
    in_order = read(store, subscribePattern=".*", minPartitions="3")
    assert in_order.methods == {"log"}
    assert len(in_order.slices) > 1
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20))
    through_queues = read(store, subscribePattern=".*", minPartitions="3")
    assert through_queues.methods == {"queue"}
    key = "physicalOffset"
    assert sorted(through_queues.rows, key=lambda row: row[key]) == in_order.rows
    assert unchanged(read(store)) == unchanged(in_order)
