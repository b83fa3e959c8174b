"""read_messages == read_packed: on messages of every kind, on torn bytes, and on bytes that only look like messages."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embermq import Host, Message
from embermq.columns.compiled.messages import read_messages
from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.plain import runs as r
from embermq.columns.plain.messages import FIELDS, PAIRS_MAX, PackedReading, PackedStop, list_head_bytes, read_packed
from embermq.model.hosts import pack_host
from tests.columns.guarded import GuardedMemory

MEMORY = GuardedMemory(1 << 17)
PACK = msgspec.msgpack.Encoder().encode
KNOWN = {
    (topic, queue_id): number
    for number, (topic, queue_id) in enumerate(
        [(b"T", 0), (b"TopicTest", 0), (b"TopicTest", 3), (b"TopicTesT", 0), (b"t" * 127, 2**31 - 1)]
    )
}
BODY_MAX, RECORD_MAX = 300, 500

TEXTS = st.one_of(
    st.sampled_from(["", "paid", "order-1000000", "a b", " ", "\x01", "eu\x02", "DELAY", "WAIT", "x" * 31, "x" * 32]),
    st.text(max_size=12),
    st.text(st.characters(codec="utf-8"), max_size=9),
)
NAMES = st.one_of(st.sampled_from(["region", "TAGS", "KEYS", "DELAY", "WAITED", "a", "b", "q", "Aa", "BB"]), TEXTS)
ENCODED = st.one_of(
    st.sampled_from(
        [
            b"",
            b"TAGS\x01paid",
            b"UNIQ_KEY\x017F00\x02KEYS\x01o-1\x02",
            b"a\x01b\x02DELAY\x013",
            b"WAIT\x01false",
            b"WAIT\x01true",
            b"WAIT\x01true\x02a\x01b",
            b"WAIT\x01true\x02WAIT\x01no",
            b"a\x01b\x02WAIT\x01truest",
            b"WAIT\x01tru",
            b"XWAIT\x01",
            b"WAIT",
            b"INNER_MULTI_DISPATCH\x01q",
            b"PER_MULTI_DISPATCH\x01q",
            b"ELAY\x01",
            b"\x01" * 20,
        ]
    ),
    st.binary(max_size=40),
)
I32 = st.one_of(st.just(0), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**40), 2**40))
I64 = st.one_of(st.just(0), st.integers(-(2**63), 2**64 - 1))
PLACES = st.sampled_from([("T", 0), ("TopicTest", 0), ("TopicTest", 3), ("TopicTesT", 0), ("t" * 127, 2**31 - 1)])
HOSTS = st.one_of(
    st.none(),
    st.builds(
        Host,
        st.one_of(
            st.sampled_from(
                [
                    "10.0.0.1",
                    "255.255.255.255",
                    "0.0.0.0",
                    "256.1.1.1",
                    "01.2.3.4",
                    "00.2.3.4",
                    "1.2.3",
                    "1.2.3.",
                    ".2.3.4",
                    "1..3.4",
                    "1.2.3.4.5",
                    "1.2.3.4 ",
                    "::1",
                    "localhost",
                    "",
                    "1.2.3.\u0661",
                ]
            ),
            st.text("0123456789.", max_size=15),
        ),
        st.one_of(st.integers(0, 65535), st.integers(-(2**33), 2**33)),
    ),
)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "born_host": HOSTS,
    "body": st.one_of(st.binary(max_size=40), st.sampled_from([bytes(255), bytes(256), bytes(BODY_MAX), bytes(301)])),
    "tags": st.one_of(st.none(), TEXTS),
    "keys": st.one_of(TEXTS, st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4).map(tuple)),
    "properties": st.dictionaries(NAMES, TEXTS, max_size=PAIRS_MAX + 1),
    "born_timestamp": st.one_of(st.none(), I64),
    "encoded_properties": st.one_of(st.none(), ENCODED),
    "flag": I32,
    "sys_flag": st.one_of(st.sampled_from([0, 1, 4, 8, 12, 0x301]), I32),
}
RARE: dict[str, st.SearchStrategy[Any]] = {
    "reconsume_times": I32,
    "prepared_transaction_offset": I64,
    "queue_id": I64,
    "delay_level": st.integers(0, 18),
    "store_host": st.sampled_from([None, Host("::1", 10911)]),
    "wait_for_store": st.booleans(),
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Mostly ordinary, now and then with something that is not."""
    topic, queue_id = draw(PLACES)
    names = draw(st.lists(st.sampled_from(list(COMMON)), unique=True, max_size=4))
    if draw(st.integers(0, 5)) == 0:
        names += draw(st.lists(st.sampled_from(list(RARE)), unique=True, max_size=2))
    if draw(st.integers(0, 7)) == 0:
        topic = draw(st.one_of(st.just("nobody-knows"), TEXTS))
    fields = {name: draw({**COMMON, **RARE}[name]) for name in names}
    return Message(**{"topic": topic, "queue_id": queue_id, **fields})


