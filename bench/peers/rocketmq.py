"""Apache RocketMQ's own store, measured as a library in its own JVM: the peer that reads the same files.

No broker, no network: putMessage in one thread, as the append benchmark here does. Default settings
throughout (ASYNC_FLUSH, 1 GiB files, index on). Appends go to a fresh directory, removed afterwards; the
other measurements work on a store made by `fill`, which the caller places and removes.
"""

import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tests.interop.reference import ReferenceFailed, ReferenceMissing, java_command

Figures = dict[str, Any]

GIB = 1 << 30
_MEASURE_SECONDS_MAX = 900
_INDEX_HEADER_BYTES = 40  # the count is the last of its fields
# A fixed heap, as a broker has one: growing it would be measured as well.
_JVM = ("-Xms2g", "-Xmx2g")


def missing() -> str | None:
    """Why this peer cannot be measured here, or None when it can."""
    try:
        java_command("PeerBench", [])
    except ReferenceMissing as why:
        return str(why)
    return None


def measure_append(body_bytes: int, messages: int, *, rounds: int = 5, scratch: Path | None = None) -> Figures:
    """Puts `messages` per round; medians over the rounds of messages a second, one by one and in batches."""
    directory = Path(tempfile.mkdtemp(prefix="embermq-peer-", dir=scratch))
    try:
        store = str(directory / "store")
        figures = _bench("append", store, str(body_bytes), str(messages), str(rounds))
    finally:
        shutil.rmtree(directory)
    return {"peer": "rocketmq", "work": "append", "body_bytes": body_bytes, **figures}


def fill(directory: Path, *, body_bytes: int = 1024, log_bytes: int = GIB - (1 << 20)) -> Figures:
    """A store RocketMQ wrote and did not close: what the two measurements below start from."""
    return _bench("fill", str(directory), str(body_bytes), str(log_bytes))


def measure_recovery(directory: Path, *, rounds: int = 3) -> Figures:
    """Seconds of load() after a kill, per GiB of log. The store must have been killed, and stays so."""
    if not (directory / "abort").exists():
        raise ValueError(f"{directory}: no abort file, so this store was closed cleanly")
    runs = [_bench("load", str(directory)) for _ in range(rounds)]
    return {**_timed("recovery", "load_seconds", runs), "index_entries": _index_entries(directory)}


def measure_rebuild(directory: Path, *, rounds: int = 3) -> Figures:
    """Seconds of a restart with queues and index deleted first, per GiB of log: load(), which walks the log and
    compares its sums, and from start() to the last message dispatched. That second part is given alone as well.

    The abort file goes first: with one RocketMQ would dispatch while it recovers, and then not again.
    """
    runs = []
    for _ in range(rounds):
        for derived in ("consumequeue", "index"):
            shutil.rmtree(directory / derived, ignore_errors=True)
        (directory / "abort").unlink(missing_ok=True)
        figures = _bench("rebuild", str(directory))
        runs.append({**figures, "restart_seconds": figures["load_seconds"] + figures["dispatch_seconds"]})
    dispatch_seconds = statistics.median(float(run["dispatch_seconds"]) for run in runs)
    return {
        **_timed("rebuild", "restart_seconds", runs),
        "dispatch_seconds": dispatch_seconds,
        "index_entries": _index_entries(directory),
    }


def _timed(work: str, field: str, runs: list[Figures]) -> Figures:
    seconds = [float(run[field]) for run in runs]
    log_gib = runs[-1]["max_physical_offset"] / GIB
    answer = {name: runs[-1][name] for name in ("max_physical_offset", "queue_entries")}
    if any(run["max_physical_offset"] != answer["max_physical_offset"] for run in runs):
        raise ReferenceFailed(f"the rounds disagree about the end of the log: {runs}")
    middle = statistics.median(seconds)
    return {
        "peer": "rocketmq",
        "work": work,
        "seconds": middle,
        "seconds_per_gib": middle / log_gib,
        "rounds": seconds,
        **answer,
    }


def _index_entries(directory: Path) -> int:
    """Entries in all index files: proof that the work measured included the index."""
    entries = 0
    for path in sorted((directory / "index").iterdir()):
        with path.open("rb") as file:
            entries += int.from_bytes(file.read(_INDEX_HEADER_BYTES)[-4:], "big") - 1  # numbers start at 1
    return entries


def _bench(*words: str) -> Figures:
    command = java_command("PeerBench", words, jvm=_JVM)
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_MEASURE_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise ReferenceFailed(f"{words}: not done in {_MEASURE_SECONDS_MAX} s") from None
    if ran.returncode != 0:
        raise ReferenceFailed(f"{words}: {ran.stderr[-2000:]}")
    figures: Figures = msgspec.json.decode(ran.stdout)
    return figures
