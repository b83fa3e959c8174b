"""Stored bytes by queue entries: kernel == twin, on good, damaged and hostile bytes and entries."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from embermq.columns.compiled.stored import gather_stored
from embermq.columns.plain import stored as twin
from embermq.columns.plain.scan import scan_rows
from embermq.columns.plain.stored import (
    G_ANY_PLACE,
    G_BYTES,
    G_BYTES_OLD,
    G_BYTES_RECENT,
    G_COUNT,
    G_COUNT_OLD,
    G_COUNT_RECENT,
    G_LAST,
    G_LOG_END,
    G_NEXT,
    G_QUEUE_ID,
    G_QUEUE_OFFSET,
    G_RECENT_FROM,
    N_GATHER_NUMBERS,
    N_PLACE_COLUMNS,
    GatherStop,
)
from embermq.columns.rows import C_PHYSICAL, C_SIZE, RecordColumns, new_rows
from embermq.format.queue_entry import ENTRY
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I32, I64, hostile_logs, impostors, logs
from tests.support.records import NO_DELAYS, LogOfRecords

DATA, ENTRIES, OUT = GuardedMemory(1 << 16), GuardedMemory(1 << 12), GuardedMemory(1 << 16)
ALL = np.empty(0, np.uint8)
FAR = 1 << 40


def asked(**numbers: int) -> NDArray[np.int64]:
    made = np.zeros(N_GATHER_NUMBERS, np.int64)
    made[[G_COUNT_RECENT, G_BYTES_RECENT, G_COUNT_OLD, G_BYTES_OLD, G_LOG_END]] = FAR
    for name, value in numbers.items():
        made[getattr(twin, f"G_{name.upper()}")] = value
    return made


def entries_of(places: list[tuple[int, int]]) -> bytes:
    return b"".join(ENTRY.pack(place, size, 0) for place, size in places)


def both(
    data: bytes,
    entries: bytes,
    numbers: NDArray[np.int64],
    *,
    may_match: NDArray[np.uint8] = ALL,
    topic: bytes = b"orders",
    room: int = 1 << 14,
    places_max: int = 0,
    base: int = BASE,
) -> tuple[GatherStop, NDArray[np.int64], bytes, Any]:
    """What kernel and twin agree on."""
    answers = []
    for gather, out in ((twin.gather_stored, np.zeros(room, np.uint8)), (gather_stored, OUT.hold(bytes(room)))):
        walk = numbers.copy()
        places = np.zeros((places_max, N_PLACE_COLUMNS), np.int64)
        held = (DATA.hold(data), ENTRIES.hold(entries)) if gather is gather_stored else (data, entries)
        stop = gather(held[0], base, held[1], may_match, topic, walk, out, places)
        answers.append((stop, walk.tolist(), out[: walk[G_BYTES]].tobytes(), places[: walk[G_COUNT]].tolist()))
    assert answers[0] == answers[1]
    stop, walk_list, out_bytes, where = answers[1]
    return stop, np.array(walk_list), out_bytes, where


@pytest.fixture(scope="module")
def orders() -> RecordColumns:
    made = LogOfRecords(BASE)
    for n in range(9):
        made.append("orders", 3, 20 + n, tags="paid", body=b"x" * n * 7)
    return made.columns()


def parts_of(records: RecordColumns) -> tuple[bytes, list[tuple[int, int]], list[bytes]]:
    places = [(int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in records.rows]
    data = records.data.tobytes()
    return data, places, [data[at - BASE : at - BASE + size] for at, size in places]


def test_records_come_as_they_are_stored(orders: RecordColumns) -> None:
    data, places, stored = parts_of(orders)
    stop, walk, out, where = both(data, entries_of(places), asked(queue_id=3, queue_offset=20), places_max=9)
    assert (stop, out) == (GatherStop.END, b"".join(stored))
    assert walk[[G_NEXT, G_COUNT, G_BYTES, G_LAST]].tolist() == [9, 9, len(out), places[-1][0]]
    for start, size, at, length, tag_at, tag_len in where:
        assert out[tag_at : tag_at + tag_len] == b"paid"
        assert out[start : start + size] in stored
        assert out[at : at + length] == b"TAGS\x01paid"
        assert at + length == start + size


def test_entries_that_cannot_match_are_passed_over(orders: RecordColumns) -> None:
    data, places, stored = parts_of(orders)
    every_other = np.array([1, 0] * 4 + [1], np.uint8)
    damaged = bytearray(data)
    damaged[places[1][0] - BASE + 90] ^= 1  # Nothing is read of what cannot match.
    numbers = asked(queue_id=3, queue_offset=20)
    stop, walk, out, _ = both(bytes(damaged), entries_of(places), numbers, may_match=every_other)
    assert (stop, out, walk[G_NEXT]) == (GatherStop.END, b"".join(stored[::2]), 9)


def test_limits(orders: RecordColumns) -> None:
    data, places, stored = parts_of(orders)
    entries = entries_of(places)
    place = {"queue_id": 3, "queue_offset": 20}
    recent_from = places[4][0]
    for limits, expected in (
        ({"count_recent": 2}, 2),
        ({"count_recent": 0}, 1),
        ({"bytes_recent": 1}, 1),
        ({"bytes_recent": len(b"".join(stored[:3]))}, 3),
        ({"bytes_recent": len(b"".join(stored[:3])) - 1}, 2),
        ({"recent_from": FAR, "count_old": 3}, 3),
        ({"recent_from": FAR, "bytes_old": 1}, 1),
        ({"recent_from": recent_from, "count_old": 3}, 3),
        ({"recent_from": recent_from, "count_old": 5, "count_recent": 4}, 4),
    ):
        stop, walk, out, _ = both(data, entries, asked(**place, **limits))
        assert (stop, walk[G_NEXT], walk[G_COUNT], out) == (
            GatherStop.FULL,
            expected,
            expected,
            b"".join(stored[:expected]),
        )
        assert walk[G_LAST] == places[expected][0]


def test_a_read_goes_on_where_it_stopped(orders: RecordColumns) -> None:
    data, places, stored = parts_of(orders)
    entries = entries_of(places)
    numbers = asked(queue_id=3, queue_offset=20)
    middle = places[5][0]
    stop, walk, _, _ = both(data[: middle - BASE], entries, numbers)
    assert (stop, walk[G_NEXT]) == (GatherStop.ELSEWHERE, 5)
    out = np.zeros(1 << 14, np.uint8)
    none = np.empty((0, N_PLACE_COLUMNS), np.int64)
    gather_stored(data[: middle - BASE], BASE, entries, ALL, b"orders", numbers, out, none)
    assert gather_stored(data[middle - BASE :], middle, entries, ALL, b"orders", numbers, out, none) is GatherStop.END
    assert out[: numbers[G_BYTES]].tobytes() == b"".join(stored)


def test_no_room(orders: RecordColumns) -> None:
    data, places, stored = parts_of(orders)
    numbers = asked(queue_id=3, queue_offset=20)
    stop, walk, out, _ = both(data, entries_of(places), numbers, room=len(stored[0]) + 5)
    assert (stop, walk[G_NEXT], out) == (GatherStop.NO_ROOM, 1, stored[0])
    stop, walk, _, _ = both(data, entries_of(places), numbers, places_max=4)
    assert (stop, walk[G_NEXT]) == (GatherStop.NO_PLACES, 4)


def test_what_is_not_ordinary_ends_a_call(orders: RecordColumns) -> None:
    data, places, _ = parts_of(orders)
    first, size = places[0]
    for wrong in (
        {"queue_id": 2, "queue_offset": 20},
        {"queue_id": 3, "queue_offset": 21},
        {"queue_id": 3, "queue_offset": 20, "log_end": first + size - 1},
    ):
        assert both(data, entries_of(places), asked(**wrong))[0] is GatherStop.ODD
    right = asked(queue_id=3, queue_offset=20)
    assert both(data, entries_of(places), right, topic=b"order")[0] is GatherStop.ODD
    assert both(data, entries_of(places), right, topic=b"orderz")[0] is GatherStop.ODD
    for place in ((first, 0), (first, -1), (-1, size), (first + 1, size), (first, size - 1), (first, size + 1)):
        assert both(data, entries_of([place]), right)[0] is GatherStop.ODD, place
    assert both(data, entries_of([(first, (1 << 31) - 1)]), right)[0] is GatherStop.ELSEWHERE
    elsewhere = both(data, entries_of(places), asked(any_place=1), topic=b"other")
    assert elsewhere[1][G_COUNT] == 9


def test_prepared_messages_have_no_place_in_a_queue() -> None:
    made = LogOfRecords(BASE)
    made.append("orders", 0, 0, sys_flag=4)
    data, places, _ = parts_of(made.columns())
    assert both(data, entries_of(places), asked())[0] is GatherStop.ODD


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(logs(), hostile_logs(), impostors()),
    st.lists(
        st.tuples(st.one_of(st.integers(-400, 400).map(BASE.__add__), I64), st.one_of(st.integers(0, 600), I32)),
        max_size=5,
    ),
    st.data(),
)
def test_any_bytes_any_entries(data: bytes, more: list[tuple[int, int]], draw: st.DataObject) -> None:
    rows = new_rows(8)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, NO_DELAYS, False, False)
    known = [(int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in rows[:count]]
    wanted = draw.draw(st.permutations([*known, *more]))
    numbers = asked(any_place=draw.draw(st.integers(0, 1)))
    if count:
        numbers[[G_QUEUE_ID, G_QUEUE_OFFSET]] = rows[0, 2:4]
    for name in (G_COUNT_RECENT, G_BYTES_RECENT, G_COUNT_OLD, G_BYTES_OLD):
        numbers[name] = draw.draw(st.sampled_from([FAR, 0, 1, 2, 300]))
    numbers[G_RECENT_FROM] = draw.draw(st.sampled_from([0, BASE, BASE + 200, FAR]))
    numbers[G_LOG_END] = draw.draw(st.sampled_from([FAR, BASE + len(data), BASE]))
    topic = RecordColumns(data, BASE, rows[:count]).topic_bytes(0) if count else b"T"
    mask = np.array(draw.draw(st.lists(st.integers(0, 2), min_size=len(wanted), max_size=len(wanted))), np.uint8)
    may_match = mask if draw.draw(st.booleans()) else ALL
    both(
        data,
        entries_of(wanted),
        numbers,
        may_match=may_match,
        topic=topic,
        room=draw.draw(st.sampled_from([0, 150, 4000])),
        places_max=draw.draw(st.sampled_from([0, 1, 9])),
    )
    assert numbers[G_ANY_PLACE] in (0, 1)
