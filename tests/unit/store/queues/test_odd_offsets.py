"""Bytes of a record that no sum covers, flipped: queue id and queue offset.

The record is put elsewhere, or nowhere, and nobody can know where it belongs. But it costs one message, nearly always
its own: all others are delivered. A start, `rebuild` and the rebuild in pieces agree on what they make of such a log,
`verify` says what is odd, and asks for no rebuild that would not help.
"""

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.repair.rebuild import bulk_build as rebuild_bulk
from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.verify.store_check import verify
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.unit.repair.rebuild.test_bulk import Hands
from tests.unit.repair.rebuild.test_follower import derived

QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20
FIELDS = {"queue id": (QUEUE_ID_AT, 4), "queue offset": (QUEUE_OFFSET_AT, 8)}
COUNT = 120


def make(path: Path) -> tuple[StoreBuilder, list[int]]:
    builder = StoreBuilder(
        path, clock=ManualClock(), segment_bytes=8192, queue_file_bytes=400, index_slots_max=16, index_entries_max=40
    )
    with builder.open() as store:
        made = [store.append(Message("T", b"x" * 30, keys=[f"k{n}"], queue_id=n % 2)) for n in range(COUNT)]
    return builder, [one.physical_offset for one in made]


def flip(builder: StoreBuilder, place: int, byte: int, bit: int) -> None:
    start = place - place % 8192
    path = builder.root / "commitlog" / f"{start:020d}"
    data = bytearray(path.read_bytes())
    data[place - start + byte] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.slow(3)
def test_all_agree(tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)
    first, length = FIELDS[field]
    chance = random.Random(length)
    whole, places = make(tmp_path / "whole")
    for byte in range(first, first + length):
        for bit in (0, 3, 6):
            check_flipped(whole, places, chance.randrange(COUNT - 2), byte, bit, tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 38, 39, 40, 41, COUNT - 4, COUNT - 3])
@pytest.mark.slow(7)
def test_the_first_of_a_queue_and_those_at_the_borders_of_its_files(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)
    whole, places = make(tmp_path / "whole")
    for bit in range(8):
        check_flipped(whole, places, number, QUEUE_OFFSET_AT + 7, bit, tmp_path)


@pytest.mark.long
def test_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)
    whole, places = make(tmp_path / "whole")
    flips = [(QUEUE_OFFSET_AT + 7, bit) for bit in range(8)] + [(QUEUE_ID_AT + 3, bit) for bit in range(3)]
    for number in range(COUNT - 2):
        for byte, bit in flips:
            check_flipped(whole, places, number, byte, bit, tmp_path)


def check_flipped(whole: StoreBuilder, places: list[int], number: int, byte: int, bit: int, scratch: Path) -> None:
    """The last two records are not flipped: what follows shows that something is missing."""
    root = scratch / "flipped"
    shutil.copytree(whole.root, root)
    builder = StoreBuilder(root, clock=ManualClock())
    builder.settings = whole.settings
    flip(builder, places[number], byte, bit)
    check(builder, number, scratch, f"record {number}, byte {byte}, bit {bit}")
    shutil.rmtree(root)


def delivered(store: MessageStore) -> set[str]:
    """Keys of all messages that consumers of the two queues get."""
    found: set[str] = set()
    for queue_id in (0, 1):
        at, end = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
        while at < end:
            outcome = store.fetch("T", queue_id, at, max_messages=COUNT)
            found.update(key for message in outcome.messages for key in message.keys)
            assert outcome.next_offset > at
            at = outcome.next_offset
    return found


def check(builder: StoreBuilder, number: int, scratch: Path, what: str) -> None:
    root = builder.root
    for family in ("consumequeue", "index"):
        shutil.rmtree(root / family)
    for name in ("walked", "pieces"):
        shutil.rmtree(scratch / name, ignore_errors=True)
        shutil.copytree(root, scratch / name)
    rebuild(scratch / "walked", builder.settings, clock=ManualClock())
    rebuild(scratch / "pieces", builder.settings, clock=ManualClock(), make_build=partial(BulkBuild, workers=Hands()))
    with builder.open() as store:
        missing = {f"k{n}" for n in range(COUNT)} - delivered(store)
        # Two that claim the same place, where each follows the one before it: either may be the wrong one.
        assert missing <= {f"k{number}"} or missing == {f"k{number ^ 1}"}, what
    assert derived(scratch / "walked") == derived(root), what
    assert derived(scratch / "pieces") == derived(root), what
    flaws = verify(root).flaws
    looks_like_a_new_life = number < 2  # The other queue has two first records then.
    assert looks_like_a_new_life or any(flaw.family == "consumequeue" for flaw in flaws), what
    assert [flaw for flaw in flaws if flaw.is_fault and flaw.can_be_mended] == [], what


@pytest.mark.parametrize("again", [1, 2, 15])
def test_a_topic_that_began_again_at_0_has_its_new_messages_alone(tmp_path: Path, again: int) -> None:
    """Nobody has noted that it was deleted, as in a log of RocketMQ; what follows a record of offset 0 tells."""
    builder, _ = make(tmp_path / "store")
    with builder.open() as store:
        store.delete_topic("T")
        for n in range(again):
            store.append(Message("T", b"new", keys=[f"new{n}"], queue_id=0))
            store.append(Message("other", b"x", queue_id=0))
    for path in builder.root.glob("embermq.*"):
        path.unlink()
    for family in ("consumequeue", "index"):
        shutil.rmtree(builder.root / family)
    shutil.copytree(builder.root, tmp_path / "walked")
    rebuild(tmp_path / "walked", builder.settings, clock=ManualClock())
    with builder.open() as store:
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, again)
        found = [message.keys for message in store.fetch("T", 0, 0, max_messages=COUNT).messages]
        assert found == [[f"new{n}"] for n in range(again)]
    assert derived(tmp_path / "walked") == derived(builder.root)
    assert not [flaw for flaw in verify(builder.root).flaws if flaw.is_fault]
