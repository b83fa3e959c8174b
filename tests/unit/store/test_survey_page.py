"""The state page says whether SYNC_FLUSH holds; pages from before it did are believed all the same."""

from pathlib import Path

import numpy as np
import pytest

from embermq import Message
from embermq.files.files import RealFiles
from embermq.settings import FlushDisk
from embermq.store.state_page import NAME, PAGE_BYTES, load_state_page
from embermq.store.survey import Survey
from embermq.testing.builder import StoreBuilder

SYNC_FLUSH_AT, INVERSE_BYTES = 80, 128


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def sync_flush_of(root: Path) -> int | None:
    page = load_state_page(RealFiles(), root, writable=False)
    return None if page is None else page.sync_flush


def numbers_of(root: Path) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.memmap(root / NAME, "<i8", "r+", shape=(PAGE_BYTES // 8,))


def test_the_page_follows_the_setting(builder: StoreBuilder) -> None:
    for flush, expected in ((FlushDisk.SYNC, 1), (FlushDisk.ASYNC, 0), (FlushDisk.SYNC, 1)):
        with builder.changed(flush=flush).open() as store:
            store.append(Message("t", b"x"))
            assert sync_flush_of(builder.root) == expected
        assert sync_flush_of(builder.root) == expected


def test_a_page_from_before_is_believed(builder: StoreBuilder) -> None:
    """Zeros where later versions have numbers, and where they have their inverses."""
    with builder.changed(flush=FlushDisk.SYNC).open() as store:
        receipt = store.append(Message("t", b"x"))
    numbers = numbers_of(builder.root)
    for at in range(SYNC_FLUSH_AT, INVERSE_BYTES, 8):
        numbers[at // 8] = numbers[(at + INVERSE_BYTES) // 8] = 0
    numbers.flush()  # type: ignore[attr-defined]
    page = load_state_page(RealFiles(), builder.root, writable=False)
    assert page is not None
    assert (page.sync_flush, page.flushed) == (0, receipt.size)
    assert Survey.open(builder.root).log_end == receipt.size
    with builder.open() as store:
        assert store.recovery.reason == "closed cleanly"
        assert sync_flush_of(builder.root) == 0


@pytest.mark.parametrize("bit", [0, 1, 40, 63])
@pytest.mark.parametrize("side", [0, INVERSE_BYTES])
def test_a_bit_that_turned_over_is_noticed(builder: StoreBuilder, bit: int, side: int) -> None:
    with builder.changed(flush=FlushDisk.SYNC).open() as store:
        store.append(Message("t", b"x"))
    numbers = numbers_of(builder.root).view("<u8")
    numbers[(SYNC_FLUSH_AT + side) // 8] ^= np.uint64(1 << bit)
    assert sync_flush_of(builder.root) is None
