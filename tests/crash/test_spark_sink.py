"""The commit protocol of the Spark sink, stopped at every step: each row once, whatever died and whatever was lost.

One run serves all its moments: before every operation that changes the disk, and between any two appends, what a kill
and several power cuts would leave is taken, and there the micro-batch is run again as a restarted query does. Real
Spark and real kills: test_spark_sink_kills.py.
"""

import functools
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files import Files
from embermq.files.allocation import SegmentAllocator
from embermq.settings import FlushDisk
from embermq.spark.writing import commits
from embermq.store.layout.fence import FencedFiles
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import Choose, keep_everything
from tests.crash import numbered
from tests.crash.power import CUTS, KILLED, random_choice
from tests.crash.sink_batches import Sink, check_queues, check_rows, rows_in

pytestmark = [pytest.mark.usefixtures("short_tail"), pytest.mark.extended]

ROOT = Path("/store")
BATCHES = 3
_STEPS_MAX = 20_000


def settings(**changes: Any) -> StoreSettings:
    return StoreSettings(**(numbered.TINY | {"segment_bytes": 2048} | changes))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "CHUNK_ROWS", 2)
    # Cuts are checked on the threads that are cut, so everything takes its time.
    whole = SegmentAllocator.__init__
    monkeypatch.setattr(SegmentAllocator, "__init__", functools.partialmethod(whole, wait_s=600.0))


class Cuts:
    """Files to run a sink on; `failures` says after which cut a restarted query wrote something twice or not."""

    def __init__(self, sink: Sink, *, stride: int, cuts_per_moment: int, seeds: int = 1) -> None:
        self.disk = LossyFiles()
        self.files = FaultyFiles(self.disk)
        self.sink = sink.on(self.files)
        self.batch = 0  # the micro-batch under way
        self.done = 0  # batches before this one are committed, as far as the driver knows
        self.failures: list[str] = []
        self.checked = 0
        self._per_moment, self._turn, self._seeds = cuts_per_moment, 0, seeds
        self._mutex = threading.Lock()
        for step in range(1, _STEPS_MAX, stride):
            self.files.before(step=step, call=self.cut)

    def cut(self) -> None:
        with self._mutex:
            seed = len(self.files.steps)
            cuts = list(CUTS.items())
            for number in range(self._seeds):
                cuts.append((f"random {number}", random_choice(1000 * number + seed, torn=False)))
                cuts.append((f"random torn {number}", random_choice(1000 * number + seed, torn=True)))
            self._check(KILLED, keep_everything)
            for _ in range(min(self._per_moment, len(cuts))):
                self._check(*cuts[self._turn % len(cuts)])
                self._turn += 1

    def _check(self, name: str, choose: Choose) -> None:
        steps = self.files.steps
        left = self.disk.crash(choose)
        self.checked += 1
        try:
            restart(self.sink.on(left), self.done, name)
        except Exception:
            last = f"{steps[-1][0]} {steps[-1][1].name}" if steps else "start"
            self.failures.append(f"step {len(steps)}: {last}, {name}, {self.done} done\n{traceback.format_exc()}")

    def report(self) -> None:
        assert self.checked > 20
        assert not self.failures, f"{len(self.failures)} of {self.checked} failed:\n" + self.failures[0]


def restart(sink: Sink, done: int, name: str) -> None:
    """What a restarted query does with what is left: the same micro-batch again, then the next one."""
    committed = sink.run(done, attempt=1)
    sink.run(done + 1, attempt=1)
    with sink.open() as store:
        assert not store.recovery.damages or name != KILLED, store.recovery
        found = rows_in(store)
        check_queues(store)
    check_rows(found, done + 2)
    assert committed in (0, 9)
    assert {one.attempt for one in found if one.batch < done} <= {0}, "a finished batch was written again"
    assert not sink.committer.needed_directory()


def disk_of(store: MessageStore) -> Files:
    """The file system behind the fence of an open store."""
    files = store.engine.parts.files
    return files._inner if isinstance(files, FencedFiles) else files


