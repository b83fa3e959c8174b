"""This package as a user has it: its wheel in a virtual environment of its own, with one extra or none.

What the wheel depends on is installed once for each set of requirements, in the versions of the lock file; the first
time needs the network. The wheel is built every time, and installed again where it has changed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.reference import BUILD_SECONDS_MAX, ROOT, ReferenceFailed, ReferenceMissing, cache_of
from tests.support.jvm import PLAIN_JVM, linked_home

_LOCK = ROOT / "requirements" / "dev.lock"
# How long a Python process of Spark may take to start: 15 s by default, too little on a busy machine.
_PATIENCE = "spark.python.authenticate.socketTimeout 300s\n"
_LOCKED = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?(==[^\\\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class BareEnvironment:
    """The programs of the environment, and the variables they are started with: none of the tests' own."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def embermq(self) -> str:
        return str(self.folder / "bin" / "embermq")

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        pyspark = next(self.folder.glob("lib/python*/site-packages/pyspark"), None)
        if pyspark is None:
            return kept
        home = linked_home(pyspark, self.folder / "spark-home")
        conf = self.folder.parent / "conf"
        return kept | {"SPARK_SUBMIT_OPTS": PLAIN_JVM, "SPARK_HOME": str(home), "SPARK_CONF_DIR": str(conf)}


@contextmanager
def bare_environment(extra: str, **versions: str) -> Iterator[BareEnvironment]:
    """The environment with `embermq[extra]`, or `embermq` alone if `extra` is empty. One process at a time has it,
    since the package in it is replaced.

    `versions` are of packages that shall not be those of the lock file (`pyspark="4.1.4"`).
    """
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(Path(scratch))
        pins = _pins(versions)
        folder = cache_of(f"bare-{extra or 'base'}", _requirements(wheel, pins))
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "in-use", "w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            _install(folder, wheel, extra, pins)
            (folder / "conf").mkdir(exist_ok=True)
            (folder / "conf" / "spark-defaults.conf").write_text(_PATIENCE)
            yield BareEnvironment(folder / "venv")


def _wheel(place: Path) -> Path:
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)])
    (wheel,) = place.glob("*.whl")
    return wheel


def _requirements(wheel: Path, pins: list[str]) -> Path:
    """A file with what the wheel asks for and the versions that it gets."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist:")]
    place = wheel.with_name("requirements.txt")
    place.write_text("\n".join([*asked, *pins]))
    return place


def _pins(versions: Mapping[str, str]) -> list[str]:
    """Constraints for pip: the versions of the lock file, but for those given."""
    locked = [(name, version.strip()) for name, version in _LOCKED.findall(_LOCK.read_text(encoding="utf-8"))]
    kept = [f"{name}{version}" for name, version in locked if name not in versions]
    return [*kept, *(f"{name}=={version}" for name, version in versions.items())]


def _install(folder: Path, wheel: Path, extra: str, pins: list[str]) -> None:
    """The file `installed` is written last: an installation that was interrupted is begun again."""
    venv, installed = folder / "venv", folder / "installed"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if installed.exists() and installed.read_text() == digest:
        return
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if installed.exists():
        _run([*pip, "--no-deps", "--force-reinstall", str(wheel)])
    else:
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(venv)])
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(pins))
        try:
            _run([*pip, "-c", str(constraints), f"{wheel}[{extra}]" if extra else str(wheel)])
        except ReferenceFailed as problem:
            raise ReferenceMissing(f"pip could not install the extra {extra} (no network?): {problem}") from problem
    installed.write_text(digest)


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    if ran.returncode:
        raise ReferenceFailed(f"{' '.join(command)}: {(ran.stdout + ran.stderr).strip()[-1000:]}")
