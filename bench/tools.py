"""Tools: how fast a store is dumped and a key is found, and what memory the commands take.

The commands run as a user runs them, in a process of their own, start included, with their output thrown away.
A look-up by key is measured in one process with the store open and its files in memory: what a program that keeps
looking things up gets. Peaks count anonymous memory only (RssAnon): the rest is page cache.
"""

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

from bench.answers import DIGITS, joined
from bench.course import GIB, MIB, Course
from bench.figures import Figure, at_least, at_most
from bench.workload import FIRST_NUMBER, TOPIC, Form, fill, messages_in, quiet
from embermq.inspect.dump import Dump
from embermq.inspect.lookup import find_messages
from embermq.inspect.snapshot import DamagedRange, Survey

NAME = "tools"
ABOUT = "dump, find, trace and load over a store directory"
BODIES = {"1 KiB": 1024, "100 B": 100}
DUMP_TARGET = 150_000
FIND_TARGET_MS = 5.0
PEAK_TARGET_MB = 300
_WATCH_SECONDS = 0.005


def run(course: Course) -> list[Figure]:
    figures = [figure for case, body_bytes in BODIES.items() for figure in _dump(course, case, body_bytes)]
    return [*figures, *_find(course), *_memory(course)]


# -- dump ------------------------------------------------------------------------------------------------------


def _dump(course: Course, case: str, body_bytes: int) -> list[Figure]:
    messages = course.pick(3_000, 1_000_000)
    commands, inside = [], []
    with course.scratch() as scratch:
        path = scratch / "store"
        fill(path, course.settings(), body_bytes=body_bytes, messages=messages)
        answer, count = _lines_answer(path)
        assert count == messages, (count, messages)
        for _ in range(course.rounds):
            quiet()
            commands.append(_command_seconds("dump", path))
            began = time.perf_counter()
            _lines_answer(path, hashed=False)
            inside.append(time.perf_counter() - began)
    return [
        Figure(
            f"dump, {case}",
            "command, start included",
            "msg/s",
            [messages / s for s in commands],
            at_least(DUMP_TARGET) if course.size == "full" else None,
            answer,
        ),
        Figure(f"dump, {case}", "lines alone", "msg/s", [messages / s for s in inside], at_least(DUMP_TARGET), answer),
    ]


def _lines_answer(path: Path, *, hashed: bool = True) -> tuple[str, int]:
    """Hash of all lines, and how many there are."""
    digest = hashlib.sha256()
    job = Dump(Survey.open(path))
    for piece in job.pieces():
        assert not isinstance(piece, DamagedRange), piece
        if hashed:
            digest.update(piece)
    return digest.hexdigest()[:DIGITS], job.messages


def _command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "embermq.cli", "store", *map(str, words)]


def _command_seconds(*words: str | Path) -> float:
    began = time.perf_counter()
    subprocess.run(_command(*words), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


# -- find ------------------------------------------------------------------------------------------------------


def _find(course: Course) -> list[Figure]:
    keys = course.pick(5_000, 1_000_000)
    lookups = course.pick(100, 2_000)
    with course.scratch() as scratch:
        path = scratch / "store"
        fill(path, course.settings(), body_bytes=100, messages=keys, form=Form.TAGS_AND_KEYS)
        survey = Survey.open(path)
        chosen = random.Random(7).choices(range(FIRST_NUMBER, FIRST_NUMBER + keys), k=lookups)
        answer = joined([_look_up(survey, number)[2] for number in chosen])
        worst, middle, own = [], [], []
        for _ in range(course.rounds):
            quiet()
            taken = [_look_up(survey, number) for number in chosen]
            worst.append(_share([one[0] for one in taken], 0.99) * 1000)
            middle.append(_share([one[0] for one in taken], 0.5) * 1000)
            own.append(_share([one[1] for one in taken], 0.99) * 1000)
    case = f"find among {keys:,} keys"
    return [
        Figure(case, "p99, warm", "ms", worst, at_most(FIND_TARGET_MS), answer),
        Figure(case, "median, warm", "ms", middle, answer=answer),
        Figure(case, "p99, warm, processor time", "ms", own, answer=answer),
    ]


def _share(values: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    return sorted(values)[int(len(values) * share)]


def _look_up(survey: Survey, number: int) -> tuple[float, float, int]:
    """Seconds, seconds of the processor (others may keep it from us), and where the message is."""
    began, used = time.perf_counter(), time.thread_time()
    found = find_messages(survey, TOPIC, f"order-{number}")
    seconds, own = time.perf_counter() - began, time.thread_time() - used
    assert found.by_index
    assert len(found.messages) == 1, (number, found)
    return seconds, own, found.messages[0].physical_offset


# -- memory ----------------------------------------------------------------------------------------------------


def _memory(course: Course) -> list[Figure]:
    log_bytes = course.pick(4 * MIB, 4 * GIB)
    messages = messages_in(log_bytes, 1024)
    rounds = min(course.rounds, 2)  # Memory does not depend on what else the machine does.
    lines = course.pick(2_000, 200_000)
    with course.scratch() as scratch:
        path = scratch / "store"
        course.note(f"tools: filling a store of {log_bytes / MIB:,.0f} MiB")
        fill(path, course.settings(), body_bytes=1024, messages=messages)
        middle = f"order-{FIRST_NUMBER + messages // 2}"
        commands: dict[str, tuple[str | Path, ...]] = {
            "info": ("info", path),
            "dump": ("dump", path),
            "find": ("find", path, "--topic", TOPIC, "--key", middle),
            "trace": ("trace", path, "--key", middle),
        }
        peaks = {name: [peak_mb(words) for _ in range(rounds)] for name, words in commands.items()}
        with (scratch / "lines.jsonl").open("wb") as file:
            subprocess.run(_command("dump", path, "--limit", str(lines)), stdout=file, check=True)
        changed = course.settings().to_properties(changed_only=True)
        sizes = [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
        load_peak = peak_mb(("load", scratch / "copy", "--from", scratch / "lines.jsonl", *sizes))
    case = f"{log_bytes / MIB:,.0f} MiB"
    return [
        *(
            Figure(f"{name} of {case}", "anonymous, peak", "MB", values, at_most(PEAK_TARGET_MB))
            for name, values in peaks.items()
        ),
        Figure(f"load of {lines:,} lines", "anonymous, peak", "MB", [load_peak], at_most(PEAK_TARGET_MB)),
    ]


def peak_mb(words: tuple[str | Path, ...]) -> float:
    """The largest anonymous memory of a command, looked at all the while."""
    most = 0
    with subprocess.Popen(_command(*words), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, _anonymous_bytes(process.pid))
            time.sleep(_WATCH_SECONDS)
    assert process.returncode == 0, (words, process.returncode)
    return most / 1e6


def _anonymous_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)
