"""A disk that may lose power just before any of its operations, and what must be true of what it leaves.

`PowerCuts` runs under a store. Before each step that changes the disk it takes what several power cuts would
leave, opens a store there, and checks it. The store above goes on and knows nothing of it.

What is checked was true before the cut began: messages acknowledged, and messages a consumer was given.
"""

import threading
import traceback
import zlib
from collections.abc import Sequence
from pathlib import Path

from embermq import Arrival, MessageStore
from embermq.store.layout.state_page import STATE_FILE as STATE_PAGE
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import Choose, Fate, UnsyncedChange, keep_everything, lose_everything
from tests.crash import numbered

_STEPS_MAX = 100_000


def random_choice(seed: int, *, torn: bool) -> Choose:
    """Fates drawn from the change itself, so that the same change has the same fate in every run.

    The numbers of the state page lie in one sector, which a disk writes as a whole: that page is never torn.
    """

    def choose(change: UnsyncedChange) -> Fate:
        drawn = zlib.crc32(f"{seed} {change.kind} {change.path.name} {change.at}".encode())
        if torn and change.kind == "page" and change.path.name != STATE_PAGE:
            return tuple(Fate)[drawn % len(Fate)]
        return (Fate.LOST, Fate.KEPT)[drawn % 2]

    return choose


def torn_everywhere(fate: Fate) -> Choose:
    def choose(change: UnsyncedChange) -> Fate:
        return fate if change.kind == "page" and change.path.name != STATE_PAGE else Fate.KEPT

    return choose


def pages_only(change: UnsyncedChange) -> Fate:
    """File contents are kept and new names lost, as a journal that lags behind does."""
    return Fate.KEPT if change.kind in ("page", "length") else Fate.LOST


def names_only(change: UnsyncedChange) -> Fate:
    return Fate.LOST if change.kind in ("page", "length") else Fate.KEPT


KILLED = "killed"
CUTS: dict[str, Choose] = {
    "everything lost": lose_everything,
    "pages only": pages_only,
    "names only": names_only,
    "torn heads": torn_everywhere(Fate.TORN_HEAD),
    "torn tails": torn_everywhere(Fate.TORN_TAIL),
}


class PowerCuts:
    """Files to run a store on; `failures` says which cut left what was not right."""

    def __init__(
        self,
        builder: StoreBuilder,
        *,
        survives: str,
        seeds: Sequence[int] = (1,),
        stride: int = 1,
        cuts_per_moment: int = 1000,
    ) -> None:
        """`survives`: what acknowledged messages survive: "power", "kill", or "nothing" until they are flushed.

        Every `stride`-th step and every `stride`-th acknowledgement is a moment to cut; each gets the kill and the
        next few of the other cuts in turn.
        """
        assert survives in ("power", "kill", "nothing")
        self.disk = LossyFiles()
        self.files = FaultyFiles(self.disk)
        self.failures: list[str] = []
        self.checked = 0
        self.acknowledged = 0  # messages below this number were acknowledged
        self.delivered = 0  # as many messages were given to a consumer
        self._builder, self._survives, self._seeds = builder, survives, seeds
        self._cuts_per_moment, self._turn = cuts_per_moment, 0
        self._stride, self._acknowledgements = stride, 0
        self._mutex = threading.Lock()
        for step in range(1, _STEPS_MAX, stride):
            self.files.before(step=step, call=self.cut)

    def start_with(self, disk: LossyFiles) -> None:
        """Go on with what an earlier cut left."""
        self.disk = self.files.inner = disk

    def open(self) -> MessageStore:
        store = self._builder.on(self.files).open()
        store.on_arrival(self._arrived)
        return store

    def _arrived(self, arrival: Arrival) -> None:
        self.delivered += 1

    def acknowledge(self, n: int) -> None:
        self.acknowledged = n
        self._acknowledgements += 1
        if self._acknowledgements % self._stride == 0:
            self.cut()

    def cut(self) -> None:
        """Check what power cuts and a kill at this moment would leave."""
        with self._mutex:
            seed = len(self.files.steps)
            cuts = list(CUTS.items())
            for number in self._seeds:
                cuts.append((f"random {number}", random_choice(1000 * number + seed, torn=False)))
                cuts.append((f"random torn {number}", random_choice(1000 * number + seed, torn=True)))
            self._check(KILLED, keep_everything)
            for _ in range(min(self._cuts_per_moment, len(cuts))):
                self._check(*cuts[self._turn % len(cuts)])
                self._turn += 1

    def _check(self, name: str, choose: Choose) -> None:
        promised = self._survives == "power" or (self._survives == "kill" and name == KILLED)
        needed = max(self.acknowledged, self.delivered) if promised else 0
        step = self.files.steps[-1] if self.files.steps else ("start", Path())
        left = self.disk.crash(choose)
        self.checked += 1
        try:
            check_left(self._builder.on(left), needed)
        except Exception:
            where = f"step {len(self.files.steps)}: {step[0]} {step[1].name}, {name}, {needed} needed"
            self.failures.append(f"{where}\n{traceback.format_exc()}")

    def report(self) -> str:
        """All was well, and how much that was."""
        assert self.checked
        assert not self.failures, f"{len(self.failures)} of {self.checked} failed:\n" + self.failures[0]
        return f"{len(self.files.steps):,} steps, {self.checked:,} times what was left was opened and checked, 0 failed"


def check_left(builder: StoreBuilder, needed: int) -> None:
    """A store opened on what is left has a prefix of the numbers, at least `needed`, and works."""
    with builder.open() as store:
        found = numbered.check(store)
        assert found == list(range(len(found))), f"no prefix: {found}"
        assert len(found) >= needed, f"{len(found)} left of {needed}; {store.recovery}"
        end = numbered.append_until(store, len(found), len(found) + 1)
    with builder.open() as again:
        assert again.recovery.clean
        assert not again.recovery.damages
        assert numbered.numbers_in(again) == list(range(end))
