"""The bits of done entries against a set of numbers."""

import random

import numpy as np
import pytest

from embermq.store.services.done_bits import DoneBits


def offsets(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def test_low_is_the_first_that_is_not_done() -> None:
    bits = DoneBits()
    assert bits.low == 0
    bits.mark(offsets(1, 2, 9))
    assert bits.low == 0
    bits.mark(offsets(0))
    assert bits.low == 3
    bits.mark(offsets(*range(3, 9)))
    assert bits.low == 10
    assert bits.waiting(8, 4).tolist() == [False, False, True, True]


def test_a_start_in_the_middle_of_a_byte() -> None:
    bits = DoneBits(1003)
    assert bits.low == 1003
    assert bits.waiting(1000, 5).tolist() == [False, False, False, True, True]
    bits.mark(offsets(1004))
    assert bits.low == 1003
    bits.mark(offsets(1003))
    assert bits.low == 1005


def test_marking_what_is_below_changes_nothing() -> None:
    bits = DoneBits(50)
    bits.mark(offsets(3, 49))
    assert bits.low == 50


def test_raised_over_a_hole() -> None:
    bits = DoneBits()
    bits.mark(offsets(20, 21))
    bits.raise_to(20)
    assert bits.low == 22
    bits.raise_to(5)
    assert bits.low == 22


@pytest.mark.parametrize("end", [0, 1, 7, 8, 9, 15, 16, 40])
def test_cut_to_a_shorter_queue(end: int) -> None:
    bits = DoneBits()
    bits.mark(offsets(*range(12), 14, 30))
    bits.cut_to(end)
    expected = {n for n in (*range(12), 14, 30) if n < end}
    assert {n for n, waits in enumerate(bits.waiting(0, 64).tolist()) if not waits} == expected
    bits.mark(offsets(*range(64)))
    assert bits.low == 64


def test_cut_below_what_is_remembered() -> None:
    bits = DoneBits(100_000)
    bits.mark(offsets(100_001))
    bits.cut_to(53)
    assert bits.low == 53
    assert bits.waiting(53, 100_000).all()


@pytest.mark.parametrize("seed", range(5))
def test_like_a_set_of_numbers(seed: int) -> None:
    chance = random.Random(seed)
    bits, done, low = DoneBits(), set[int](), 0
    for _ in range(200):
        some = [low + chance.randrange(60_000 if chance.random() < 0.1 else 300) for _ in range(chance.randrange(80))]
        bits.mark(offsets(*some))
        done.update(some)
        if chance.random() < 0.05:
            raised = low + chance.randrange(40_000)
            bits.raise_to(raised)
            done.update(range(low, raised))
        while low in done:
            low += 1
        assert bits.low == low
        if chance.random() < 0.2:
            bits = DoneBits.decode(*bits.encode())
        start = max(0, low - 50)
        assert bits.waiting(start, 2000).tolist() == [n not in done and n >= low for n in range(start, start + 2000)]


def test_a_million_waiting_entries_are_small() -> None:
    bits = DoneBits()
    bits.mark(offsets(1_000_000, 3))
    _, text = bits.encode()
    assert len(text) < 1000
    again = DoneBits.decode(*bits.encode())
    assert again.waiting(0, 1_000_002).sum() == 1_000_000


@pytest.mark.parametrize(("base", "text"), [(3, ""), (-8, ""), (0, "no base64!"), (0, "AAAA")])
def test_what_is_no_encoding_is_refused(base: int, text: str) -> None:
    with pytest.raises(ValueError):
        DoneBits.decode(base, text)
