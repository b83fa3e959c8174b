"""Even parts of a range."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from embermq.inspect import even_edges, record_starts, slice_bytes, slice_count

PLACES = st.integers(0, 10_000)


@given(PLACES, PLACES, st.integers(1, 50))
def test_edges_cover_the_range_evenly(start: int, length: int, count: int) -> None:
    edges = even_edges(start, start + length, count)
    assert (edges[0], edges[-1], len(edges)) == (start, start + length, count + 1)
    parts = [high - low for low, high in pairwise(edges)]
    assert max(parts) - min(parts) <= 1


@given(PLACES, st.integers(1, 64), st.integers(1, 500), st.integers(0, 500))
def test_counts_keep_workers_busy_within_the_bounds(length: int, workers: int, least: int, more: int) -> None:
    size, count = slice_bytes(length, workers, least, least + more), slice_count(length, workers, least, least + more)
    assert least <= size <= least + more
    assert (count - 1) * size < max(length, 1) <= count * size or length == 0
    assert count <= workers or size == least + more


@given(PLACES, PLACES, st.integers(1, 50), st.integers(1, 300))
def test_parts_of_a_log_begin_at_records(start: int, length: int, count: int, record: int) -> None:
    """Records of one size, from 0 on; none begins at or after the end."""
    end = start + length
    starts = record_starts(start, end, count, lambda at: -(-at // record) * record)
    assert starts[0] == start
    assert all(low < high for low, high in pairwise(starts))
    assert all(at % record == 0 and at < end for at in starts[1:])
    assert len(starts) <= count
