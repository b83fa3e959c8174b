"""Random damage to whole stores: errors are ours, nothing hangs, no wrong message, every intact one (store_fuzz.py)."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.store_fuzz import Figures, Fuzzer, make_scratch
from tests.crash.store_fuzz_truth import snapshot, write_truth

ROUNDS = 300
# One of each of the first stores: different sizes, endings and kinds of damage.
SHORT_SEEDS = (0, 9, 17, 24, 34, 40, 48, 57, 65, 74, 80, 91)


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    place = make_scratch()
    yield Fuzzer(place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("seed", SHORT_SEEDS)
def test_a_damaged_store(fuzzer: Fuzzer, seed: int) -> None:
    outcome = fuzzer.round(seed)
    assert outcome.ok, str(outcome)


@pytest.mark.long
def test_many_damaged_stores(fuzzer: Fuzzer, figures: Callable[[str, str], None]) -> None:
    seen = Figures()
    for seed in range(ROUNDS):
        seen.add(fuzzer.round(seed))
    figures("random damage to whole stores", str(seen))
    assert not seen.failed, "\n".join(map(str, seen.failed))


def test_a_seed_gives_the_same_store(tmp_path: Path) -> None:
    one, other = (write_truth(tmp_path / name, 7) for name in ("one", "other"))
    assert str(one) == str(other)
    first, second = snapshot(one.template), snapshot(other.template)
    assert {name for name in first | second if first.get(name) != second.get(name)} <= {"store/embermq.state"}
