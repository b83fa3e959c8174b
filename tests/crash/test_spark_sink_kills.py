"""kill -9 of whoever takes part in a micro-batch, on observed progress: sink rows equal source rows, none twice.

Twice: committing processes alone, many times; and real Spark, of which the committing process, a worker that stages,
or the driver with everything below it is killed when the files show how far they are.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from embermq import MessageStore
from embermq.files import RealFiles
from embermq.spark.writing.commits import Committer
from embermq.store.layout.owner import lock_holder
from tests.crash.sink_batches import QUERY, Sink, check_queues, rows_in
from tests.crash.sink_child import SETTINGS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 600.0
LOOK_SECONDS = 0.001


def start(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )


# -- committing processes alone ----------------------------------------------------------------------------------


class Child:
    """A committing process, seen from outside."""

    def __init__(self, store: Path, first: int, attempt: int, rows: int) -> None:
        self.process = start("tests.crash.sink_child", str(store), str(first), str(attempt), str(rows))
        assert self.process.stdout is not None
        self._pipe = self.process.stdout
        self._text = b""

    @property
    def lines(self) -> list[str]:
        return self._text[: self._text.rfind(b"\n") + 1].decode().splitlines()

    def listen(self, count: int) -> None:
        """Hear until it has said so many lines."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        poll = select.poll()
        poll.register(self._pipe.fileno(), select.POLLIN)
        while len(self.lines) < count:
            left = deadline - time.monotonic()
            assert left > 0, self.lines
            if poll.poll(left * 1000):
                text = os.read(self._pipe.fileno(), 1 << 16)
                assert text, f"the child ended by itself: {self.process.wait()}"
                self._text += text

    def kill(self) -> int:
        """SIGKILL; how many batches it said it had committed, all of it heard."""
        self.process.kill()
        self._text += self._pipe.read()
        self._pipe.close()
        assert self.process.wait() == -signal.SIGKILL
        return sum(line.startswith("committed") for line in self.lines)


