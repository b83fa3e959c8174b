"""Queues and index derived from outside are, byte for byte, those the live dispatcher writes."""

import os
import random
import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StoreError, StoreLocked, StorePathInvalid
from embermq.repair.rebuild.follower import LOCK_NAME, NAME, DerivedFollower
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered

COUNT = 200


def derived(root: Path) -> dict[str, bytes]:
    """Queue files by name, index files by their order: their names are the times they were made at."""
    queues = root / "consumequeue"
    found = {str(path.relative_to(queues)): path.read_bytes() for path in sorted(queues.rglob("*")) if path.is_file()}
    for number, path in enumerate(sorted((root / "index").iterdir())):
        found[f"index {number}"] = path.read_bytes()
    return found


def builder_at(path: Path) -> StoreBuilder:
    return StoreBuilder(path, clock=ManualClock(), **numbered.TINY)


def log_only(builder: StoreBuilder) -> MessageStore:
    return MessageStore.open(builder.root, builder.settings, clock=builder.clock, dispatch="none")


@pytest.fixture
def live(tmp_path: Path) -> dict[str, bytes]:
    """What the live dispatcher makes of the numbered messages."""
    builder = builder_at(tmp_path / "live")
    with builder.open() as store:
        numbered.append_until(store, 0, COUNT)
    return derived(builder.root)


@pytest.fixture
def bare(tmp_path: Path) -> StoreBuilder:
    """The same log, and nothing derived."""
    builder = builder_at(tmp_path / "bare")
    with log_only(builder) as store:
        numbered.append_until(store, 0, COUNT)
    assert not (builder.root / "index").exists()
    return builder


def follow(builder: StoreBuilder) -> DerivedFollower:
    return DerivedFollower.open(builder.root, builder.settings, clock=builder.clock)


def test_in_one_go(live: dict[str, bytes], bare: StoreBuilder) -> None:
    with follow(bare) as follower:
        progress = follower.advance()
        assert progress.start == 0
        assert progress.end == follower.log_end
        assert progress.records >= COUNT
        assert progress.damages == []
        follower.make_durable()
    assert derived(bare.root) == live


def test_delay_levels_of_the_settings(tmp_path: Path) -> None:
    """A parked message's entry says when it is due: by the levels of this store, not by the usual ones."""
    how = numbered.TINY | {"delay_levels": "7s 9s"}
    live, bare = (StoreBuilder(tmp_path / name, clock=ManualClock(), **how) for name in ("live", "bare"))
    for store in (live.open(), log_only(bare)):
        with store:
            for level in (1, 2, 3):
                store.append(Message("Later", b"x", keys=["k"], delay_level=level))
    with follow(bare) as follower:
        follower.advance()
        follower.make_durable()
    assert derived(bare.root) == derived(live.root)
    entries = [derived(bare.root)[f"SCHEDULE_TOPIC_XXXX/{queue}/{0:020}"] for queue in (0, 1)]
    due = [int.from_bytes(entry[12:20], "big") for entry in entries]
    assert due[1] - due[0] == 2_000


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_stopped_anywhere_and_taken_up_again(live: dict[str, bytes], bare: StoreBuilder, seed: int) -> None:
    """Each follower goes some way and is dropped, before or after it has said how far it is."""
    chance = random.Random(seed)
    with bare.open(read_only=True) as reader:
        ends = [message.physical_offset + message.size for message in reader.scan()]
    position = 0
    while position < ends[-1]:
        follower = follow(bare)
        for _ in range(chance.randint(1, 3)):
            ahead = [end for end in ends if end > follower.position] or ends[-1:]
            follower.advance(chance.choice(ahead[:40]))
            if chance.random() < 0.5:
                follower.make_durable()
                position = follower.position
        if chance.random() < 0.5:
            follower.close()
        else:
            follower._lock.release()  # As a killed process leaves it: nothing of what was pending is written.
    with follow(bare) as follower:
        follower.advance()
        follower.make_durable()
    assert derived(bare.root) == live