def places() -> QueueTable:
    table = QueueTable()
    for (topic, queue_id), number in KNOWN.items():
        table.add(topic, queue_id, number)
    return table


TABLE = places()


def read_both(packed: bytes, at: int, count: int) -> tuple[PackedReading, list[list[int]], bytes]:
    """What the kernel says, having said the same as its twin."""
    outcomes = []
    for kernel in (True, False):
        rows = np.full((count, r.N_RUN_COLUMNS), 77, np.int64)
        room = np.zeros(len(packed), np.uint8)
        reading = (
            read_messages(MEMORY.hold(packed), at, TABLE, BODY_MAX, RECORD_MAX, 8, rows, room, 0)
            if kernel
            else read_packed(packed, at, lambda t, q: KNOWN.get((t, q), -1), BODY_MAX, RECORD_MAX, 8, rows, room, 0)
        )
        outcomes.append((reading, rows[: reading.filled].tolist(), room[: reading.used].tobytes()))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@settings(max_examples=500, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=20))
def test_any_messages(some: list[Message]) -> None:
    packed = PACK(some)
    at, done = list_head_bytes(len(some)), 0
    while done < len(some):
        (filled, at, _, stop), rows, texts = read_both(packed, at, len(some) - done)
        assert stop is not PackedStop.BROKEN
        for message, row in zip(some[done : done + filled], rows, strict=True):
            assert_row_is(message, row, packed, texts)
        done += filled
        if stop is PackedStop.PLACE:
            assert (some[done].topic.encode(), some[done].queue_id) not in KNOWN
            return
        done += stop is PackedStop.PLAIN
    assert at == len(packed)


def assert_row_is(message: Message, row: list[int], packed: bytes, texts: bytes) -> None:
    """A row tells of its message what the plain way would store."""
    topic = message.topic.encode()
    assert packed[row[r.R_TOPIC_AT] :][: row[r.R_TOPIC_LEN]] == topic
    assert packed[row[r.R_BODY_AT] :][: row[r.R_BODY_LEN]] == message.body
    assert texts[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]] == message.property_bytes()
    assert row[r.R_QUEUE] == KNOWN[topic, message.queue_id]
    born = r.BORN_NOW if message.born_timestamp is None else message.born_timestamp
    host = texts[row[r.R_HOST_AT] :][: row[r.R_HOST_LEN]]
    assert host == (b"" if message.born_host is None else pack_host(message.born_host))
    assert row[r.R_QUEUE_ID : r.R_HOST_AT] == [
        message.queue_id,
        message.flag,
        message.sys_flag,
        born,
        message.reconsume_times,
        message.prepared_transaction_offset,
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=3), st.data())
def test_torn_and_damaged_bytes(some: list[Message], data: st.DataObject) -> None:
    packed = bytearray(PACK(some))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(1, len(packed))) :]
    read_both(bytes(packed), data.draw(st.integers(0, min(3, len(packed)))), data.draw(st.integers(0, 4)))


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        TEXTS,
        st.binary(max_size=20),
        st.binary(max_size=20).map(lambda raw: msgspec.msgpack.Ext(5, raw)),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.one_of(st.sampled_from([name.decode() for name in FIELDS]), TEXTS), VALUES, max_size=5))
