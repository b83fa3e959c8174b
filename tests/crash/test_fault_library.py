"""System calls fail under a store in a process of its own: a C library preloaded there returns errors.

Faults below the `Files` seam, where the interpreter and the C library are, and in every thread at once. A round fails
one kind of call, or all kinds, each time with an error by chance, while a process opens a store, appends, reads and
closes it again and again. What must hold: no wrong message, no traceback, no hang; and an opening without faults is
sound and has everything that was acknowledged (a process that ends takes nothing, under ASYNC_FLUSH too).
"""

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from errno import EACCES, EINTR, EIO, ELOOP, EMFILE, ENOMEM, ENOSPC, EROFS
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk, KernelUse, StoreSettings
from tests.crash.fault_child import message

HERE = Path(__file__).parent
SECONDS_MAX = 90.0
SHORT_ROUNDS, LONG_ROUNDS = 4, 70
CALLS = {
    "open": (EMFILE, EACCES, EROFS, ELOOP, EINTR),
    "pread": (EIO, EINTR),
    "pwrite": (EIO, ENOSPC, EINTR),
    "ftruncate": (EINTR, EIO, ENOSPC, EROFS),
    "fallocate": (EINTR, ENOSPC, EIO),
    "sync": (EIO, ENOSPC, EINTR),
    "mmap": (ENOMEM, EROFS, EACCES, EIO),
    "rename": (EIO, ENOSPC, EACCES, EROFS),
    "unlink": (EIO, EACCES, EROFS),
    "link": (EIO, ENOSPC, EMFILE),
}
SMALL: dict[str, object] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 400,
    "index_slots_max": 16,
    "index_entries_max": 40,
    "disk_full_percent": 100,
    "kernels": KernelUse.NEVER,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler (cc)")
    built = tmp_path_factory.mktemp("library") / "faultlib.so"
    source = HERE / "faultlib.c"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"faultlib.c cannot be compiled here: {done.stderr.strip().splitlines()[-1]}")
    return built


@dataclass(frozen=True, slots=True)
class Outcome:
    acknowledged: set[int]
    refused: int
    handed_in: int


class Round:
    """One process under faults, and what it has left."""

    def __init__(self, library: Path, root: Path, seed: int) -> None:
        self._library, self._root, self._seed = library, root, seed
        chance = random.Random(seed)
        self.calls = [chance.choice([*CALLS])] if chance.random() < 0.7 else sorted(CALLS)
        self.share = chance.choice([4, 20, 100])
        self.flush = chance.choice([FlushDisk.SYNC, FlushDisk.ASYNC])
        self.errors = sorted({error for call in self.calls for error in CALLS[call]})

    def __str__(self) -> str:
        return f"seed {self._seed}: {','.join(self.calls)} one in {self.share}, {self.flush.value}"

    def run(self, *, nth: int = 0) -> Outcome:
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self._library),
            "FAULT_ROOT": str(self._root),
            "FAULT_CALLS": ",".join(self.calls),
            "FAULT_ERRNOS": ",".join(map(str, self.errors)),
            "FAULT_SHARE": str(self.share),
            "FAULT_NTH": str(nth),
            "FAULT_SEED": str(self._seed),
            "FAULT_FLAG": str(self._root.with_name("faults")),
            "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "src")]),
        }
        settings = json.dumps({**SMALL, "flush": self.flush})
        command = [sys.executable, "-m", "tests.crash.fault_child", str(self._root), "0", settings]
        done = subprocess.run(
            command,
            env=environment,
            cwd=HERE.parents[1],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert "Traceback" not in done.stderr, f"{self}: {done.stderr[-6000:]}"
        assert done.returncode == 0, f"{self}: exit code {done.returncode}: {done.stderr[-3000:]}"
        lines = [line.split() for line in done.stdout.splitlines()]
        assert lines[-1][0] == "done", f"{self}: {lines[-1]}"
        stored = {int(number) for word, *numbers in lines if word == "stored" for number in numbers}
        refused = sum(1 for word, *_ in lines if word in ("refused", "unclosed"))
        return Outcome(stored, refused, int(lines[-1][1]))

    def check(self, outcome: Outcome) -> None:
        """Without faults the store opens, has what was acknowledged, and is sound."""
        with MessageStore.open(self._root, StoreSettings(**SMALL)) as store:  # type: ignore[arg-type]
            found: dict[int, bytes] = {}
            for one in store.scan():
                n = int(one.body[: one.body.index(b"|")])
                assert n not in found, f"{self}: {n} is there twice"
                assert one.body == message(n).body
                found[n] = one.body
            missing = outcome.acknowledged - set(found)
            assert not missing, f"{self}: {sorted(missing)} lost; {store.recovery}"
            queued = sum(store.message_count("T", queue_id) for queue_id in range(3))
            assert queued == len(found), f"{self}: {queued} in queues, {len(found)} in the log"
        report = verify(self._root)
        assert report.is_sound, f"{self}: {report.flaws}"


def play(library: Path, root: Path, seed: int) -> Outcome:
    round_ = Round(library, root, seed)
    outcome = round_.run()
    round_.check(outcome)
    return outcome


@pytest.mark.parametrize("seed", range(SHORT_ROUNDS))
def test_nothing_acknowledged_is_lost_when_system_calls_fail(library: Path, tmp_path: Path, seed: int) -> None:
    play(library, tmp_path / "s", seed)


@pytest.mark.long
def test_many_rounds_of_failing_system_calls(library: Path, tmp_path: Path) -> None:
    acknowledged = refused = 0
    for seed in range(SHORT_ROUNDS, SHORT_ROUNDS + LONG_ROUNDS):
        outcome = play(library, tmp_path / f"s{seed}", seed)
        acknowledged += len(outcome.acknowledged)
        refused += outcome.refused
        shutil.rmtree(tmp_path / f"s{seed}")
    print(f"{LONG_ROUNDS} rounds, {acknowledged:,} messages acknowledged, 0 lost, {refused:,} calls refused")
    assert acknowledged
    assert refused
