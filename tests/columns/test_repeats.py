"""Hashes that are there more than once: kernel == twin, for few and for many, spread evenly or not at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.repeats import repeated
from embermq.columns.plain.repeats import Pairs
from embermq.columns.plain.repeats import repeated as twin

U64 = st.integers(0, (1 << 64) - 1)
HASHES = st.one_of(st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1]), st.integers(0, 5), U64)


def pairs_of(hashes: "list[int] | np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Pairs:
    found = np.zeros((len(hashes), 2), np.int64)
    found[:, 0] = np.array(hashes, np.uint64).view(np.int64)
    found[:, 1] = np.arange(len(hashes))
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(HASHES, max_size=30), max_size=5))
def test_kernel_and_twin_agree(blocks: list[list[int]]) -> None:
    given_blocks = [pairs_of(block) for block in blocks]
    every = [value for block in blocks for value in block]
    expected = sorted({value for value in every if every.count(value) > 1})
    assert repeated(given_blocks).tolist() == twin(given_blocks).tolist() == expected


@pytest.mark.parametrize("step", [1, 1 << 20, 1 << 44, 0x9E37_79B9_7F4A_7C15])
@pytest.mark.parametrize("count", [1_000, 50_000, 300_000])
def test_many(step: int, count: int) -> None:
    """However their bits are spread; each thousandth comes again, in another block, and one many times."""
    hashes = np.arange(count, dtype=np.uint64) * np.uint64(step)
    blocks = [pairs_of(hashes[at : at + 40_000]) for at in range(0, count, 40_000)]
    blocks += [pairs_of(hashes[::1000]), pairs_of(np.full(500, hashes[7]))]
    found = repeated(blocks)
    assert found.tolist() == twin(blocks).tolist() == sorted({*hashes[::1000].tolist(), int(hashes[7])})