@example({"topic": "T", "keys": ["a", ["b"]]})
@example({"topic": "T", "properties": {"a": {"b": "c"}}})
@example({"topic": b"T"})
@example({"topic": "T", "body": "text"})
@example({"topic": "T", "x" * 40: 1})
@example({"topic": "T", "encoded_propertyes": b""})
def test_any_map_in_place_of_a_message(fields: dict[str, Any]) -> None:
    reading, _, _ = read_both(PACK(fields), 0, 1)
    assert reading.stop is not PackedStop.BROKEN


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 3))
@example(b"\x81\xa5topic\xdd\xff\xff\xff\xff", 1)
@example(b"\xdf\xff\xff\xff\xff\xa5topic\xa1T", 1)
@example(b"\x81\xa5topic\xc6\xff\xff\xff\xff", 1)
@example(b"\x82\xa5topic\xa1T\xa4keys\xdc\xff\xff\xa1k", 1)
@example(b"\x81\xc1", 1)
def test_any_bytes(data: bytes, count: int) -> None:
    read_both(data, 0, count)


def test_what_is_read_when_nothing_is_wrong() -> None:
    some = [
        Message("TopicTest", b"one", tags="paid", keys=["o-1", "o-2"], queue_id=3, flag=7),
        Message("T", b"two", properties={"region": "eu", "shop": "7"}, keys="k", born_timestamp=5),
        Message("T", encoded_properties=b"UNIQ_KEY\x01u"),
    ]
    reading, rows, texts = read_both(PACK(some), 1, 3)
    assert reading == (3, len(PACK(some)), len(texts), PackedStop.ALL)
    some[2] = Message("T", born_host=Host("10.1.2.3", 50_000), encoded_properties=b"UNIQ_KEY\x01u\x02WAIT\x01true")
    _, hosted, hosted_texts = read_both(PACK(some), 1, 3)
    assert hosted_texts[hosted[2][r.R_HOST_AT] :] == bytes([10, 1, 2, 3, 0, 0, 195, 80]) + some[2].property_bytes()
    assert texts == b"KEYS\x01o-1 o-2\x02TAGS\x01paid" + some[1].property_bytes() + b"UNIQ_KEY\x01u"
    assert [row[r.R_QUEUE] for row in rows] == [2, 0, 0]
    assert [row[r.R_BORN_TIME] for row in rows] == [r.BORN_NOW, 5, r.BORN_NOW]


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_level": 1},
        {"wait_for_store": False},
        {"born_host": Host("::1", 1)},
        {"born_host": Host("10.0.0.256", 1)},
        {"born_host": Host("10.0.0.1", 1 << 31)},
        {"store_host": Host("10.0.0.1", 1)},
        {"tags": "a\x01"},
        {"keys": ["a b"]},
        {"keys": [""]},
        {"encoded_properties": b"DELAY\x013"},
        {"properties": {"WAIT": "false"}},
        {"properties": {"TAGS": "a"}},
        {"properties": {"a": ""}},
        {"encoded_properties": b"a\x01b", "tags": "t"},
        {"properties": dict.fromkeys("abcdefghi", "1")},
        {"body": bytes(BODY_MAX + 1)},
        {"queue_id": -1},
        {"body": bytes(300), "encoded_properties": bytes(200)},
        {"flag": 2**31},
        {"born_timestamp": 2**63},
    ],
    ids=str,
)
def test_what_is_not_ordinary_is_passed_over(fields: dict[str, Any]) -> None:
    packed = PACK([Message("T"), Message(**{"topic": "T", **fields}), Message("TopicTest")])
    reading, rows, _ = read_both(packed, 1, 3)
    assert (reading.filled, reading.stop) == (1, PackedStop.PLAIN)
    reading, rows, _ = read_both(packed, reading.at, 1)
    assert (reading.at, reading.stop, rows[0][r.R_QUEUE]) == (len(packed), PackedStop.ALL, 1)


def test_the_fields_are_those_of_a_message() -> None:
    """A field renamed there would go the plain way, unnoticed but for the time it takes."""
    assert {name.decode() for name in FIELDS} == set(Message.__struct_fields__) - {
        "delay_level",
        "store_host",
        "wait_for_store",
    }
