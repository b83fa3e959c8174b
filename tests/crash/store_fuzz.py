"""Random damage to whole stores, and everything a user does with a store afterwards, compared with the truth.

    python -m tests.crash.store_fuzz --rounds 300            seeds 0..299
    python -m tests.crash.store_fuzz --seed 4711             one round, with what was done to its files
    python -m tests.crash.store_fuzz --rounds 100 --first 1000 --scratch /dev/shm

    store_fuzz_truth.py        a store, and what it must answer
    store_fuzz_mutations.py    one to three changes of its files
    store_fuzz_round.py        it is read, opened, appended to, verified, salvaged, rebuilt, dumped and loaded
    store_fuzz_checks.py       errors are ours, nothing hangs, no wrong message is delivered, every intact one is

The same seed gives the same round.
"""

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.store_fuzz_checks import Failures
from tests.crash.store_fuzz_round import Round
from tests.crash.store_fuzz_truth import Truth, tails, write_truth

ROUNDS_PER_TRUTH = 8
MEMORY = Path("/dev/shm")  # No power is cut here: a file system in memory does, and spares a thousand syncs a round.


@dataclass(slots=True)
class Outcome:
    """What a round has shown."""

    seed: int
    truth: str
    mutations: list[str]
    failures: Failures
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.failures.found

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.truth}", *(f"  changed {one}" for one in self.mutations)]
        lines += [f"  FAILED {one}" for one in self.failures.texts]
        lines.append(f"  again: python -m tests.crash.store_fuzz --seed {self.seed}")
        return "\n".join(lines)


@dataclass(slots=True)
class Fuzzer:
    """Rounds below a directory; several share a truth."""

    directory: Path
    keep: bool = False
    _truths: dict[int, Truth] = field(default_factory=dict)

    def round(self, seed: int) -> Outcome:
        began = time.monotonic()
        truth = self._truth(seed // ROUNDS_PER_TRUTH)
        place = self.directory / f"round{seed}"
        source = random.Random(f"round {seed}")
        try:
            with tails(truth.trusting):
                one = Round(truth, place, source)
                one.run()
        finally:
            if not self.keep:
                shutil.rmtree(place, ignore_errors=True)
        return Outcome(seed, str(truth), one.mutations, one.failures, time.monotonic() - began)

    def _truth(self, number: int) -> Truth:
        if number not in self._truths:
            for old in self._truths.values():
                shutil.rmtree(old.template.parent)
            self._truths.clear()
            self._truths[number] = write_truth(self.directory / f"truth{number}", number)
        return self._truths[number]


@dataclass(slots=True)
class Figures:
    """All rounds together."""

    rounds: int = 0
    mutations: int = 0
    compared: int = 0
    failed: list[Outcome] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.rounds += 1
        self.mutations += len(outcome.mutations)
        self.compared += outcome.failures.compared
        self.slowest = max(self.slowest, outcome.seconds)
        if not outcome.ok:
            self.failed.append(outcome)

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.mutations} mutations, {self.compared:,} messages compared,"
            f" {len(self.failed)} rounds failed, slowest {self.slowest:.1f} s"
        )


def make_scratch(directory: Path | None = None) -> Path:
    """A new directory for rounds, in memory if the machine has such a place."""
    in_memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="store-fuzz-", dir=directory or in_memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="one round")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--scratch", type=Path, help="where the stores are made")
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.rounds)
    place = make_scratch(given.scratch)
    figures, kinds = Figures(), Counter[str]()
    logging.disable()  # Damage is reported there, and a round makes a lot of it.
    began = time.monotonic()
    try:
        fuzzer = Fuzzer(place, keep=given.keep)
        for seed in seeds:
            outcome = fuzzer.round(seed)
            figures.add(outcome)
            kinds.update(set(outcome.failures.found))
            if not outcome.ok or given.seed is not None:
                print(outcome, flush=True)
    finally:
        if given.keep:
            print(f"kept in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}")
    print(f"{figures}; {time.monotonic() - began:.0f} s")
    sys.exit(bool(figures.failed))


if __name__ == "__main__":
    main()
