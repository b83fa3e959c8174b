"""Hashes of texts: kernel == twin, up to the last byte of memory and no further."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.text_hashes import hash_column
from embermq.columns.plain.text_hashes import hash_column as twin
from tests.columns.guarded import GuardedMemory

MEMORY = GuardedMemory(1 << 12)
AT, LENGTH, COLUMNS = 2, 4, 6


def rows_of(places: list[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rows = np.full((len(places), COLUMNS), 77, np.int64)
    for row, place in enumerate(places):
        rows[row, [AT, LENGTH]] = place
    return rows


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_kernel_and_twin_agree(data: bytes, draw: st.DataObject) -> None:
    ends = st.integers(0, len(data))
    spans = draw.draw(st.lists(st.tuples(ends, ends).map(sorted), max_size=12))
    places = [(start, end - start) for start, end in spans] + [(-1, -1), (len(data), 0), (0, len(data))]
    rows = rows_of(places)
    found = hash_column(MEMORY.hold(data), rows, AT, LENGTH)
    assert found.dtype == np.uint64
    assert found.tolist() == twin(np.frombuffer(data, np.uint8), rows, AT, LENGTH).tolist()


@pytest.mark.parametrize("place", [(-1, 0), (-1, 3), (8, 1), (7, 2), (0, 9), (1 << 62, 1 << 62), (2, (1 << 63) - 1)])
def test_a_text_outside_the_data_is_our_own_mistake(place: tuple[int, int]) -> None:
    with pytest.raises(AssertionError, match="row 1: its text lies outside"):
        hash_column(MEMORY.hold(b"12345678"), rows_of([(0, 8), place]), AT, LENGTH)
