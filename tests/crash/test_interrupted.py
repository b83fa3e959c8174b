"""A signal handler raises in the middle of an append: Ctrl-C in a notebook, an alarm.

Two ways. By lines: a tracer raises at each line of our source, and of Python's threading, that an append runs, one line
a round. By time: real signals from an interval timer, at any moment. Afterwards no lock is held, the store takes
messages and gives them back, everything that was acknowledged is there, and it closes as a store that `verify` calls
sound. A message whose append was interrupted may be there or not; its queue has neither a gap nor one offset twice.

Handlers of signals run after calls, at the beginning of functions and at the ends of loops. A tracer is also called
where they never run: at `try`, and a second time at `with`, when its block is left. It does not raise there.
"""

import linecache
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from embermq import BatchItem, Message, MessageBatch, MessageStore
from embermq.errors import EmberError
from embermq.files import OpenFile, RealFiles
from embermq.format.frame import BLANK_BYTES
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk, KernelUse, StoreSettings

THREADING = threading.__file__
SOURCE = str(Path(sys.modules[MessageStore.__module__].__file__ or "").parents[1])
SETTINGS = {
    "segment_bytes": 16_384,
    "queue_file_bytes": 2_000,
    "index_slots_max": 64,
    "index_entries_max": 200,
    "disk_full_percent": 100,
}
ROLLING = {"segment_bytes": 4096}  # A list or a run takes several of these files.
Append = Callable[[MessageStore, int], int]  # Appends from a number on; how many messages.


class Interruption(BaseException):
    """What the handler raises."""


def message(n: int, queue_id: int = 0) -> Message:
    return Message("T", b"%d|" % n + b"x" * 150, keys=[f"k{n}"], queue_id=queue_id)


def append(store: MessageStore, n: int) -> int:
    store.append(message(n))
    return 1


def append_many(store: MessageStore, n: int) -> int:
    store.append_many([message(one) for one in range(n, n + 3)])
    return 3


def append_run(store: MessageStore, n: int) -> int:
    store.append_many([message(one) for one in range(n, n + 40)])
    return 40


def append_batch(store: MessageStore, n: int) -> int:
    store.append_batch(MessageBatch(Message("T"), [BatchItem(message(one).body) for one in range(n, n + 3)]))
    return 3


def append_async(store: MessageStore, n: int) -> int:
    store.append_async(message(n)).result(10)
    return 1


def append_to_new_queue(store: MessageStore, n: int) -> int:
    store.append(message(n, 1 + n))
    return 1


# An interruption may come in code that the interpreter runs by itself (a callback of a weak reference, `__del__`): it
# can only report that.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
WAYS: dict[str, tuple[Append, KernelUse]] = {
    "append": (append, KernelUse.NEVER),
    "append_many": (append_many, KernelUse.NEVER),
    "append_run": (append_run, KernelUse.ALWAYS),
    "append_batch": (append_batch, KernelUse.NEVER),
    "append_async": (append_async, KernelUse.NEVER),
    "new_queue": (append_to_new_queue, KernelUse.NEVER),
}


class LogFiles(RealFiles):
    """The disk. Knows which threads have made log files, and takes its time for them if it is `slow`."""

    def __init__(self) -> None:
        self.makers: set[str] = set()
        self.slow = False

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        if path.parent.name == "commitlog":
            self.makers.add(threading.current_thread().name)
            time.sleep(0.002 * self.slow)
        return super().create(path, size, fallocate=fallocate)


def nothing() -> None:
    """There is nothing to prepare."""


def always() -> bool:
    return True


class Trial:
    """A store that is appended to, and what was acknowledged."""

    def __init__(self, root: Path, way: str, flush: FlushDisk, **changed: int) -> None:
        self.way, kernels = WAYS[way]
        self._settings = StoreSettings(**SETTINGS | changed, flush=flush, kernels=kernels)  # type: ignore[arg-type]
        self.root, self.files = root, LogFiles()
        self.store = MessageStore.open(root, self._settings, files=self.files)
        self.acknowledged: set[int] = set()
        self.n = 0

    def append(self) -> None:
        """Append once more; what is acknowledged is noted even if an interruption comes right after."""
        n, self.n = self.n, self.n + 1000
        count = self.way(self.store, n)
        self.acknowledged.update(range(n, n + count))

    def check_usable(self) -> None:
        """No lock is held, and messages are taken and given back."""
        writer = self.store.engine.writer
        assert not writer.put_lock.lock.locked()
        assert writer.held_ms == 0
        before = writer.next_offsets().get(("T", 0), 0)
        n, self.n = self.n, self.n + 1000
        assert self.store.append(message(n)).queue_offset == before
        self.acknowledged.add(n)
        self.check_log()

    def check_log(self) -> None:
        """The log has no hole: each file begins where the one before ends, and the newest of them are there."""
        segments = self.store.engine.log.segments.all[-8:]
        assert all(one.end == after.start for one, after in pairwise(segments))
        missing = [segment.path.name for segment in segments if not segment.path.exists()]
        assert not missing

    def check_closed(self) -> None:
        """After a close everything acknowledged is there, and the store is sound."""
        if not self.store.closed:
            self.store.close()
        report = verify(self.root)
        assert report.is_sound, report.flaws
        with MessageStore.open(self.root, self._settings) as again:
            assert again.recovery.clean
            found = [int(one.body[: one.body.index(b"|")]) for one in again.scan()]
            assert len(found) == len(set(found))
            assert self.acknowledged <= set(found), sorted(self.acknowledged - set(found))
            assert again.message_count("T", 0) == sum(1 for one in again.scan() if one.queue_id == 0)
            for queue_id in again.topics()["T"]:
                offsets = [one.queue_offset for one in again.scan() if one.queue_id == queue_id]
                assert offsets == list(range(len(offsets)))


