"""Rounds of kill -9: a real process appends and reports, is killed, and what it left is looked at and opened again.

    child       tests.crash.writer_child or retention_child, which gets where to go on
    moment      any: after a random number of messages, or after a random time, in the middle of its start too
    looked at   `verify` of what lies there, then the store opened, every message checked, and `verify` after closing

A `Figures` adds up what was seen, for the page that says so.
"""

import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embermq import MessageStore, StoreSettings
from embermq.repair.verify.store_check import verify
from tests.crash import numbered

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Figures:
    """What rounds have shown. Rounds that end with an error are not in here: they are failures of their test."""

    acknowledged: int = 0  # messages, over all rounds
    found: int = 0  # messages looked at, over all rounds
    opening_seconds: list[float] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return len(self.opening_seconds)

    def add(self, other: "Figures") -> None:
        self.acknowledged += other.acknowledged
        self.found += other.found
        self.opening_seconds += other.opening_seconds

    def __str__(self) -> str:
        median, most = statistics.median(self.opening_seconds), max(self.opening_seconds)
        return (
            f"{self.rounds} rounds, {self.acknowledged:,} messages acknowledged, 0 lost,"
            f" {self.found:,} looked at; opening after a kill: median {median * 1000:.0f} ms, most {most * 1000:.0f} ms"
        )


class Child:
    """The writing process, seen from outside."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"tests.crash.{module}", *map(str, arguments)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        self.text = b""

    @classmethod
    def writing(cls, directory: Path, first: int, settings: dict[str, Any], module: str = "writer_child") -> "Child":
        return cls(module, directory, first, json.dumps(settings))

    @property
    def lines(self) -> list[bytes]:
        """Whole lines that were heard."""
        return self.text[: self.text.rfind(b"\n") + 1].splitlines()

    @property
    def acknowledged(self) -> int:
        """Numbers below this were acknowledged, as far as it was heard; -1 before the store was open."""
        lines = self.lines
        return int(lines[-1]) if lines else -1

    def listen(self, until: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Hear reports until number `until` is acknowledged, or for so long."""
        deadline = time.monotonic() + seconds
        while self.acknowledged < until and (left := deadline - time.monotonic()) > 0:
            self.hear(left)

    def hear(self, seconds: float) -> None:
        """Take what it says next, within so long."""
        poll = select.poll()  # Unlike select, it takes descriptors of any number.
        poll.register(self._pipe, select.POLLIN)
        if poll.poll(seconds * 1000):
            text = os.read(self._pipe, 1 << 16)
            assert text, f"the child ended by itself: {self._process.wait()}"
            self.text += text

    def wait_or_kill(self, seconds: float) -> int:
        """The exit code: of its own death within so long, or of SIGKILL."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            poll = select.poll()
            poll.register(self._pipe, select.POLLIN)
            if poll.poll(100):
                self.text += os.read(self._pipe, 1 << 16)  # Or it would stand still, its pipe full.
        self._process.kill()
        self._process.stdout.close()
        return self._process.wait()

    def kill(self) -> int:
        """SIGKILL; what had been acknowledged by then, all of it heard."""
        self.kill_quietly()
        return self.acknowledged

    def kill_quietly(self) -> None:
        """SIGKILL, and hear the last of it."""
        self._process.send_signal(signal.SIGKILL)
        assert self._process.stdout is not None
        self.text += self._process.stdout.read()
        self._process.stdout.close()
        assert self._process.wait() == -signal.SIGKILL


class KillRounds:
    """Kills children that write to stores below `directory`, again and again."""

    def __init__(self, directory: Path, settings: dict[str, Any], seed: int, *, retention: bool = False) -> None:
        self._directory, self._settings, self._retention = directory, settings, retention
        self._source = random.Random(seed)
        self._number = 0
        self.figures = Figures()

    def run(self, rounds: int, *, at_least: int = 0, at_most: int, stored_max: int) -> Figures:
        """So many rounds, each killed after at_least..at_most messages; a new store after `stored_max` of them."""
        stored = first = 0
        store = self._directory / "store"
        for number in range(rounds):
            self._number = number
            acknowledged = max(self._one_child(store, stored, at_least, at_most), stored)
            self.figures.acknowledged += acknowledged - stored
            check_sound(store)
            stored, first = self._open_and_check(store, acknowledged, first)
            check_sound(store)
            if stored - first > stored_max:
                store, stored, first = self._directory / f"store{number}", 0, 0
        return self.figures

    def _one_child(self, store: Path, stored: int, at_least: int, at_most: int) -> int:
        source = self._source
        child = Child.writing(store, stored, self._settings, "retention_child" if self._retention else "writer_child")
        if self._number % 5 == 4:  # At any time since it was started, most often while it opens the store.
            child.listen(stored + at_most, 0.3 + source.random())
        else:
            child.listen(stored)  # The store is open.
            child.listen(stored + source.randrange(at_least, at_most))
            time.sleep(source.random() * 0.003)
        return child.kill()

    def _open_and_check(self, store: Path, acknowledged: int, first: int) -> tuple[int, int]:
        """Where numbers end and begin after it, one more appended."""
        began = time.monotonic()
        with MessageStore.open(store, StoreSettings(**self._settings)) as opened:
            self.figures.opening_seconds.append(time.monotonic() - began)
            assert not opened.recovery.damages, opened.recovery
            found = numbered.check(opened, damaged=self._retention)
            where = f"round {self._number}: {acknowledged} acknowledged, {len(found)} found, {opened.recovery}"
            start = found[0] if found else 0
            assert found == list(range(start, start + len(found))), where
            assert start + len(found) >= acknowledged, where
            assert start >= first if self._retention else start == 0, where
            numbered.check_next_offsets(opened, start + len(found))
            self.figures.found += len(found)
            return numbered.append_until(opened, start + len(found), start + len(found) + 1), start


def check_sound(store: Path) -> None:
    """`verify` finds no fault in what lies there; a store that was never made has none."""
    if (store / "commitlog").exists():
        report = verify(store)
        assert report.is_sound, [flaw for flaw in report.flaws if flaw.is_fault]