def kill_children(store: Path, rounds: int, seed: int, rows: int = 600) -> int:
    """Kill one committing process after another; how often a batch was found half appended."""
    source = random.Random(seed)
    wanted = [(partition, row) for partition, count in enumerate((rows, rows // 2)) for row in range(count)]
    committed = halves = 0
    for attempt in range(rounds):
        child = Child(store, committed, attempt, rows)
        child.listen(1 + source.randrange(6))
        if source.random() < 0.7:
            wait_for(store / "embermq.commits" / "append.json", child.process)
        time.sleep(source.random() * 0.02)
        committed += child.kill()
        with MessageStore.open(store, SETTINGS) as opened:
            assert not opened.recovery.damages, opened.recovery
            found = rows_in(opened)
        whole, rest = divmod(len(found), len(wanted))
        halves += rest > 0
        expected = [(batch, *row) for batch in range(whole + 1) for row in wanted][: len(found)]
        assert [one.number for one in found] == expected, f"round {attempt}"
        assert whole >= committed, f"round {attempt}: {committed} were committed"
    Committer(store, SETTINGS).finish()
    with MessageStore.open(store, SETTINGS) as opened:
        found = rows_in(opened)
        check_queues(opened)
    assert len(found) % len(wanted) == 0
    assert [one.number for one in found] == [(b, *row) for b in range(len(found) // len(wanted)) for row in wanted]
    for batch in range(len(found) // len(wanted)):
        assert len({one.attempt for one in found if one.batch == batch}) == 1
    return halves


def wait_for(file: Path, process: "subprocess.Popen[bytes]") -> None:
    def goes_on() -> None:
        assert process.poll() is None, "the child ended by itself"

    wait_until(file.exists, f"{file.name} is there", seconds=PATIENCE_SECONDS, look_seconds=LOOK_SECONDS, check=goes_on)


def test_committing_processes_are_killed(tmp_path: Path) -> None:
    kill_children(tmp_path / "store", rounds=4, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_committing_processes_are_killed_many_times(tmp_path: Path, seed: int) -> None:
    assert kill_children(tmp_path / "store", rounds=30, seed=seed) > 0


def test_an_append_cut_short_is_finished_whoever_comes(tmp_path: Path) -> None:
    """The process is stopped when the decision is on the disk, so that the kill is sure to come before the end."""
    store = tmp_path / "store"
    child = Child(store, 0, 0, 2_000)
    journal = store / "embermq.commits" / "append.json"
    while True:
        wait_for(journal, child.process)
        os.kill(child.process.pid, signal.SIGSTOP)
        if journal.exists():
            break
        os.kill(child.process.pid, signal.SIGCONT)  # It was faster; there will be another batch.
    committed = child.kill()
    assert journal.exists()
    other = Sink(store, RealFiles(), SETTINGS, query="query-other", topic="Other")
    other.run(0)
    assert not journal.exists()
    with MessageStore.open(store, SETTINGS) as opened:
        found = [one.number for one in rows_in(opened)]
        assert len(found) == len(set(found)) == 3_000 * (committed + 1)
        assert len(rows_in(opened, "Other")) == 9
    again = Sink(store, RealFiles(), SETTINGS, partitions=(10, 5))
    assert again.query == QUERY
    assert again.run(committed, attempt=1) == 0


# -- Spark -------------------------------------------------------------------------------------------------------

Moment = Literal["staging", "decided", "appending", "noted"]
Victim = Literal["process", "everything"]


class Stream:
    """A stream of JSON files into a store, in a driver of its own."""

    def __init__(self, place: Path, batches: int, rows: int) -> None:
        self.place, self.store = place, place / "store"
        (place / "source").mkdir(parents=True)
        self.bodies: list[str] = []
        self._batches, self._rows, self._files = batches, rows, 0
        self.feed()
        self._start()

    def feed(self) -> None:
        """More to do: two files for each of so many micro-batches."""
        for number in range(self._files, self._files + 2 * self._batches):
            bodies = [f"{number}:{row}" for row in range(self._rows)]
            path = self.place / "source" / f"{number:05}.json"
            path.write_text("".join(json.dumps({"body": body, "keys": body}) + "\n" for body in bodies))
            os.utime(path, (1_700_000_000 + number,) * 2)
            self.bodies += bodies
        self._files += 2 * self._batches

    def _start(self) -> None:
        settings = {
            "topic": "orders",
            "settings.mappedFileSizeCommitLog": str(1 << 22),
            "settings.maxHashSlotNum": "1000",
            "settings.maxIndexNum": "100000",
            "settings.mappedFileSizeConsumeQueue": "200000",
        }
        self.process = start("tests.crash.sink_driver", str(self.place), json.dumps(settings))

    # What the files show.

    @property
    def noted(self) -> int:
        """The newest batch that our journal has."""
        for path in (self.store / "embermq.commits").glob("query-*.json"):
            return int(json.loads(path.read_bytes())["batch"])
        return -1

    @property
    def is_decided(self) -> bool:
        return (self.store / "embermq.commits" / "append.json").exists()

    def process_at(self, moment: Moment) -> int | None:
        """The process that stands at this moment now."""
        if moment == "staging":
            return self._process_that_stages()
        return lock_holder(self.store) if self.is_decided else None

    def _process_that_stages(self) -> int | None:
        """A worker that has a file below the staging directory open. One made without a name never shows it."""
        place = f"{self.store}/embermq.staging/"
        for pid in descendants(self.process.pid):
            try:
                names = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                continue
            if any(name.startswith(place) for name in names):
                return pid
        return None

    def kill_at(self, moment: Moment, victim: Victim, pause_seconds: float) -> None:
        """Wait for the moment and kill."""
        noted = self.noted
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            pid = None if moment == "noted" else self.process_at(moment)
            if pid is not None or (moment == "noted" and self.noted > max(noted, 0)):
                break
            assert time.monotonic() < deadline, f"{moment} never came"
            if self.process.poll() is not None:  # Through before we looked.
                self.wait()
                self.feed()
                self._start()
            time.sleep(LOOK_SECONDS)
        if moment == "appending":
            time.sleep(pause_seconds)
        if victim == "process" and pid is not None:
            kill(pid)
        else:
            self.kill_everything()
            self._start()

    def kill_everything(self) -> None:
        """The driver, its JVM, and every Python process below. Of one that has ended, the number may be another's."""
        if self.process.poll() is not None:
            return
        for pid in (*reversed(list(descendants(self.process.pid))), self.process.pid):
            kill(pid)
        self.process.communicate()

    def wait(self) -> None:
        """Until all is processed."""
        text, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, text.decode()

    def check(self) -> None:
        """Sink rows equal source rows, and a consumer would get the same."""
        settings = SETTINGS.replace(
            segment_bytes=1 << 22, index_slots_max=1000, index_entries_max=100_000, queue_file_bytes=200_000
        )
        with MessageStore.open(self.store, settings) as opened:
            assert not opened.recovery.damages
            found = [one.body.decode() for one in opened.scan()]
            twice = [body for body, count in Counter(found).items() if count > 1]
            assert not twice, f"{len(twice)} rows twice: {twice[:3]}"
            missing = set(self.bodies) - set(found)
            assert not missing, f"{len(missing)} rows lost: {sorted(missing)[:3]}"
            assert len(found) == len(self.bodies)
            check_queues(opened, "orders")
            for body in (self.bodies[0], self.bodies[-1]):
                assert [one.body.decode() for one in opened.find("orders", body)] == [body]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It was faster.


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`, parents first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    waiting = list(parents.get(pid, []))
    while waiting:
        one = waiting.pop(0)
        yield one
        waiting += parents.get(one, [])


@pytest.mark.slow(70)
def test_spark_is_killed_between_the_steps_of_a_micro_batch(tmp_path: Path) -> None:
    stream = Stream(tmp_path, batches=4, rows=3_000)
    try:
        stream.kill_at("staging", "process", 0.0)
        stream.kill_at("decided", "process", 0.0)
        stream.kill_at("appending", "everything", 0.01)
        stream.wait()
    finally:
        stream.kill_everything()
    stream.check()


@pytest.mark.long
def test_spark_is_killed_thirty_times(tmp_path: Path) -> None:
    source = random.Random(7)
    for series in range(3):
        stream = Stream(tmp_path / str(series), batches=20, rows=4_000)
        try:
            for _ in range(10):
                moment: Moment = source.choice(("staging", "decided", "appending", "noted"))
                victim: Victim = source.choice(("process", "everything"))
                stream.kill_at(moment, victim, source.random() * 0.1)
            stream.wait()
        finally:
            stream.kill_everything()
        stream.check()