# -- by lines ----------------------------------------------------------------------------------------------------


def is_out_of_reach(frame: FrameType, seen: set[tuple[FrameType, int]]) -> bool:
    """Is this a line event where no handler of a signal can run?"""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    key = (frame, frame.f_lineno)
    if not text.startswith("with "):
        return text == "try:"
    if key in seen:
        return True
    seen.add(key)
    return False


class Tracer:
    """Raises at the n-th line of the traced source that this thread runs while `counts()`."""

    def __init__(self, nth: int, traced: tuple[str, ...], counts: Callable[[], bool]) -> None:
        self.left, self.place = nth, ""
        self._traced, self._counts = traced, counts
        self._seen: set[tuple[FrameType, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._traced):
            return None
        if event == "line" and not is_out_of_reach(frame, self._seen) and self._counts():
            self.left -= 1
            if self.left == 0:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise Interruption(self.place)
        return self

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


@contextmanager
def interruptible() -> Iterator[None]:
    """What is done here may be interrupted. Python's own locks may answer that with a RuntimeError."""
    try:
        yield
    except Interruption:
        pass
    except RuntimeError as problem:
        if not isinstance(problem.__context__, Interruption):
            raise


def interrupt_each_line(
    trial: Trial,
    step: int,
    prepare: Callable[[], None] = nothing,
    counts: Callable[[], bool] = always,
    traced: tuple[str, ...] = (SOURCE, THREADING),
) -> int:
    """Interrupt an append at every `step`-th line it runs, one line a time; how often."""
    nth, rounds = 1, 0
    while True:
        prepare()
        tracer = Tracer(nth, traced, counts)
        with interruptible(), tracer.tracing():
            trial.append()
        if not tracer.place:
            return rounds
        try:
            trial.check_usable()
        except BaseException as problem:
            raise AssertionError(f"interrupted at {tracer.place}") from problem
        nth, rounds = nth + step, rounds + 1


@UNRAISABLE
@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("way", WAYS)
def test_an_append_interrupted_at_any_line_leaves_the_store_usable(tmp_path: Path, way: str, flush: FlushDisk) -> None:
    trial = Trial(tmp_path / "s", way, flush)
    trial.append()
    assert interrupt_each_line(trial, 1) > 20
    trial.check_closed()


# -- by lines, while a log file is full ----------------------------------------------------------------------------

# Of the next log file, when the writer wants it.
ALLOCATION = ("made ahead", "being made", "made by the writer")


def fill_file(trial: Trial) -> None:
    """Append one by one, until the next one does not fit the file."""
    log, size = trial.store.engine.log, 0
    while log.active is None or log.active.size - log.active.wrote >= size + BLANK_BYTES:
        size = trial.store.append(message(trial.n)).size
        trial.acknowledged.add(trial.n)
        trial.n += 1000


def wait_for_file_ahead(trial: Trial) -> None:
    allocator, last = trial.store.engine.services.allocator, trial.store.engine.log.segments.last
    deadline = time.monotonic() + 10
    while last is not None and last.end not in allocator.ready:
        assert time.monotonic() < deadline
        time.sleep(0.0001)


def interrupt_each_line_of_rolling(
    root: Path, way: str, flush: FlushDisk, allocation: str, step: int, traced: tuple[str, ...] = (SOURCE, THREADING)
) -> int:
    """Interrupt appends that do not fit the file at every `step`-th line that is run with the put lock held."""
    trial = Trial(root, way, flush, **ROLLING)
    trial.files.slow = allocation == "being made"
    if allocation == "made by the writer":
        trial.store.engine.services.allocator.close()

    def prepare() -> None:
        fill_file(trial)
        if allocation == "made ahead":
            wait_for_file_ahead(trial)

    rounds = interrupt_each_line(trial, step, prepare, trial.store.engine.writer.put_lock.lock.locked, traced)
    makers = threading.main_thread().name if allocation == "made by the writer" else "embermq-allocator"
    assert trial.files.makers == {makers}
    trial.check_closed()
    return rounds


@UNRAISABLE
@pytest.mark.parametrize("allocation", ALLOCATION)
@pytest.mark.parametrize("way", WAYS)
def test_an_append_that_rolls_may_be_interrupted_at_any_line(tmp_path: Path, way: str, allocation: str) -> None:
    assert interrupt_each_line_of_rolling(tmp_path / "s", way, FlushDisk.ASYNC, allocation, 11) > 4


@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("way", WAYS)
def test_only_the_allocator_makes_files_wherever_threading_is_interrupted(
    tmp_path: Path, way: str, flush: FlushDisk
) -> None:
    """An exception inside `Thread.is_alive` lets Python take a thread that works for one that has stopped. Two threads
    that make the same file take it away from each other."""
    interrupt_each_line_of_rolling(tmp_path / "s", way, flush, "being made", 1, (THREADING,))


@pytest.mark.parametrize("way", WAYS)
def test_an_append_goes_on_after_one_that_was_interrupted_when_the_log_had_rolled(tmp_path: Path, way: str) -> None:
    """The full file is sealed then, and nothing may be written there."""
    trial = Trial(tmp_path / "s", way, FlushDisk.ASYNC, **ROLLING)
    log = trial.store.engine.log
    for nth in range(1, 16):
        fill_file(trial)
        full = log.active
        assert full is not None
        tracer = Tracer(nth, (SOURCE,), lambda full=full: log.segments.last is not full)  # type: ignore[misc]
        with interruptible(), tracer.tracing():
            trial.append()
        if log.active is full:
            full.seal()  # As the allocator does, now or soon.
        trial.append()
        trial.check_usable()
    trial.check_closed()


@pytest.mark.long
@UNRAISABLE
@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("allocation", ALLOCATION)
@pytest.mark.parametrize("way", WAYS)
def test_each_line_of_an_append_that_rolls(tmp_path: Path, way: str, allocation: str, flush: FlushDisk) -> None:
    assert interrupt_each_line_of_rolling(tmp_path / "s", way, flush, allocation, 1) > 50


# -- by time -----------------------------------------------------------------------------------------------------


@contextmanager
def alarms() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def storm(trial: Trial, rounds: int, seconds_max: float, seed: int) -> int:
    """Appends, each with an alarm that comes some time after its beginning; how many were interrupted."""
    chance, interrupted = random.Random(seed), 0
    with alarms():
        for _ in range(rounds):
            interrupted += 1
            with interruptible():
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, seconds_max))
                trial.append()
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupted -= 1
            signal.setitimer(signal.ITIMER_REAL, 0)
    return interrupted


