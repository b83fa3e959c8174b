"""read_messages, compiled and plain: the same rows and bytes for messages of every kind; and lists as columns."""

import enum
import gc
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq import Host, Message
from embermq.columns.compiled import messages as compiled
from embermq.columns.compiled import values
from embermq.columns.compiled.parts import objects
from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.plain import messages as plain
from embermq.columns.plain import runs as r
from embermq.columns.plain import values as plain_values
from embermq.columns.plain.messages import PAIRS_MAX, MessageReading
from embermq.columns.plain.pairs import ValueColumn
from embermq.columns.plain.runs import RowLimits, RowStop
from embermq.model.hosts import pack_host
from tests.columns.guarded import GuardedMemory

MEMORY = GuardedMemory(1 << 17)
KNOWN = {
    (topic, queue_id): number
    for number, (topic, queue_id) in enumerate(
        [(b"T", 0), (b"TopicTest", 0), (b"TopicTest", 3), (b"TopicTesT", 0), (b"t" * 127, 2**31 - 1)]
    )
}
BODY_MAX, RECORD_MAX = 300, 500
LIMITS = RowLimits(BODY_MAX, RECORD_MAX, 8)

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


def read_both(
    some: list[Message], first: int = 0, room: int = 1 << 16, used: int = 0
) -> tuple[MessageReading, list[list[int]], bytes]:
    """What the kernel says, having said the same as its twin. It writes nowhere but into its room."""
    rows = [np.full((len(some) - first, r.N_RUN_COLUMNS), 77, np.int64) for _ in range(2)]
    outs = MEMORY.hold(bytes(room)), np.zeros(room, np.uint8)
    ours = compiled.read_messages(some, first, TABLE, LIMITS, rows[0], outs[0], used)
    theirs = plain.read_messages(some, first, lambda t, q: KNOWN.get((t, q), -1), LIMITS, rows[1], outs[1], used)
    assert ours == theirs
    found, twin = (part[: ours.filled].tolist() for part in rows)
    assert found == twin
    data, other = (part[: ours.used].tobytes() for part in outs)
    assert data == other
    return ours, found, data


@settings(max_examples=500, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=20), st.integers(0, 3000), st.integers(0, 20))
def test_any_messages(some: list[Message], room: int, used: int) -> None:
    done = 0
    while done < len(some):
        reading, rows, data = read_both(some, done, room, min(used, room))
        for message, row in zip(some[done : done + reading.filled], rows, strict=True):
            assert_row_is(message, row, data)
        done += reading.filled
        if reading.stop is RowStop.PLACE:
            assert (some[done].topic.encode(), some[done].queue_id) not in KNOWN
            return
        if reading.stop is RowStop.FULL:
            assert reading.needed > room - reading.used
            room += reading.needed
        done += reading.stop is RowStop.PLAIN


def assert_row_is(message: Message, row: list[int], data: bytes) -> None:
    """A row tells of its message what the plain way would store."""
    topic = message.topic.encode()
    assert data[row[r.R_TOPIC_AT] :][: row[r.R_TOPIC_LEN]] == topic
    assert data[row[r.R_BODY_AT] :][: row[r.R_BODY_LEN]] == message.body
    assert data[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]] == message.property_bytes()
    assert row[r.R_QUEUE] == KNOWN[topic, message.queue_id]
    born = r.BORN_NOW if message.born_timestamp is None else message.born_timestamp
    host = data[row[r.R_HOST_AT] :][: row[r.R_HOST_LEN]]
    assert host == (b"" if message.born_host is None else pack_host(message.born_host))
    assert row[r.R_QUEUE_ID : r.R_HOST_AT] == [
        message.queue_id,
        message.flag,
        message.sys_flag,
        born,
        message.reconsume_times,
        message.prepared_transaction_offset,
    ]


class Tag(enum.StrEnum):
    PAID = "paid"


class OwnText(str):
    """A text that may show itself as something else."""


class OwnMessage(Message, frozen=True):
    """A message that may do anything."""


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    TEXTS,
    st.binary(max_size=20),
    st.sampled_from(
        [
            Tag.PAID,
            OwnText("x"),
            "\ud800",
            bytearray(b"x"),
            memoryview(b"x"),
            ["a", b"b"],
            ("a", None),
            [["a"]],
            ["\ud800"],
            {"a": 1},
            {1: "a"},
            {"a": "\ud800"},
            {"a": OwnText("b")},
            {"DELAY": "1"},
            {"TIMER_DELAY_MS": "1"},
            {"MYWAIT": "truE", "a": "b"},
            {"WAIT": "true"},
            iter(["k"]),
            ("1.2.3.4", 5),
            Host("1.2.3.4", None),  # type: ignore[arg-type]
            Host(None, 7),  # type: ignore[arg-type]
            Host("\ud800", 7),
            object(),
        ]
    ),
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(Message.__struct_fields__), ANYTHING, max_size=3))
def test_anything_in_a_field(fields: dict[str, Any]) -> None:
    some = [Message("T", b"1"), Message(**{"topic": "T", **fields}), Message("TopicTest", b"3")]
    reading, _, _ = read_both(some)
    assert reading.filled in (1, 3)


@pytest.mark.parametrize("other", [None, 7, "T", OwnMessage("T"), Host("1.2.3.4", 5)], ids=repr)
def test_what_is_no_message_is_not_read(other: Any) -> None:
    reading, _, _ = read_both([Message("T"), other])
    assert reading == (1, 1, 0, RowStop.PLAIN)


