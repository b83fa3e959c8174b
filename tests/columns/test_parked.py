"""read_parked, kernel == twin: on parked records of every kind, and on bytes and places that are not what they seem."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.parked import read_parked
from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.plain import parked as twin
from embermq.columns.plain import runs as r
from embermq.columns.plain.parked import ParkedIn, ParkedRead, ParkedStop
from embermq.columns.plain.runs import BORN_NOW, P_PHYSICAL, P_QUEUE_OFFSET, P_SIZE, RowLimits
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import C_PHYSICAL, C_QUEUE_OFFSET, C_SIZE, Rows, new_rows
from embermq.format.frame import encode, record_size
from embermq.model.hosts import Host, pack_host
from embermq.model.properties import HALF_TOPIC, SCHEDULE_TOPIC
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I64, hostile_logs, impostors, logs
from tests.support.records import NO_DELAYS

MEMORY = GuardedMemory(1 << 16)
BORN, STORE = Host("10.0.0.1", 5000), Host("10.0.0.2", 10911)
KNOWN = {("orders", 3): 0, ("orders", 2**31 - 1): 1, ("t" * 127, 0): 2, (HALF_TOPIC, 0): 3}
PARKED_IN = ParkedIn(SCHEDULE_TOPIC.encode(), 2, pack_host(STORE))
LIMITS = RowLimits(1 << 20, 1 << 20, 8)
GOOD = b"DELAY\x013\x02REAL_TOPIC\x01orders\x02REAL_QID\x013"


def table() -> QueueTable:
    made = QueueTable()
    for (topic, queue_id), number in KNOWN.items():
        made.add(topic.encode(), queue_id, number)
    return made


TABLE = table()


def record(at: int = BASE, properties: bytes = GOOD, **changes: Any) -> bytes:
    fields = {
        "physical_offset": at,
        "queue_id": 2,
        "queue_offset": 7,
        "topic": SCHEDULE_TOPIC,
        "body": b"body",
        "properties": properties,
        "born_timestamp": 1234,
        "born_host": BORN,
        "store_timestamp": 5678,
        "store_host": STORE,
        "flag": -9,
        "reconsume_times": 4,
        "prepared_transaction_offset": 99,
        **changes,
    }
    return bytes(encode(**fields))


def at_places(*places: tuple[int, int, int]) -> Rows:
    made = np.zeros((len(places), r.N_PLACED_COLUMNS), np.int64)
    for row, (physical, size, queue_offset) in zip(made, places, strict=True):
        row[P_PHYSICAL], row[P_SIZE], row[P_QUEUE_OFFSET] = physical, size, queue_offset
    return made


def both(
    data: bytes, places: Rows, start: int = 0, limits: RowLimits = LIMITS, parked_in: ParkedIn = PARKED_IN
) -> tuple[ParkedRead, Rows]:
    """What kernel and twin agree on."""
    ours, theirs = (np.full((len(places), r.N_RUN_COLUMNS), -7, np.int64) for _ in range(2))

    def find(topic: bytes, queue_id: int) -> int:
        return KNOWN.get((topic.decode("utf-8", "replace"), queue_id), -1)

    expected = twin.read_parked(data, BASE, places, start, parked_in, find, limits, theirs)
    answer = read_parked(MEMORY.hold(data), BASE, places, start, parked_in, TABLE, limits, ours)
    assert answer == expected
    assert np.array_equal(ours, theirs)
    return answer, ours


def test_a_row_is_the_message_for_its_own_topic() -> None:
    first = record()
    second = record(BASE + len(first), properties=GOOD + b"\x02KEYS\x01k", body=b"", queue_offset=9)
    data = first + second
    answer, rows = both(data, at_places((BASE, len(first), 7), (BASE + len(first), len(second), 9)))
    sizes = record_size(4, 6, len(GOOD)), record_size(0, 6, len(GOOD) + 7)
    assert answer == (2, sum(sizes), ParkedStop.ALL)
    row = rows[0].tolist()
    assert data[row[r.R_BODY_AT] :][: row[r.R_BODY_LEN]] == b"body"
    assert data[row[r.R_TOPIC_AT] :][: row[r.R_TOPIC_LEN]] == b"orders"
    assert data[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]] == GOOD
    assert data[row[r.R_HOST_AT] :][: row[r.R_HOST_LEN]] == pack_host(BORN)
    columns = (r.R_QUEUE, r.R_QUEUE_ID, r.R_FLAG, r.R_SYS_FLAG, r.R_BORN_TIME, r.R_RECONSUME, r.R_PREPARED)
    assert [row[column] for column in columns] == [0, 3, -9, 0, 1234, 4, 0]
    assert both(data, at_places((BASE, len(first), 7), (BASE + len(first), len(second), 9)), start=1)[0] == (
        2,
        sizes[1],
        ParkedStop.ALL,
    )


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x010003"}, ParkedStop.ALL),
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x012147483647"}, ParkedStop.ALL),
        ({"properties": b"REAL_TOPIC\x01" + b"t" * 127 + b"\x02REAL_QID\x010"}, ParkedStop.ALL),
        ({"properties": b"REAL_TOPIC\x01other\x02REAL_QID\x015\x02" + GOOD + b"\x02"}, ParkedStop.ALL),
        ({"properties": GOOD + b"\x02REAL_TOPIC\x01\x02XREAL_TOPIC\x01z"}, ParkedStop.ALL),
        ({"sys_flag": 0x103}, ParkedStop.ALL),
        ({"properties": b"REAL_TOPIC\x01other\x02REAL_QID\x015"}, ParkedStop.PLACE),
        ({"properties": b"REAL_TOPIC\x01or/ders\x02REAL_QID\x013"}, ParkedStop.PLACE),
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x012147483648"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x0100000000003"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x01-1"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x01"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01orders"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_QID\x013"}, ParkedStop.PLAIN),
        ({"properties": b""}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01" + HALF_TOPIC.encode() + b"\x02REAL_QID\x010"}, ParkedStop.PLAIN),
        ({"properties": b"REAL_TOPIC\x01" + b"t" * 128 + b"\x02REAL_QID\x010"}, ParkedStop.PLAIN),
        ({"topic": "SCHEDULE_TOPIC_XXXY"}, ParkedStop.PLAIN),
        ({"topic": "orders"}, ParkedStop.PLAIN),
        ({"queue_id": 3}, ParkedStop.PLAIN),
        ({"queue_offset": 8}, ParkedStop.PLAIN),
        ({"sys_flag": 4}, ParkedStop.PLAIN),
        ({"born_timestamp": BORN_NOW}, ParkedStop.PLAIN),
        ({"store_host": Host("10.0.0.2", 10912)}, ParkedStop.PLAIN),
        ({"store_host": Host("2001:db8::1", 10911)}, ParkedStop.PLAIN),
        ({"born_host": Host("2001:db8::1", 10911)}, ParkedStop.PLAIN),
        ({"physical_offset": BASE + 1}, ParkedStop.PLAIN),
    ],
    ids=str,
)
def test_where_it_stops(changes: dict[str, Any], stop: ParkedStop) -> None:
    first = record()
    second = record(BASE + len(first), **changes)
    places = at_places((BASE, len(first), 7), (BASE + len(first), len(second), 7))
    answer, _ = both(first + second, places)
    assert (answer.stopped_at, answer.stop) == (2 if stop is ParkedStop.ALL else 1, stop)


def test_limits_count_in_bytes_of_the_record_to_be() -> None:
    data = record()
    written = record_size(4, 6, len(GOOD))
    places = at_places((BASE, len(data), 7))
    assert both(data, places, limits=RowLimits(4, written, 8))[0] == (1, written, ParkedStop.ALL)
    assert both(data, places, limits=RowLimits(3, written, 8))[0].stop is ParkedStop.PLAIN
    assert both(data, places, limits=RowLimits(4, written - 1, 8))[0].stop is ParkedStop.PLAIN


def test_a_store_with_an_ipv6_address_has_no_ordinary_records() -> None:
    data = record(store_host=Host("2001:db8::1", 10911))
    own = PARKED_IN._replace(store_host=pack_host(Host("2001:db8::1", 10911)))
    assert both(data, at_places((BASE, len(data), 7)), parked_in=own)[0].stop is ParkedStop.PLAIN


def test_any_changed_byte() -> None:
    data = record()
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        both(changed, at_places((BASE, len(data), 7)))


def test_places_that_cannot_be() -> None:
    data = record()
    size = len(data)
    for place, stop in (
        ((BASE, 0, 7), ParkedStop.PLAIN),
        ((BASE, -1, 7), ParkedStop.PLAIN),
        ((-1, size, 7), ParkedStop.PLAIN),
        ((BASE, size - 1, 7), ParkedStop.PLAIN),
        ((BASE + 1, size - 1, 7), ParkedStop.PLAIN),
        ((BASE, size + 1, 7), ParkedStop.ELSEWHERE),
        ((BASE - 1, size, 7), ParkedStop.ELSEWHERE),
        ((1 << 62, size, 7), ParkedStop.ELSEWHERE),
        ((BASE, (1 << 31) - 1, 7), ParkedStop.ELSEWHERE),
    ):
        assert both(data, at_places(place))[0] == (0, 0, stop), place


NAMED = st.sampled_from([b"REAL_TOPIC", b"REAL_QID", b"REAL_TOPI", b"REAL_QIDS", b"", b"TAGS"])
TEXTS = st.one_of(
    st.sampled_from([b"orders", b"3", b"", b"2147483647", b"2147483648", b"03", HALF_TOPIC.encode(), b"t" * 127]),
    st.binary(max_size=12),
)
PAIRS = st.lists(st.tuples(NAMED, TEXTS).map(b"\x01".join), max_size=6).map(b"\x02".join)


@settings(max_examples=300, deadline=None)
@given(PAIRS, st.booleans())
def test_any_properties(pairs: bytes, also_good: bool) -> None:
    data = record(properties=GOOD + b"\x02" + pairs if also_good else pairs)
    both(data, at_places((BASE, len(data), 7)))


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(logs(), hostile_logs(), impostors()),
    st.lists(st.tuples(st.one_of(st.integers(-400, 400).map(BASE.__add__), I64), st.integers(-1, 600)), max_size=4),
    st.data(),
)
def test_any_bytes_any_places(data: bytes, more: list[tuple[int, int]], draw: st.DataObject) -> None:
    rows = new_rows(8)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, NO_DELAYS, False, False)
    known = [(int(row[C_PHYSICAL]), int(row[C_SIZE]), int(row[C_QUEUE_OFFSET])) for row in rows[:count]]
    places = draw.draw(st.permutations([*known, *((at, size, 7) for at, size in more)]))
    both(data, at_places(*places), start=draw.draw(st.integers(0, len(places))))
