"""Retention and crashes: a kill, a power cut or a failing disk between any two of its steps leaves a store that
opens, has every message that is still in its log, and never gives a queue offset twice.

The numbered messages of numbered.py are appended, and old log files go in between. What is left must be an
unbroken row of numbers that ends with the last one acknowledged.
"""

import errno
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore
from embermq.errors import EmberError
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import STEPS, FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.crash import numbered
from tests.crash.power import PowerCuts

pytestmark = pytest.mark.usefixtures("short_tail")

ROOT = Path("/store")
FAR_FUTURE_MS = 4_000_000_000_000  # Every file is old then.


def builder(flush: FlushDisk = FlushDisk.SYNC, **settings: Any) -> StoreBuilder:
    retention = {"retention_hours": 0, "delete_segment_pause_ms": 0, "delete_queue_pause_ms": 0}
    clock = ManualClock(FAR_FUTURE_MS)
    return StoreBuilder(ROOT, clock=clock, flush=flush, **(numbered.TINY | retention | settings))


def check_row(store: MessageStore, needed: int) -> list[int]:
    """The numbers left are an unbroken row up to at least `needed`, all of them readable in every way."""
    found = numbered.check(store, damaged=True)
    assert found, "nothing left"
    assert found == list(range(found[0], found[-1] + 1)), f"not a row: {found}"
    assert found[-1] + 1 >= needed, f"{found[-1] + 1} left of {needed}; {store.recovery}"
    numbered.check_next_offsets(store, found[-1] + 1)
    return found


class RetentionCuts(PowerCuts):
    """Power cuts in a store that loses its oldest messages to retention, while it does."""

    armed = False

    def cut(self) -> None:
        if self.armed:
            super().cut()

    def _check(self, name: str, choose: Any) -> None:
        step = self.files.steps[-1] if self.files.steps else ("start", Path())
        self.checked += 1
        try:
            check_left(self._builder.on(self.disk.crash(choose)), self.acknowledged)
        except Exception as failure:
            where = f"step {len(self.files.steps)}: {step[0]} {step[1]}, {name}, {self.acknowledged} needed"
            self.failures.append(f"{where}\n{failure!r}")


def check_left(plan: StoreBuilder, needed: int) -> None:
    if needed == 0:
        plan.open().close()
        return
    with plan.open() as store:
        found = check_row(store, needed)
        end = numbered.append_until(store, found[-1] + 1, found[-1] + 2)
        store.delete_expired()
        check_row(store, end)
    with plan.open() as again:
        assert again.recovery.reason == "closed cleanly"
        check_row(again, end)


