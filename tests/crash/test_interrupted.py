"""A signal handler raises in the middle of an append: Ctrl-C in a notebook, an alarm.

Two ways. By lines: a tracer raises at each line of our source that an append runs, one line a round. By time: real
signals from an interval timer, at any moment. Afterwards no lock is held, the store takes messages and gives them back,
everything that was acknowledged is there, and it closes as a store that `verify` calls sound. A message whose append
was interrupted may be there or not; its queue has neither a gap nor one offset twice.

Handlers of signals run after calls, at the beginning of functions and at the ends of loops. A tracer is also called
where they never run: at `try`, and a second time at `with`, when its block is left. It does not raise there.
"""

import linecache
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from embermq import BatchItem, Message, MessageBatch, MessageStore
from embermq.errors import EmberError
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk, KernelUse, StoreSettings

SOURCE = str(Path(sys.modules[MessageStore.__module__].__file__ or "").parents[1])
SETTINGS = {
    "segment_bytes": 16_384,
    "queue_file_bytes": 2_000,
    "index_slots_max": 64,
    "index_entries_max": 200,
    "disk_full_percent": 100,
}
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


# An alarm may come while the interpreter runs a callback of its own (of a weak reference); it can only report that.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
WAYS: dict[str, tuple[Append, KernelUse]] = {
    "append": (append, KernelUse.NEVER),
    "append_many": (append_many, KernelUse.NEVER),
    "append_run": (append_run, KernelUse.ALWAYS),
    "append_batch": (append_batch, KernelUse.NEVER),
    "append_async": (append_async, KernelUse.NEVER),
    "new_queue": (append_to_new_queue, KernelUse.NEVER),
}


def settings(flush: FlushDisk, kernels: KernelUse) -> StoreSettings:
    return StoreSettings(**SETTINGS, flush=flush, kernels=kernels)  # type: ignore[arg-type]


class Trial:
    """A store that is appended to, and what was acknowledged."""

    def __init__(self, root: Path, way: str, flush: FlushDisk) -> None:
        self.way, kernels = WAYS[way]
        self.root, self._settings = root, settings(flush, kernels)
        self.store = MessageStore.open(root, self._settings)
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
        assert not writer._lock.locked()
        assert writer.held_ms == 0
        before = writer.next_offsets().get(("T", 0), 0)
        n, self.n = self.n, self.n + 1000
        assert self.store.append(message(n)).queue_offset == before
        self.acknowledged.add(n)

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


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(SOURCE)


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
    """Raises at the n-th line of our source that this thread runs; counts them."""

    def __init__(self, nth: int) -> None:
        self.left, self.place = nth, ""
        self._seen: set[tuple[FrameType, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_ours(frame):
            return None
        if event == "line" and not is_out_of_reach(frame, self._seen):
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


def interrupt_each_line(trial: Trial, step: int, call: Callable[[], None]) -> int:
    """Interrupt `call` at every `step`-th line it runs, one line a time; how often."""
    nth, rounds = 1, 0
    while True:
        tracer = Tracer(nth)
        try:
            with tracer.tracing():
                call()
        except Interruption:
            pass
        if not tracer.place:
            return rounds
        try:
            trial.check_usable()
        except BaseException as problem:
            raise AssertionError(f"interrupted at {tracer.place}") from problem
        nth, rounds = nth + step, rounds + 1


@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("way", WAYS)
def test_an_append_interrupted_at_any_line_leaves_the_store_usable(tmp_path: Path, way: str, flush: FlushDisk) -> None:
    trial = Trial(tmp_path / "s", way, flush)
    trial.append()
    assert interrupt_each_line(trial, 1, trial.append) > 20
    trial.check_closed()


def test_an_append_that_rolls_may_be_interrupted_at_any_line(tmp_path: Path) -> None:
    """Each interrupted append is the first that does not fit the file."""
    trial = Trial(tmp_path / "s", "append", FlushDisk.ASYNC)

    def append_at_the_end_of_a_file() -> None:
        trial.append()

    def fill() -> None:
        log = trial.store.engine.log
        while log.active is None or log.active.size - log.active.wrote > 400:
            append(trial.store, trial.n)
            trial.acknowledged.add(trial.n)
            trial.n += 1000

    nth, rounds = 1, 0
    while True:
        fill()
        tracer = Tracer(nth)
        try:
            with tracer.tracing():
                append_at_the_end_of_a_file()
                append_at_the_end_of_a_file()
        except Interruption:
            pass
        if not tracer.place:
            break
        try:
            trial.check_usable()
        except BaseException as problem:
            raise AssertionError(f"interrupted at {tracer.place}") from problem
        nth, rounds = nth + 3, rounds + 1
    assert rounds > 20
    trial.check_closed()


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
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, seconds_max))
                trial.append()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interruption:
                interrupted += 1
            except RuntimeError as problem:  # Python's own locks may answer an interruption with this.
                if not isinstance(problem.__context__, Interruption):
                    raise
                interrupted += 1
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
