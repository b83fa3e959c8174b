"""A disk that is really full: no signal, no partial record, reads go on, and appends resume without a restart.

Each scenario of disk_full_child.py runs in a process of its own, in a mount namespace of its own, on a tmpfs of a
few megabytes: no mount is left behind whatever happens. Where namespaces may not be made, the tests are skipped;
the rules themselves are tested with a pretended disk in tests/unit/store/services/test_retention.py.
"""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from tests.crash.disk_full_child import SCENARIOS

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@lru_cache
def can_mount() -> bool:
    try:
        tried = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_full_disk(tmp_path: Path, scenario: str) -> None:
    if not can_mount():
        pytest.skip("mounting a tmpfs in a namespace of one's own is not allowed here")
    mount = tmp_path / "disk"
    mount.mkdir()
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.crash.disk_full_child", str(mount), scenario],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert list(mount.iterdir()) == []
