"""The state page says whether SYNC_FLUSH holds; pages from before it did are believed all the same."""

from pathlib import Path

import numpy as np
import pytest

from embermq import Message
from embermq.files import DirectoryEntry, RealFiles
from embermq.inspect.snapshot import Survey
from embermq.settings import FlushDisk
from embermq.store.layout.state_page import PAGE_BYTES, STATE_FILE, StatePage, load_state_page
from embermq.testing.builder import StoreBuilder

SYNC_FLUSH_AT, INVERSE_BYTES = 80, 128


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def sync_flush_of(root: Path) -> int | None:
    page = load_state_page(RealFiles(), root, writable=False)
    return None if page is None else page.sync_flush


def numbers_of(root: Path) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.memmap(root / STATE_FILE, "<i8", "r+", shape=(PAGE_BYTES // 8,))


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


def test_a_page_between_two_stores_is_waited_for(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is held up between a number and its inverse must not make anything visible."""
    with builder.changed(flush=FlushDisk.SYNC).open() as store:
        durable = store.append(Message("t", b"x"))
        page = load_state_page(RealFiles(), builder.root, writable=True)
        assert page is not None
        store.append(Message("t", b"y"))
        page.flushed = durable.size
        looks = iter(range(1000))
        whole = StatePage.is_whole
        monkeypatch.setattr(StatePage, "is_whole", lambda page: next(looks, 1000) >= 350 and whole(page))
        assert Survey.open(builder.root).log_end == durable.size
        assert next(looks) >= 350


def test_a_damaged_page_is_waited_for_once(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.store.layout.state_view._PATIENCE_SECONDS", 0.05)
    with builder.open() as store:
        receipt = store.append(Message("t", b"x"))
    numbers_of(builder.root)[2] ^= 1
    naps: list[float] = []
    monkeypatch.setattr("embermq.store.layout.state_view.sleep", lambda seconds: naps.append(seconds))
    survey = Survey.open(builder.root)
    assert survey.state_page is None
    assert survey.log_end == receipt.size
    assert naps
    naps.clear()
    survey.refresh()
    assert not naps


def test_files_that_come_while_one_looks(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store rolls between the look at its page and the look at its files: what the page said holds."""
    with builder.changed(flush=FlushDisk.SYNC, segment_bytes=8192).open() as store:
        store.append(Message("t", b"x"))
        end = store.max_physical
        listed = RealFiles.list_directory

        def write_and_list(files: RealFiles, path: Path) -> list[DirectoryEntry]:
            if path.name == "commitlog":
                store.append_many([Message("t", bytes(500)) for _ in range(60)])
            return listed(files, path)

        monkeypatch.setattr(RealFiles, "list_directory", write_and_list)
        survey = Survey.open(builder.root)
        assert survey.state_page is not None
        assert survey.log_end == end
        monkeypatch.setattr(RealFiles, "list_directory", listed)
        survey.refresh()
        assert survey.log_end == store.max_physical > 3 * 8192