def run(cuts: Cuts, monkeypatch: pytest.MonkeyPatch, batches: int = BATCHES) -> None:
    whole = MessageStore.append_many

    def append_and_cut(store: MessageStore, messages: Any) -> Any:
        receipts = whole(store, messages)
        if disk_of(store) is cuts.files:
            cuts.cut()
        return receipts

    monkeypatch.setattr(MessageStore, "append_many", append_and_cut)
    for batch in range(batches):
        staged = cuts.sink.stage(batch)
        cuts.cut()
        assert cuts.sink.commit(batch, staged) == 9
        cuts.cut()
        cuts.done = batch + 1
        cuts.cut()
    check_rows(cuts.sink.rows(), batches)
    cuts.report()


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_stopped_at_any_step(flush: FlushDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(ROOT, LossyFiles(), settings(flush=flush))
    run(Cuts(sink, stride=5, cuts_per_moment=1), monkeypatch)


def test_stopped_at_any_step_with_private_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(ROOT, LossyFiles(), settings(transient_pool=True, transient_pool_buffers=3))
    run(Cuts(sink, stride=9, cuts_per_moment=1), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_stopped_at_every_single_step(flush: FlushDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(ROOT, LossyFiles(), settings(flush=flush))
    run(Cuts(sink, stride=1, cuts_per_moment=3), monkeypatch)


class Stopped(BaseException):
    """Somebody pulled the plug here."""


def stop_after(monkeypatch: pytest.MonkeyPatch, chunks: int) -> list[LossyFiles]:
    """What a kill leaves after so many appends; answered in a list when it happens."""
    whole = MessageStore.append_many
    left: list[LossyFiles] = []

    def append(store: MessageStore, messages: Any) -> Any:
        receipts = whole(store, messages)
        disk = disk_of(store)
        assert isinstance(disk, LossyFiles)
        if not left and store.stats().put_count >= 2 * chunks:
            left.append(disk.crash(keep_everything))
            raise Stopped
        return receipts

    monkeypatch.setattr(MessageStore, "append_many", append)
    return left


def cut_short(sink: Sink, monkeypatch: pytest.MonkeyPatch, batch: int, chunks: int) -> LossyFiles:
    with monkeypatch.context() as patched:
        left = stop_after(patched, chunks)
        with pytest.raises(Stopped):
            sink.run(batch)
    return left[0]


def test_a_batch_cut_short_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each restart goes a little further, and others write in between: the rest begins elsewhere each time."""
    disk = LossyFiles()
    sink = Sink(ROOT, disk, settings(), partitions=(12, 3))
    for turn in range(6):
        disk = cut_short(sink.on(disk), monkeypatch, 0, chunks=1)
        with sink.on(disk).open() as store:
            assert len(rows_in(store)) == 2 * (turn + 1)
            store.append(Message("Other", b"%d" % turn))
    last = sink.on(disk)
    last.run(0, attempt=7)
    check_rows(last.rows(), 1, (12, 3))
    with last.open() as store:
        assert [one.body for one in store.scan() if one.topic == "Other"] == [b"%d" % turn for turn in range(6)]
        check_queues(store)


def test_another_query_completes_what_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Sink(ROOT, LossyFiles(), settings())
    left = cut_short(first, monkeypatch, 0, chunks=2)
    other = Sink(ROOT, left, settings(), query="query-2", topic="Other")
    other.run(0)
    check_rows(first.on(left).rows(), 1)
    with other.open() as store:
        check_rows(rows_in(store, "Other"), 1)
    assert first.on(left).run(0, attempt=1) == 0
    check_rows(first.on(left).rows(), 1)


def test_a_batch_that_was_never_decided_is_not_seen() -> None:
    sink = Sink(ROOT, LossyFiles(), settings())
    sink.run(0)
    sink.stage(1, attempt=0)
    left = sink.files.crash(keep_everything)  # type: ignore[attr-defined]
    again = sink.on(left)
    check_rows(again.rows(), 1)
    again.run(1, attempt=3)
    check_rows(again.rows(), 2)
    assert {one.attempt for one in again.rows() if one.batch == 1} == {3}


def test_an_equal_message_of_somebody_else_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row counts as written by all of its record, the time of its birth and its unique key included."""
    sink = Sink(ROOT, LossyFiles(), settings())
    left = cut_short(sink, monkeypatch, 0, chunks=1)
    with sink.on(left).open() as store:
        store.append(Message("Sink", b"0|0|2|0", queue_id=0))
    again = sink.on(left)
    again.run(0, attempt=1)
    found = again.rows()
    assert sorted(one.number for one in found).count((0, 0, 2)) == 2
    assert len(found) == 10


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["create", "pwrite", "sync", "rename", "sync_directory"])
def test_a_disk_that_fails_once_while_staging_or_committing(kind: str, nth: int) -> None:
    """The commit raises, Spark tries the batch again, and it is there once."""
    for what in ("embermq.staging", "embermq.commits"):
        files = FaultyFiles(LossyFiles())
        sink = Sink(ROOT, files, settings())
        sink.run(0)
        files.fail(kind, nth=nth, path_contains=what)
        try:
            sink.run(1)
        except OSError:
            sink.run(1, attempt=1)
        files.heal()
        check_rows(sink.rows(), 2)
