"""A store in a process of its own: to be killed, or to be watched from its first byte of memory on.

    python -m bench.fresh fill PATH BODY_BYTES MESSAGES SIZE     fills a store, says so, and waits for its end
    python -m bench.fresh open PATH SIZE                          opens and closes a store and tells what it took
    python -m bench.fresh idle PATH SIZE                          opens a store, rests, and tells its memory
    python -m bench.fresh write PATH BODY_BYTES PACE BYTES SIZE   appends so many bytes, so many of them a second

Each prints one line of JSON. The functions below run in the benchmark's process and start these.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.course import Course, Size
from embermq import MessageStore

Figures = dict[str, Any]
_WATCH_SECONDS = 0.005
_IDLE_SECONDS = 1.5  # A little more than a turn of the housekeeping.
_PACE_SECONDS = 0.01  # how often a steady writer looks at its clock
_WRITE_BATCH = 1024
_NEVER_MS = 24 * 3600 * 1000


class Watched(NamedTuple):
    """What a process printed, and its largest anonymous memory as seen from here."""

    figures: Figures
    anonymous_bytes_max: int


def start(*words: str | Path | int) -> "subprocess.Popen[bytes]":
    # Its standard input ends when we do, and so does it.
    command = [sys.executable, "-m", "bench.fresh", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def kill_after_filling(path: Path, *, body_bytes: int, messages: int, size: Size) -> Figures:
    """A store left behind by SIGKILL, with all it wrote still to be proven."""
    with start("fill", path, body_bytes, messages, size) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    figures: Figures = json.loads(line)
    assert (path / "abort").exists(), f"{path}: closed, not killed"
    return figures


def watch(*words: str | Path | int) -> Watched:
    """Run to the end, looking at its anonymous memory all the while."""
    with start(*words) as process:
        most = 0
        while process.poll() is None:
            most = max(most, _memory(process.pid).get("RssAnon", 0))
            time.sleep(_WATCH_SECONDS)
        assert process.stdout is not None
        line = process.stdout.read()
    if process.returncode != 0:
        raise RuntimeError(f"{words}: ended with {process.returncode}")
    return Watched(json.loads(line), most)


def _memory(pid: int | str = "self") -> dict[str, int]:
    """VmRSS, RssAnon, RssFile ... in bytes; empty when the process is gone."""
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = int(value.split()[0]) << 10
    return found


def _read_bytes() -> int:
    """What this process has read by read calls, from the disk or the page cache."""
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar: "))


# -- in the fresh process ------------------------------------------------------------------------------------


def _course(size: str) -> Course:
    return Course("smoke" if size == "smoke" else "full", 1, Path())


def _fill(path: str, body_bytes: str, messages: str, size: str) -> Figures:
    from bench.workload import fill

    # No proofs in between: recovery has the whole log to walk.
    settings = _course(size).settings().replace(queue_flush_thorough_interval_ms=_NEVER_MS)
    store = fill(Path(path), settings, body_bytes=int(body_bytes), messages=int(messages), close=False)
    return {"log_bytes": store.max_physical}


def _open(path: str, size: str) -> Figures:
    settings = _course(size).settings()
    read, faults = _read_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    cpu, began = time.process_time(), time.perf_counter()
    store = MessageStore.open(path, settings)
    figures: Figures = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "read_bytes": _read_bytes() - read,
        "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults,
        "clean": store.recovery.clean,
        "reason": store.recovery.reason,
        "records": store.recovery.records,
        "scanned_bytes": store.recovery.scanned_bytes,
        "log_end": store.max_physical,
    }
    store.close()
    return figures


def _idle(path: str, size: str) -> Figures:
    with MessageStore.open(path, _course(size).settings()):
        time.sleep(_IDLE_SECONDS)
        memory = _memory()
    return {"rss_mb": memory["VmRSS"] / 1e6, "anonymous_mb": memory["RssAnon"] / 1e6}


def _write(path: str, body_bytes: str, pace: str, log_bytes: str, size: str) -> Figures:
    """Catches up when it was held up; a writer that cannot keep its pace tells so by its seconds."""
    from bench.spark_side import fixed_messages

    messages, record_bytes = fixed_messages(int(body_bytes))
    wanted, per_second = -(-int(log_bytes) // record_bytes), int(pace) / record_bytes
    with MessageStore.open(path, _course(size).settings()) as store:
        start, began, done = store.max_physical, time.perf_counter(), 0
        while done < wanted:
            due = min(wanted, int((time.perf_counter() - began) * per_second) + 1)
            while done < due:
                at = done % len(messages)
                some = messages[at : at + min(_WRITE_BATCH, due - done)]
                store.append_many(some)
                done += len(some)
            time.sleep(_PACE_SECONDS)
        seconds = time.perf_counter() - began
        store.wait_for_dispatch(600.0)
        end = store.max_physical
    return {"seconds": seconds, "messages": done, "log_bytes": end - start, "log_end": end}


_TASKS: dict[str, Callable[..., Figures]] = {"fill": _fill, "open": _open, "idle": _idle, "write": _write}


def _main(words: list[str]) -> None:
    print(json.dumps(_TASKS[words[0]](*words[1:])), flush=True)
    if words[0] == "fill":
        sys.stdin.read()  # The store runs on until it is killed.
        os._exit(1)


if __name__ == "__main__":
    _main(sys.argv[1:])
