"""Bytes of a record that no sum covers, flipped: queue id and queue offset.

The record is put elsewhere, or nowhere, and nobody can know where it belongs. But a start, `rebuild` and the rebuild
in pieces agree on what they make of such a log, `verify` says what is odd, and asks for no rebuild that would not help.
The lowest byte of a queue offset is left out: with it a record takes the place of a near one, and that can be anything.
"""

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from embermq import Message
from embermq.store import rebuild_bulk
from embermq.store.rebuild import rebuild
from embermq.store.rebuild_bulk import BulkBuild
from embermq.store.verify import verify
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.unit.store.test_bulk import Hands
from tests.unit.store.test_follower import derived

QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20
FIELDS = {"queue id": (QUEUE_ID_AT, 4), "queue offset": (QUEUE_OFFSET_AT, 7)}
COUNT = 120


def make(path: Path) -> tuple[StoreBuilder, list[int]]:
    builder = StoreBuilder(
        path, clock=ManualClock(), segment_bytes=8192, queue_file_bytes=400, index_slots_max=16, index_entries_max=40
    )  # fmt: skip
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
def test_all_agree(tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)
    first, length = FIELDS[field]
    chance = random.Random(length)
    whole, places = make(tmp_path / "whole")
    for byte in range(first, first + length):
        for bit in range(0, 8, 2):
            place = chance.choice(places[:-2])  # What follows shows that something is missing.
            root = tmp_path / f"{byte}-{bit}"
            shutil.copytree(whole.root, root)
            builder = StoreBuilder(root, clock=ManualClock())
            builder.settings = whole.settings
            flip(builder, place, byte, bit)
            check(builder, tmp_path, f"byte {byte}, bit {bit} of the record at {place}")
            shutil.rmtree(root)


def check(builder: StoreBuilder, scratch: Path, what: str) -> None:
    root = builder.root
    for family in ("consumequeue", "index"):
        shutil.rmtree(root / family)
    for name in ("walked", "pieces"):
        shutil.rmtree(scratch / name, ignore_errors=True)
        shutil.copytree(root, scratch / name)
    rebuild(scratch / "walked", builder.settings, clock=ManualClock())
    rebuild(
        scratch / "pieces", builder.settings, clock=ManualClock(), make_build=partial(BulkBuild, workers=Hands())
    )  # fmt: skip
    with builder.open() as store:
        assert store.fetch("T", 0, 0, max_messages=COUNT).messages, what
    assert derived(scratch / "walked") == derived(root), what
    assert derived(scratch / "pieces") == derived(root), what
    flaws = verify(root).flaws
    assert any(flaw.family == "consumequeue" for flaw in flaws), what
    assert [flaw for flaw in flaws if flaw.is_fault and flaw.can_be_mended] == [], what