def test_one_survey_for_one_follower_after_the_other(live: dict[str, bytes], tmp_path: Path) -> None:
    """The log grows between them; then another one lies there."""
    builder = builder_at(tmp_path / "written")
    with follow_first(builder) as first:
        survey = first.survey
    number = 0
    while number < COUNT:
        with log_only(builder) as store:
            number = numbered.append_until(store, number, min(number + 16, COUNT))
        with DerivedFollower.open(builder.root, builder.settings, clock=builder.clock, survey=survey) as follower:
            follower.advance()
            follower.make_durable()
    assert derived(builder.root) == live
    shutil.rmtree(builder.root)
    with log_only(builder_at(tmp_path / "written")) as store:
        store.append(Message("Other", b"x", keys=["k"]))
    with DerivedFollower.open(builder.root, builder.settings, clock=builder.clock, survey=survey) as follower:
        assert follower.advance().records == 1
        follower.make_durable()
    with builder.open() as store:
        assert store.topics() == {"Other": [0]}


def follow_first(builder: StoreBuilder) -> DerivedFollower:
    log_only(builder).close()
    return follow(builder)


def test_behind_a_store_that_is_being_written(live: dict[str, bytes], tmp_path: Path) -> None:
    builder = builder_at(tmp_path / "written")
    with log_only(builder) as store, follow(builder) as follower:
        number = 0
        while number < COUNT:
            number = numbered.append_until(store, number, min(number + 16, COUNT))
            follower.advance()
        follower.make_durable()
        with builder.open(read_only=True) as reader:  # What a consumer would see.
            numbered.check(reader, range(number))
    assert derived(builder.root) == live


def test_a_store_that_derives_by_itself_is_left_alone(tmp_path: Path) -> None:
    builder = builder_at(tmp_path / "own")
    with builder.open() as store:
        numbered.append(store, 0)
        with pytest.raises(StoreError, match='dispatch="none"'):
            follow(builder)


def test_one_follower_at_a_time(bare: StoreBuilder) -> None:
    with follow(bare), pytest.raises(StoreLocked):
        follow(bare)
    follow(bare).close()


def test_derived_files_that_are_gone_or_changed_come_back(live: dict[str, bytes], bare: StoreBuilder) -> None:
    with follow(bare) as follower:
        follower.advance()
        follower.make_durable()
    victims = [path for path in sorted((bare.root / "consumequeue").rglob("*")) if path.is_file()]
    for victim in (victims[0], victims[-1], *sorted((bare.root / "index").iterdir())[:1]):
        victim.unlink()
        with follow(bare) as follower:
            follower.advance()
            follower.make_durable()
        assert derived(bare.root) == live


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff\xfe", b'{"position": 1}'])
def test_a_proof_that_cannot_be_read_proves_nothing(live: dict[str, bytes], bare: StoreBuilder, text: bytes) -> None:
    with follow(bare) as follower:
        follower.advance()
        follower.make_durable()
    (bare.root / NAME).write_bytes(text)
    with follow(bare) as follower:
        assert follower.position == 0
        follower.advance()
        follower.make_durable()
    assert derived(bare.root) == live


def test_the_proof_of_another_log_proves_nothing(live: dict[str, bytes], bare: StoreBuilder) -> None:
    with follow(bare) as follower:
        follower.advance()
        follower.make_durable()
        assert follower.position > 0
    proof = (bare.root / NAME).read_bytes()
    (bare.root / NAME).write_bytes(proof.replace(b'"position":', b'"position":9'))
    with follow(bare) as follower:
        assert follower.position == 0


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid):
        DerivedFollower.open(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_lost_lock_is_noticed_before_anything_is_said(bare: StoreBuilder) -> None:
    follower = follow(bare)
    follower.advance()
    (bare.root / "other").write_bytes(b"lock")
    os.replace(bare.root / "other", bare.root / LOCK_NAME)
    for step in (follower.advance, follower.make_durable):
        with pytest.raises(StoreError, match="was replaced by another file"):
            step()
    assert not (bare.root / NAME).exists()
    follower.close()
