"""Zeroed and overwritten pages of queue files: no message below or behind them becomes unreachable."""

import random
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.store.log import tail_mark
from embermq.testing.builder import StoreBuilder
from tests.unit.store.test_index_checksums import kill

TOPIC = "orders"
PER_FILE = 500
COUNT = 1200


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreBuilder:
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 4096)  # Otherwise a start derives all entries of so small a log again.
    # Kernels walk so small a log in one step, and the mark would stay at its beginning.
    return StoreBuilder(tmp_path / "store", queue_file_bytes=20 * PER_FILE, kernels="never")


def fill(builder: StoreBuilder, *, killed: bool) -> list[Path]:
    """A queue of three files, the last of them not full; closed or killed."""
    store = builder.open()
    store.append_many([Message(TOPIC, b"%d" % n, tags="ab"[n % 2]) for n in range(COUNT)])
    store.wait_for_dispatch()
    if killed:
        store.engine.services.housekeeping.make_durable()
        kill(store)
    else:
        store.close()
    return sorted((builder.root / "consumequeue" / TOPIC / "0").iterdir())


def hurt(path: Path, at: int, count: int, damage: str) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(count) if damage == "zeros" else random.Random(at).randbytes(count)
    path.write_bytes(bytes(data))


def bodies(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    at = store.min_offset(TOPIC, 0)
    while at < store.max_offset(TOPIC, 0):
        outcome = store.fetch(TOPIC, 0, at, 64)
        found += [one.body for one in outcome.messages]
        at = outcome.next_offset
    return found


@pytest.mark.parametrize("damage", ["zeros", "scribble"])
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "read-only"])
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_the_first_offset_stays(builder: StoreBuilder, damage: str, read_only: bool, killed: bool) -> None:
    """It is looked for by bisection, and damaged entries are passed over in it."""
    first, *_ = fill(builder, killed=killed)
    hurt(first, 4096, 4096, damage)
    with builder.open(read_only=read_only) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, COUNT)


@pytest.mark.parametrize("damage", ["zeros", "scribble"])
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "read-only"])
def test_a_gap_in_the_last_file_of_a_killed_store(builder: StoreBuilder, damage: str, read_only: bool) -> None:
    *_, last = fill(builder, killed=True)
    hurt(last, 20 * 20, 20 * 60, damage)
    with builder.open(read_only=read_only) as store:
        assert any("has a gap at" in finding for finding in store.recovery.findings)
        assert bodies(store) == [b"%d" % n for n in range(COUNT)]


def test_the_scrub_heals_what_a_start_does_not_read(builder: StoreBuilder) -> None:
    first, second, _ = fill(builder, killed=False)
    before = first.read_bytes(), second.read_bytes()
    hurt(first, 4096, 4096, "zeros")
    hurt(second, 2048, 4096, "scribble")
    with builder.open() as store:
        assert store.scrub().healed > 0
        assert bodies(store) == [b"%d" % n for n in range(COUNT)]
    assert (first.read_bytes(), second.read_bytes()) == before


def by_tag(store: MessageStore, tag: str) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < COUNT:
        outcome = store.fetch(TOPIC, 0, at, 64, tag)
        found += [one.body for one in outcome.messages]
        at = outcome.next_offset
    return found


def test_a_full_file_is_compared_with_its_checksum_after_opening(builder: StoreBuilder) -> None:
    """One tag code is wrong, which no fetch can see."""
    first, *_ = fill(builder, killed=False)
    before = first.read_bytes()
    hurt(first, 20 * 8 + 12, 8, "scribble")
    with builder.open() as store:
        assert by_tag(store, "a") != [b"%d" % n for n in range(0, COUNT, 2)]
        store.engine.services.scrub._background_step()
        state = store.engine.services.scrub.state
        assert (state.findings, state.healed) == (1, 1)
        assert by_tag(store, "a") == [b"%d" % n for n in range(0, COUNT, 2)]
    assert first.read_bytes() == before


def test_checksums_follow_topics_that_are_deleted_and_files_that_become_full(builder: StoreBuilder) -> None:
    fill(builder, killed=False)
    with builder.open() as store:
        store.append_many([Message(TOPIC, b"x") for _ in range(PER_FILE)])
        store.engine.services.scrub._background_step()
        assert store.engine.services.scrub.state.findings == 0
        store.delete_topic(TOPIC)
        store.append_many([Message(TOPIC, b"y") for _ in range(2 * PER_FILE + 10)])
    with builder.open() as store:
        store.engine.services.scrub._background_step()
        assert store.engine.services.scrub.state.findings == 0
        assert len(store.engine.services.scrub._checksums._kept) == 2  # type: ignore[union-attr]


def test_checksums_of_files_that_an_earlier_version_filled(builder: StoreBuilder) -> None:
    fill(builder, killed=False)
    (builder.root / "embermq.queues.json").unlink()
    with builder.open() as store:
        assert store.engine.services.scrub._checksums is not None
        store.engine.services.scrub.settle()
        assert store.engine.services.scrub._checksums._kept == {}
        assert store.scrub().findings == []
        assert len(store.engine.services.scrub._checksums._kept) == 2
