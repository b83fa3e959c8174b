"""Delivery times over kills and power cuts, at every step of the disk.

A store on a disk in memory parks messages, delivers some, cancels some and stores some again. Before every step that
changes the disk, what a kill or a power cut would leave is opened again, time passes until all is due, and this must
hold:

    what was acknowledged is delivered: at least once (under a kill, and with SYNC_FLUSH always)
    nothing is delivered before its time
    a cancelled message is not delivered, if its cancellation was acknowledged and outlives the cut
    after a second, clean restart nothing more is delivered
"""

import threading
import traceback
from pathlib import Path

import pytest

from embermq.model.message import Message, StoredMessage
from embermq.settings import FlushDisk, KernelUse
from embermq.store import MessageStore
from embermq.store.services.timers import Timers
from embermq.testing import FaultyFiles, LossyFiles, ManualClock
from embermq.testing.builder import StoreBuilder
from embermq.testing.unsynced import Choose, keep_everything, lose_everything
from tests.crash.numbered import TINY
from tests.crash.power import random_choice

TOPIC, ROOT = "orders", Path("/store")
HOUR_MS = 3_600_000
LONGEST_MS = 100 * HOUR_MS


def timers_of(store: MessageStore) -> Timers:
    """Without their thread: the test looks, when it wants to."""
    timers = store.engine.services.timers
    assert timers is not None
    timers.stop()
    timers._thread.is_stopping = False
    return timers


def look(store: MessageStore, timers: Timers, clock: ManualClock) -> None:
    while True:
        store.flush()  # Under SYNC_FLUSH nothing is seen before.
        assert store.wait_for_dispatch(30)
        again = timers.deliver_due(clock.now_ms())
        if again is None or again > clock.now_ms():
            return


def delivered(store: MessageStore) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    store.flush()
    while more := store.fetch(TOPIC, 0, len(found)).messages:
        found += more
    return found


class Ledger:
    """What was acknowledged: bodies with their time, and those that were cancelled."""

    def __init__(self) -> None:
        self.due_ms: dict[bytes, int] = {}
        self.cancelled: set[bytes] = set()
        self.cancel_asked: set[bytes] = set()  # under way, or acknowledged

    def copy(self) -> "Ledger":
        made = Ledger()
        made.due_ms, made.cancelled = dict(self.due_ms), set(self.cancelled)
        made.cancel_asked = set(self.cancel_asked)
        return made


class Cuts:
    """The disk that is cut before its steps."""

    def __init__(self, flush: FlushDisk, stride: int, kernels: KernelUse) -> None:
        self.disk, self.ledger, self.clock = LossyFiles(), Ledger(), ManualClock()
        self.files = FaultyFiles(self.disk)
        sizes = TINY | {"flush": flush, "segment_bytes": 32768, "delayed_delivery": True, "kernels": kernels}
        self.builder = StoreBuilder(ROOT, files=self.files, clock=self.clock, **sizes)
        self.survives_power = flush is FlushDisk.SYNC
        self.failures: list[str] = []
        self.checked = 0
        self._mutex = threading.Lock()
        for step in range(1, 100_000, stride):
            self.files.before(step=step, call=self.cut)

    def cut(self) -> None:
        with self._mutex:
            thread = threading.Thread(target=self._cut)
            thread.start()
            thread.join()

    def _cut(self) -> None:
        known, now_ms = self.ledger.copy(), self.clock.now_ms()
        seed = len(self.files.steps)
        cuts = {"killed": keep_everything, "all lost": lose_everything, "some lost": random_choice(seed, torn=False)}
        for name, choose in cuts.items():
            self._check(name, choose, known, now_ms)

    def _check(self, name: str, choose: Choose, known: Ledger, now_ms: int) -> None:
        left = self.disk.crash(choose)
        self.checked += 1
        try:
            check_left(self.builder, left, known, now_ms, name == "killed" or self.survives_power)
        except Exception:
            step = self.files.steps[-1] if self.files.steps else ("start", Path())
            where = f"step {len(self.files.steps)}: {step[0]} {step[1].name}, {name}"
            self.failures.append(f"{where}\n{traceback.format_exc()}")


def check_left(builder: StoreBuilder, left: LossyFiles, known: Ledger, now_ms: int, survives: bool) -> None:
    clock = ManualClock(now_ms)
    again = StoreBuilder(ROOT, files=left, clock=clock)
    again.settings = builder.settings
    with again.open() as store:
        timers = timers_of(store)
        look(store, timers, clock)
        clock.advance(ms=LONGEST_MS)
        look(store, timers, clock)
        assert timers.first_parked() is None
        found = delivered(store)
        for one in found:
            assert one.store_timestamp >= int(one.properties["TIMER_OUT_MS"])
        bodies = {one.body for one in found}
        if survives:
            assert known.due_ms.keys() - known.cancel_asked <= bodies
            assert not known.cancelled & bodies
    with again.open() as store:
        timers = timers_of(store)
        look(store, timers, clock)
        assert len(delivered(store)) == len(found)


def run_timers(cuts: Cuts) -> None:
    ledger, clock = cuts.ledger, cuts.clock
    with cuts.builder.open() as store:
        timers = timers_of(store)
        for number in range(16):
            body, due_ms = b"%d" % number, clock.now_ms() + (100, 40, 700, 60 * HOUR_MS)[number % 4]
            properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"k{number}"}
            assert store.append(Message(TOPIC, body, properties=properties)).ok
            ledger.due_ms[body] = due_ms
            if number % 4 == 2:
                ledger.cancel_asked.add(body)
                named = {"TIMER_DELIVER_MS": str(due_ms), "TIMER_DEL_UNIQKEY": f"k{number}"}
                assert store.append(Message(TOPIC, b"", properties=named)).ok
                ledger.cancelled.add(body)
            clock.advance(ms=30)
            look(store, timers, clock)
            if number % 3 == 0:
                timers.persist()
        clock.advance(ms=40 * HOUR_MS)
        look(store, timers, clock)
        assert timers.stored_again == 4
        timers.persist()


def play(flush: FlushDisk, stride: int, kernels: KernelUse) -> None:
    cuts = Cuts(flush, stride, kernels)
    run_timers(cuts)
    assert cuts.checked > 10
    assert not cuts.failures, f"{len(cuts.failures)} of {cuts.checked} failed:\n{cuts.failures[0]}"


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
def test_some_steps(flush: FlushDisk) -> None:
    play(flush, 23, KernelUse.AUTO)


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
def test_some_steps_by_kernels(flush: FlushDisk) -> None:
    play(flush, 29, KernelUse.ALWAYS)


@pytest.mark.long
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
@pytest.mark.parametrize("kernels", [KernelUse.AUTO, KernelUse.ALWAYS])
def test_every_step(flush: FlushDisk, kernels: KernelUse) -> None:
    play(flush, 1, kernels)
