"""Machines that lose each other: a master and its slave, a broker and its clients, with a cable between them.

Each runs in network namespaces of its own (two_machines.py), where packets are really lost: connections stay open on
both sides, and no reset says that they are dead. Where namespaces may not be made, the tests are skipped; the same
rules with a relay between processes are in test_replication_kills.py.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.two_machines import ALONE, can_be_made

ROOT = Path(__file__).parents[2]
FAULTS = ["unplugged", "lost", "lost for long"]


def run(work: str, place: Path, faults: list[str]) -> None:
    if not can_be_made():
        pytest.skip("network namespaces cannot be made here")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [*ALONE, sys.executable, "-m", "tests.crash.machines_child", work, str(place), *faults],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{faults}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("work", ["replication", "clients"])
def test_every_way_to_lose_the_other(tmp_path: Path, work: str) -> None:
    run(work, tmp_path, FAULTS)


@pytest.mark.long
@pytest.mark.parametrize("work", ["replication", "clients"])
def test_many_times(tmp_path: Path, work: str) -> None:
    more = ["kill slave", "kill master", "pause slave", "kill both"] if work == "replication" else []
    for number in range(4):
        place = tmp_path / str(number)
        place.mkdir()
        run(work, place, random.choices(FAULTS + more, k=10))