def run(cuts: RetentionCuts, ends: list[int]) -> None:
    """Append, delete, append, delete ..., with a restart in the middle."""
    n = 0
    for part in (ends[: len(ends) // 2], ends[len(ends) // 2 :]):
        with cuts.open() as store:
            for end in part:
                n = numbered.append_until(store, n, end, cuts.acknowledge)
                store.wait_for_dispatch()
                before = store.stats().segments
                cuts.armed = True
                store.delete_expired()
                cuts.armed = False
                assert store.stats().segments == 1 < before
    cuts.report()


def test_power_fails_while_old_files_go() -> None:
    run(RetentionCuts(builder(), survives="power", stride=4, cuts_per_moment=1), [60, 110])


def test_power_fails_while_old_files_go_without_dispatch() -> None:
    """Nothing but the log and the kept offsets know then where queues go on."""
    plan = builder()
    disk = LossyFiles()
    files = FaultyFiles(disk)
    left: list[LossyFiles] = []
    for step in range(1, 5000):
        files.before(step=step, call=lambda: left.extend((disk.crash(), disk.crash(keep_everything))))
    store = MessageStore.open(ROOT, plan.settings, clock=plan.clock, files=files, dispatch="none")
    end = numbered.append_until(store, 0, 110)
    store.wait_for_dispatch()
    left.clear()
    store.delete_expired()
    assert store.stats().segments == 1
    moments = list(left)
    store.close()
    assert len(moments) > 10
    for moment in moments:
        with MessageStore.open(ROOT, plan.settings, clock=plan.clock, files=moment, dispatch="none") as again:
            numbered.check_next_offsets(again, end)


@pytest.mark.long
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_power_fails_at_every_step_while_old_files_go(flush: FlushDisk) -> None:
    cuts = RetentionCuts(builder(flush), survives="power", seeds=range(5))
    if flush is FlushDisk.ASYNC:
        cuts.acknowledge = lambda n: None  # type: ignore[method-assign]  # A power cut may take anything unflushed.
    run(cuts, [60, 90, 130, 170])


# -- a failing disk ------------------------------------------------------------------------------------------------


class Attempt:
    """A user who appends and deletes on a bad disk, whatever happens."""

    def __init__(self, files: FaultyFiles) -> None:
        self._files = files
        self.acknowledged = 0

    def run(self) -> None:
        try:
            store = builder().on(self._files).open()
        except EmberError:
            return
        for end in (60, 110):
            try:
                self.acknowledged = numbered.append_until(store, self.acknowledged, end)
                store.wait_for_dispatch()
                store.delete_expired()
            except (EmberError, OSError):
                break
        try:
            store.close()
        except EmberError:
            pass


def counts_of_one_run() -> Counter[str]:
    files = FaultyFiles(LossyFiles())
    Attempt(files).run()
    return files.counts


def fail(kind: str, nth: int, error: int, times: int | None) -> None:
    disk = LossyFiles()
    files = FaultyFiles(disk)
    files.fail(kind, nth=nth, times=times, error=error)
    attempt = Attempt(files)
    attempt.run()
    assert not disk.locks
    for left in (disk.crash(), disk.crash(keep_everything), disk):
        if attempt.acknowledged:
            with builder().on(left).open() as store:
                check_row(store, attempt.acknowledged)


# Kinds that retention uses, or that happen while it does its work.
@pytest.mark.parametrize("kind", ["remove", "sync_directory", "rename", "create", "sync"])
def test_nothing_is_lost_when_an_operation_of_retention_fails(kind: str) -> None:
    count = counts_of_one_run()[kind]
    assert count
    for nth in range(1, count + 1, max(1, count // 6)):
        fail(kind, nth, (errno.EIO, errno.ENOSPC, errno.EROFS)[nth % 3], None if nth % 2 else 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(STEPS - {"remove_directory", "truncate", "reserve"}))
def test_nothing_is_lost_when_any_operation_fails(kind: str) -> None:
    for nth in range(1, counts_of_one_run()[kind] + 1):
        for error in (errno.EIO, errno.ENOSPC):
            fail(kind, nth, error, 1)
            fail(kind, nth, error, None)


# -- proofs --------------------------------------------------------------------------------------------------------


def test_a_kill_right_after_files_went_costs_no_walk_over_the_whole_log() -> None:
    """The proofs know of fewer files before the files go."""
    disk = LossyFiles()
    files = FaultyFiles(disk)
    with builder().on(files).open() as store:
        end = numbered.append_until(store, 0, 150)
        store.wait_for_dispatch()
        left: list[LossyFiles] = []
        first = len(files.steps) + 1
        for step in range(first, first + 500):
            files.before(step=step, call=lambda: left.extend((disk.crash(), disk.crash(keep_everything))))
        store.delete_expired()
        files.heal()
        steps = files.steps[first - 1 :]
        assert {path.parts[2] for kind, path in steps if kind == "remove"} >= {"commitlog", "consumequeue", "index"}
        removals = [at for at, (kind, path) in enumerate(steps) if kind == "remove" and path.parent.name == "commitlog"]
        for moment in left[2 * removals[0] :]:
            with builder().on(moment).open() as again:
                assert again.recovery.reason == "not closed cleanly", again.recovery
                check_row(again, end)
