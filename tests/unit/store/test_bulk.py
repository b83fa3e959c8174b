"""A log derived in slices, in any order, is byte for byte what the live dispatcher makes of it."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from embermq.settings import StoreSettings
from embermq.store.bulk import (
    Joined,
    Shape,
    build_index,
    derive_queues,
    derive_slice,
    index_parts,
    join_slices,
)
from embermq.store.survey import Survey
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.unit.store.test_follower import derived


def shape_of(settings: StoreSettings) -> Shape:
    return Shape(settings.queue_file_bytes, settings.index_slots_max, settings.index_entries_max)


def bulk(root: Path, target: Path, shape: Shape, cuts: list[int], chance: random.Random) -> Joined:
    """All the pieces, slices in a random order and one of them twice."""
    survey = Survey.open(root)
    places = sorted({survey.log_min, *(survey.record_start(cut) for cut in cuts), survey.log_end})
    work = list(enumerate(pairwise(places)))
    chance.shuffle(work)
    summaries = [
        derive_slice(survey.segments, number, start, end, target, shape) for number, (start, end) in [*work, work[0]]
    ][1:]
    summaries.sort(key=lambda summary: summary.number)
    joined = join_slices(summaries, target, shape)
    derive_queues(survey.segments, survey.log_min, survey.log_end, target, shape, joined.irregular)
    counts = [summary.keys for summary in summaries]
    parts = index_parts(joined.keys, shape)
    chance.shuffle(parts)
    for part in parts:
        build_index(part, counts, target, shape, f"{20231114000000000 + part.number}")
    return joined


@pytest.mark.parametrize("seed", range(6))
def test_any_slices_in_any_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    builder = StoreBuilder(tmp_path / "store", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        numbered.append_until(store, 0, 300)
        end = store.max_physical
    cuts = [chance.randrange(end) for _ in range(chance.randrange(12))]
    joined = bulk(builder.root, tmp_path / "new", shape_of(builder.settings), cuts, chance)
    assert joined.irregular == []
    assert joined.damages == []
    assert joined.records >= 300
    assert derived(tmp_path / "new") == derived(builder.root)


def test_damage_makes_its_queues_irregular_and_loses_nothing_else(tmp_path: Path) -> None:
    """The same holes are filled in the same way as a recovery of that log fills them."""
    builder = StoreBuilder(tmp_path / "store", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        numbered.append_until(store, 0, 120)
        victim = store.fetch("Topic0", 0, 4).messages[0]
    segment = builder.root / "commitlog" / f"{victim.physical_offset // 8192 * 8192:020d}"
    data = bytearray(segment.read_bytes())
    at = victim.physical_offset % 8192
    data[at : at + victim.size] = b"\xff" * victim.size
    segment.write_bytes(data)
    joined = bulk(builder.root, tmp_path / "new", shape_of(builder.settings), [3000, 20000], random.Random(1))
    assert [(found.start, found.end) for found in joined.damages] == [(victim.physical_offset, victim.end)]
    assert joined.irregular == [(b"Topic0", 0)]
    (tmp_path / "new" / "commitlog").symlink_to(builder.root / "commitlog")
    found = Survey.open(tmp_path / "new").units("Topic0", 0, 0, 8)
    assert found["physical_offset"][4] == found["physical_offset"][5]  # The hole holds a copy of what follows.
    touched = ("Topic0/0", "index")
    untouched = {name: data for name, data in derived(builder.root).items() if not name.startswith(touched)}
    new = derived(tmp_path / "new")
    assert {name: new[name] for name in untouched} == untouched


def test_an_empty_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.open().close()
    assert join_slices([], tmp_path / "new", shape_of(builder.settings)).queues == 0
    assert index_parts(0, shape_of(builder.settings)) == []
    assert not (tmp_path / "new").exists()


def test_a_log_that_begins_late(tmp_path: Path) -> None:
    """Queues whose first records have left begin with blanks, as the dispatcher writes them."""
    builder = StoreBuilder(tmp_path / "store", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        numbered.append_until(store, 0, 300)
    for old in sorted((builder.root / "commitlog").iterdir())[:2]:
        old.unlink()
    for name in ("consumequeue", "index"):
        for path in sorted((builder.root / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    builder.open().close()  # Derives everything from what is left.
    bulk(builder.root, tmp_path / "new", shape_of(builder.settings), [30000, 40000], random.Random(2))
    assert derived(tmp_path / "new") == derived(builder.root)
