"""Records at known places: kernel == twin, on good, damaged and hostile bytes, at right and wrong places."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from embermq.columns.compiled.pick import pick
from embermq.columns.plain import pick as twin
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import C_PHYSICAL, C_SIZE, new_rows
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, hostile_logs, impostors, logs
from tests.support.records import LogOfRecords

MEMORY = GuardedMemory(1 << 16)
DELAYS = np.array([1000, 5000], dtype=np.int64)


def as_numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def places_of(data: bytes) -> list[tuple[int, int]]:
    rows = new_rows(8)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, DELAYS, False, False)
    return [(int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in rows[:count]]


def assert_same(data: bytes, wanted: list[tuple[int, int]]) -> list[int]:
    """What kernel and twin agree on, with sums compared."""
    places, sizes = as_numbers([place for place, _ in wanted]), as_numbers([size for _, size in wanted])
    found = as_numbers([])
    for check_crc in (False, True):
        ours, theirs = new_rows(len(wanted)), new_rows(len(wanted))
        found = pick(MEMORY.hold(data), BASE, places, sizes, ours, DELAYS, check_crc)
        plain = twin.pick(data, BASE, places, sizes, theirs, DELAYS, check_crc)
        assert found.tolist() == plain.tolist()
        assert np.array_equal(ours[: len(found)], theirs[: len(found)])
        assert ours[: len(found), C_PHYSICAL].tolist() == places[found].tolist()
    return found.tolist()  # type: ignore[no-any-return]


def test_every_other_record() -> None:
    made = LogOfRecords(BASE)
    for n in range(9):
        made.append("orders", 0, n, body=b"x" * n * 7)
    columns = made.columns()
    data = columns.data.tobytes()
    rows = [(int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in columns.rows]
    assert assert_same(data, rows[::2]) == [0, 1, 2, 3, 4]
    assert assert_same(data, rows[::-1]) == list(range(9))
    assert assert_same(data, [(place, twin.ANY_SIZE) for place, _ in rows]) == list(range(9))
    assert assert_same(data, []) == []


def test_places_and_sizes_that_are_wrong() -> None:
    made = LogOfRecords(BASE)
    made.append("orders", 0, 0)
    made.append("orders", 0, 1)
    columns = made.columns()
    (first, size), (second, _) = ((int(row[C_PHYSICAL]), int(row[C_SIZE])) for row in columns.rows)
    wrong = [
        (first + 1, size),
        (first, size - 1),
        (first, size + 1),
        (BASE - 1, size),
        (BASE + 1 << 20, size),
        (-(1 << 63), size),
        ((1 << 63) - 1, size),
        (first, 0),
        (first, -2),
        (first, 1 << 40),
        (second, size),
    ]
    assert assert_same(columns.data.tobytes(), wrong) == [10]


edges = st.integers(-400, 400)


@settings(max_examples=200, deadline=None)
@given(st.one_of(logs(), hostile_logs(), impostors()), st.lists(st.tuples(edges, edges), max_size=6))
def test_any_bytes_any_places(data: bytes, more: list[tuple[int, int]]) -> None:
    wanted = [*places_of(data), *((BASE + at, size) for at, size in more), *((BASE + at, -1) for at, _ in more)]
    assert_same(data, wanted)
