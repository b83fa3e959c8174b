"""Where compiled code is kept, and that nobody else can put code there."""

import os
import subprocess
import sys
from pathlib import Path

import numba.core.config
import numba.core.errors
import numpy as np
import pytest
from numpy.typing import NDArray

import embermq.columns.compiled.scan
from embermq.columns.compiled.parts import compiling

PROBE = "import embermq.columns.compiled.parts.compiling as c; print(c.CACHE_DIRECTORY)"


def chosen(**environment: str) -> Path:
    """The cache directory a fresh process with this environment chooses."""
    keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
    source = str(Path(compiling.__file__).parents[4])
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=keep | {"PYTHONPATH": source} | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_the_user_decides(tmp_path: Path) -> None:
    assert chosen(NUMBA_CACHE_DIR=str(tmp_path / "mine")).parent == tmp_path / "mine"
    assert chosen(XDG_CACHE_HOME=str(tmp_path / "xdg"), HOME=str(tmp_path)).parent == tmp_path / "xdg" / "embermq"
    assert chosen(HOME=str(tmp_path)).parent == tmp_path / ".cache" / "embermq"


def test_a_home_that_cannot_be_written_falls_back(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    assert chosen(HOME=str(blocked), TMPDIR=str(temporary)).parent == temporary / f"embermq-{os.getuid()}"


def test_a_directory_others_can_write_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not compiling._is_usable(shared)
    shared.chmod(0o700)
    assert compiling._is_usable(shared)


def test_numba_keeps_its_own_settings_and_our_code_is_cached() -> None:
    config: object = numba.core.config
    assert getattr(config, "CACHE_DIR", None) != compiling.CACHE_DIRECTORY
    assert list(Path(compiling.CACHE_DIRECTORY).rglob("scan._scan*.nbi"))


@pytest.mark.parametrize("name", ["_scan", "_resync"])
def test_each_kernel_has_one_signature(name: str) -> None:
    assert len(getattr(embermq.columns.compiled.scan, name).signatures) == 1


def test_a_kernel_that_allocates_is_no_kernel() -> None:
    with pytest.raises(numba.core.errors.NumbaError):

        @compiling.kernel("int64(int64)")
        def allocates(count: int) -> int:
            return len(np.zeros(count, np.int64))

    with pytest.raises(AssertionError, match="gives numbers back"):

        @compiling.kernel("int64[::1](int64[::1])")
        def gives_back(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            return numbers