def test_what_is_read_when_nothing_is_wrong() -> None:
    some = [
        Message("TopicTest", b"one", tags="paid", keys=["o-1", "o-2"], queue_id=3, flag=7),
        Message("T", b"two", properties={"region": "eu", "shop": "7"}, keys="k", born_timestamp=5),
        Message("T", encoded_properties=b"UNIQ_KEY\x01u"),
        Message("T", born_host=Host("10.1.2.3", 50_000), encoded_properties=b"UNIQ_KEY\x01u\x02WAIT\x01true"),
    ]
    reading, rows, data = read_both(some)
    assert reading == (4, len(data), 0, RowStop.ALL)
    assert data == (
        b"oneTopicTestKEYS\x01o-1 o-2\x02TAGS\x01paid"
        + b"twoT"
        + some[1].property_bytes()
        + b"UNIQ_KEY\x01u"
        + bytes([10, 1, 2, 3, 0, 0, 195, 80])
        + some[3].property_bytes()
    ), "the topic is there once while it is the same object"
    assert [row[r.R_QUEUE] for row in rows] == [2, 0, 0, 0]
    assert [row[r.R_BORN_TIME] for row in rows] == [r.BORN_NOW, 5, r.BORN_NOW, r.BORN_NOW]


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
        {"flag": True},
        {"body": bytearray(b"x")},
        {"tags": Tag.PAID},
    ],
    ids=str,
)
def test_what_is_not_ordinary_is_passed_over(fields: dict[str, Any]) -> None:
    some = [Message("T"), Message(**{"topic": "T", **fields}), Message("TopicTest")]
    reading, rows, _ = read_both(some)
    assert (reading.filled, reading.stop) == (1, RowStop.PLAIN)
    reading, rows, _ = read_both(some, 2)
    assert (reading.stop, rows[0][r.R_QUEUE]) == (RowStop.ALL, 1)


def test_a_full_buffer_says_what_the_next_message_needs() -> None:
    some = [Message("T", b"0123456789", tags="a")] * 2
    whole = 10 + 1 + 6
    assert read_both(some, room=whole - 1)[0] == (0, 0, whole, RowStop.FULL)
    assert read_both(some, room=2 * whole - 2)[0] == (1, whole, whole - 1, RowStop.FULL)
    assert read_both(some, room=2 * whole - 1)[0] == (2, 2 * whole - 1, 0, RowStop.ALL)


def test_reading_leaves_no_reference_and_no_error_behind() -> None:
    tag = "".join(["ta", "g"])
    some = [Message("T", b"b", tags=tag, keys=[tag, tag], properties={"a": tag}), Message("T", tags="\ud800")]
    gc.collect()
    before = sys.getrefcount(tag)
    for _ in range(50):
        assert read_both(some)[0].stop is RowStop.PLAIN
    assert sys.getrefcount(tag) == before


def test_without_a_layout_messages_are_read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_LAYOUT", None)
    monkeypatch.setattr(values, "_LAYOUT", None)
    assert read_both([Message("T", b"x", tags="t")])[0].stop is RowStop.ALL
    column = values.join_texts(["a", None, "bc"])
    assert column is not None
    assert bytes(column.data) == b"abc"


def test_there_is_a_layout_here() -> None:
    """Without one appends of lists are slow, and nothing else says so."""
    layout = objects.find_layout()
    assert layout is not None
    offsets = layout[objects.K_FIELDS :]
    assert len(set(offsets.tolist())) == len(Message.__struct_fields__)


def test_there_is_no_layout_where_objects_lie_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_words", lambda value: [0] * 32)
    assert objects.find_layout() is None


# -- lists as columns ----------------------------------------------------------------------------------------------

ODD = st.one_of(st.integers(), st.just(OwnText("x")), st.just(bytearray(b"x")), st.just("\ud800"), st.just("\udc00"))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.one_of(TEXTS, st.none())), st.lists(st.one_of(TEXTS, st.none(), ODD))))
def test_any_list_of_texts(listed: list[Any]) -> None:
    ours, theirs = values.join_texts(listed), plain_values.join_texts(listed)
    if "\ud800" in listed or "\udc00" in listed:
        assert ours is None
        return
    assert_same_column(ours, theirs)
    if ours is not None:
        found = [value_of(ours, i) for i in range(len(listed))]
        assert found == [None if text is None else text.encode() for text in listed]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.lists(st.binary()), st.lists(st.one_of(st.binary(), ODD, st.none()))))
def test_any_list_of_bytes(listed: list[Any]) -> None:
    ours = values.join_bytes(listed)
    assert_same_column(ours, plain_values.join_bytes(listed))
    if ours is not None:
        assert [value_of(ours, i) for i in range(len(listed))] == listed


def value_of(column: ValueColumn, i: int) -> bytes | None:
    start, length = int(column.starts[i]), int(column.lengths[i])
    return None if length < 0 else bytes(memoryview(column.data)[start : start + length])


def assert_same_column(ours: ValueColumn | None, theirs: ValueColumn | None) -> None:
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert bytes(memoryview(ours.data)) == bytes(memoryview(theirs.data))
        assert ours.starts.tolist() == theirs.starts.tolist()
        assert ours.lengths.tolist() == theirs.lengths.tolist()