@UNRAISABLE
@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("way", WAYS)
def test_appends_in_a_storm_of_alarms(tmp_path: Path, way: str, flush: FlushDisk) -> None:
    trial = Trial(tmp_path / "s", way, flush)
    trial.append()
    interrupted = storm(trial, 150, 4e-4, 7)
    assert interrupted
    trial.check_usable()
    trial.check_closed()


@pytest.mark.long
@UNRAISABLE
@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("way", WAYS)
def test_a_long_storm_of_alarms(tmp_path: Path, way: str, flush: FlushDisk) -> None:
    trial = Trial(tmp_path / "s", way, flush)
    trial.append()
    for seed in range(20):
        storm(trial, 500, chance_of(seed), seed)
        trial.check_usable()
    trial.check_closed()


def chance_of(seed: int) -> float:
    return float(5e-5 * 2 ** (seed % 5))


# -- closing -----------------------------------------------------------------------------------------------------


@UNRAISABLE
@pytest.mark.parametrize("flush", FlushDisk)
def test_a_close_interrupted_at_any_moment_ends_and_gives_the_lock_back(tmp_path: Path, flush: FlushDisk) -> None:
    """By the same call, or by the next one; what was acknowledged is there either way."""
    chance = random.Random(3)
    for number in range(12):
        trial = Trial(tmp_path / f"s{number}", "append", flush)
        for _ in range(5):
            trial.append()
        with alarms():
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 0.02))
                trial.store.close()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Interruption, EmberError, RuntimeError):
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
        trial.store.close()
        with MessageStore.open(trial.root, trial._settings) as again:  # The lock was given back.
            found = {int(one.body[: one.body.index(b"|")]) for one in again.scan()}
        assert trial.acknowledged <= found


@UNRAISABLE
@pytest.mark.parametrize("file", ["store/engine.py", "store/recovery/parts.py", "store/layout/fence.py"])
def test_a_close_interrupted_at_any_line_is_finished_by_the_next_call(tmp_path: Path, file: str) -> None:
    """Also one that was interrupted when the lock had been given back, and nothing may be written any more."""
    settled = False
    for nth in range(1, 200):
        trial = Trial(tmp_path / f"s{nth}", "append", FlushDisk.SYNC)
        trial.append()
        tracer = Tracer(nth, (str(Path(SOURCE) / file),), always)
        with interruptible(), tracer.tracing():
            trial.store.close()
        trial.store.close()
        assert trial.store.closed, tracer.place
        with MessageStore.open(trial.root, trial._settings) as again:
            assert [one.body for one in again.scan()] == [message(0).body], tracer.place
        shutil.rmtree(trial.root)
        settled = not tracer.place
        if settled:
            break
    assert settled
