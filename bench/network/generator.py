"""The load generator: bench/loadgen/*.c, compiled with the C compiler that is there; Python where there is none.

A run is one process and one line of JSON. Compiled programs are kept in a folder of the user's cache, named by a hash
of the source: nothing is compiled twice, and nothing is written into the source tree.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "loadgen"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion")
_COMPILE_SECONDS_MAX = 120
_RUN_SECONDS_MAX = 1800
_PLAIN_MODES = ("send", "pull")

Load = dict[str, Any]


class LoadFailed(Exception):
    """A response that is not the one expected, or no response; the text names it."""


class LoadMissing(Exception):
    """This mode cannot be run here; the text says what to install."""


def compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang on the PATH."""
    chosen = os.environ.get("CC")
    names = [chosen] if chosen else ["cc", "gcc", "clang"]
    return next((found for name in names if (found := shutil.which(name))), None)


@functools.cache
def program() -> Path | None:
    """The compiled generator, compiled first where needed; None without a compiler."""
    found = compiler()
    if found is None:
        return None
    sources = sorted(SOURCE.glob("*.[ch]"))
    summed = hashlib.sha256()
    for path in sources:
        summed.update(path.name.encode() + b"\0" + path.read_bytes())
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    built = Path(caches) / "embermq" / f"loadgen-{summed.hexdigest()[:12]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            target = Path(folder) / "loadgen"
            compile_to(target, found)
            target.rename(built)  # Another process may have done the same: both have the same content.
    return built


def compile_to(target: Path, found: str, *options: str) -> None:
    """Compile the generator; LoadFailed with what the compiler said."""
    units = [str(path) for path in sorted(SOURCE.glob("*.c"))]
    command = [found, "-std=c11", "-O2", *WARNINGS, *options, "-o", str(target), *units]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX, check=False)
    if ran.returncode:
        raise LoadFailed(f"{found} cannot compile {SOURCE}: {ran.stderr[-2000:]}")


def command(mode: str, port: int, **options: object) -> list[str]:
    """The command line of a run: `held_pulls=5` becomes `--held-pulls 5`, `no_create=True` a flag."""
    built = program()
    if built is None and mode not in _PLAIN_MODES:
        raise LoadMissing(
            "no C compiler: the load generator needs cc for this (on Debian: apt-get install gcc libc6-dev)"
        )
    words = [str(built)] if built else [sys.executable, "-m", "bench.network.plain_load"]
    words += [mode, "--port", str(port)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return words


def load(mode: str, port: int, **options: object) -> Load:
    """Run the generator to its end."""
    words = command(mode, port, **options)
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=_RUN_SECONDS_MAX, check=False, stdin=subprocess.DEVNULL
    )
    if ran.returncode:
        raise LoadFailed(f"{' '.join(words[1:])}: {ran.stderr.strip()[-2000:] or ran.returncode}")
    found: Load = json.loads(ran.stdout)
    return found
