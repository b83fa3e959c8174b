"""Screening records by their properties: kernel == twin, on good, damaged and hostile bytes and entries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.screen import screen
from embermq.columns.plain import screen as twin
from embermq.columns.plain.scan import scan_rows
from embermq.columns.plain.screen import N_SPAN_COLUMNS, Needles
from embermq.columns.rows import C_PHYSICAL, C_QUEUE_ID, C_QUEUE_OFFSET, C_SIZE, new_rows
from embermq.format.queue_entry import ENTRY
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I32, I64, hostile_logs, impostors, logs
from tests.support.records import NO_DELAYS, LogOfRecords

DATA, ENTRIES = GuardedMemory(1 << 16), GuardedMemory(1 << 12)
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([b"TAGS\x01", b"KEYS\x01k1", b"\x02", b"a", b"UNIQ_KEY\x01", b"DELAY\x013"]),
        st.binary(min_size=1, max_size=14),
    ),
    max_size=4,
).map(tuple)


def both(
    data: bytes, entries: bytes, mask: list[int], first: int, queue: tuple[int, int], needles: tuple[bytes, ...]
) -> tuple[list[int], list[list[int]]]:
    """What kernel and twin agree on: the mask after it, and the spans."""
    answers = []
    for form in (twin.screen, screen):
        left = np.array(mask, np.uint8)
        spans = np.zeros((len(mask), N_SPAN_COLUMNS), np.int64)
        held = np.frombuffer(data, np.uint8), np.frombuffer(entries, np.uint8)
        if form is screen:
            held = DATA.hold(data), ENTRIES.hold(entries)
        count = form(held[0], BASE, held[1], left, first, queue, Needles.of(needles), spans)
        assert not spans[count:].any()
        answers.append((left.tolist(), spans[:count].tolist()))
    assert answers[0] == answers[1]
    return answers[1]


def orders(count: int = 9) -> tuple[bytes, bytes]:
    """A log of messages in queue 3 from offset 20 on, and its entries."""
    made = LogOfRecords(BASE)
    for n in range(count):
        made.append("orders", 3, 20 + n, tags="paid" if n % 3 else "sent", body=b"x" * n * 7)
    columns = made.columns()
    entries = b"".join(ENTRY.pack(int(row[C_PHYSICAL]), int(row[C_SIZE]), 0) for row in columns.rows)
    return columns.data.tobytes(), entries


def test_records_without_a_needle_are_passed_over() -> None:
    data, entries = orders()
    mask, spans = both(data, entries, [1] * 9, 0, (3, 20), (b"TAGS\x01sent",))
    assert mask == [1, 0, 0] * 3
    assert [row[0] for row in spans] == [0, 3, 6]
    for _, start, end in spans:
        assert data[start:end] == b"TAGS\x01sent"


def test_without_needles_all_are_left() -> None:
    data, entries = orders()
    mask, spans = both(data, entries, [1] * 9, 0, (3, 20), ())
    assert mask == [1] * 9
    assert len(spans) == 9


def test_one_needle_of_several_is_enough() -> None:
    data, entries = orders()
    assert both(data, entries, [1] * 9, 0, (3, 20), (b"nothing here", b"paid", b"S\x01sen"))[0] == [1] * 9


def test_only_what_is_asked_about() -> None:
    data, entries = orders()
    mask, spans = both(data, entries, [1, 1, 0, 1, 0, 1, 1, 1, 1], 2, (3, 20), (b"sent",))
    assert mask == [1, 1, 0, 1, 0, 0, 1, 0, 0]
    assert [row[0] for row in spans] == [3, 6]


@pytest.mark.parametrize("queue", [(4, 20), (3, 21)])
def test_another_queue_is_left_to_the_reader(queue: tuple[int, int]) -> None:
    data, entries = orders()
    assert both(data, entries, [1] * 9, 0, queue, (b"zzz",)) == ([1] * 9, [])


def test_records_outside_the_bytes_are_left_to_the_reader() -> None:
    data, entries = orders()
    mask, _ = both(data[: len(data) // 2], entries, [1] * 9, 0, (3, 20), (b"zzz",))
    assert 0 in mask
    assert mask[-1] == 1


@given(logs(), TEXTS, st.data())
@settings(max_examples=150, deadline=None)
def test_good_logs(data: bytes, needles: tuple[bytes, ...], draw: st.DataObject) -> None:
    check_any(data, needles, draw)


@given(hostile_logs(), TEXTS, st.data())
@settings(max_examples=150, deadline=None)
def test_hostile_logs(data: bytes, needles: tuple[bytes, ...], draw: st.DataObject) -> None:
    check_any(data, needles, draw)


@given(impostors(), TEXTS, st.data())
@settings(max_examples=60, deadline=None)
def test_impostors(data: bytes, needles: tuple[bytes, ...], draw: st.DataObject) -> None:
    check_any(data, needles, draw)


def check_any(data: bytes, needles: tuple[bytes, ...], draw: st.DataObject) -> None:
    """Entries of what a scan finds, and of anything else; the queue is that of one of the records."""
    rows = new_rows(8)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, NO_DELAYS, False, False)
    places = [(int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in rows[:count]]
    places += draw.draw(st.lists(st.tuples(st.one_of(I64, st.integers(BASE, BASE + 600)), I32), max_size=3))
    number = draw.draw(st.integers(0, max(count - 1, 0)))
    queue = (int(rows[number, C_QUEUE_ID]), int(rows[number, C_QUEUE_OFFSET]) - number) if count else (0, 0)
    if not -(1 << 62) < queue[1] < 1 << 62:
        queue = (queue[0], 0)
    mask = draw.draw(st.lists(st.integers(0, 1), min_size=len(places), max_size=len(places)))
    first = draw.draw(st.integers(0, len(places)))
    both(data, b"".join(ENTRY.pack(place, size, 0) for place, size in places), mask, first, queue, needles)


@pytest.mark.parametrize("needles", [(), (b"a",), (b"abc", b"0123456789"), (b"12345678",)])
def test_needles_are_kept(needles: tuple[bytes, ...]) -> None:
    assert Needles.of(needles).split() == list(needles)
