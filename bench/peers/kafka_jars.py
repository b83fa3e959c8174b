"""Jars of the Kafka peer: fetched once by Maven into a cache folder, then neither Maven nor a network is needed.

The folder is $EMBERMQ_KAFKA_CACHE, or else $XDG_CACHE_HOME/embermq/kafka-<hash of pom.xml> (~/.cache where
XDG_CACHE_HOME is not set). Only benchmarks import this module.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.reference import ReferenceMissing, java_version

POM = Path(__file__).with_name("kafka") / "pom.xml"
_FETCH_SECONDS_MAX = 900
_JAVA_MIN = 17
# What Spark itself does not bring.
_SOURCE = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")


@functools.cache
def jars_folder() -> Path:
    """The folder with all jars, which are fetched first where needed; ReferenceMissing says why they are not there."""
    if java_version() < _JAVA_MIN:
        raise ReferenceMissing(f"java is version {java_version()}; Spark needs {_JAVA_MIN} or later")
    folder = _cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ReferenceMissing(f"the cache folder {folder} cannot be made: {problem}") from problem
    with open(folder / "fetching", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "jars").exists():
            _fetch(folder)
            (folder / "lib").rename(folder / "jars")
    return folder / "jars"


def source_jars() -> list[Path]:
    """Spark's source for Kafka and what it needs besides Spark."""
    found = [path for path in sorted(jars_folder().iterdir()) if path.name.startswith(_SOURCE)]
    assert len(found) == len(_SOURCE), found
    return found


def _cache_folder() -> Path:
    chosen = os.environ.get("EMBERMQ_KAFKA_CACHE")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "embermq" / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ReferenceMissing("mvn is not on the PATH; Maven is needed once, to fetch Kafka")
    shutil.rmtree(folder / "lib", ignore_errors=True)
    shutil.copy(POM, folder)
    command = [maven, "-q", "-B", "dependency:copy-dependencies"]
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ReferenceMissing(f"mvn did not finish in {_FETCH_SECONDS_MAX} s in {folder}") from None
    if ran.returncode != 0:
        said = (ran.stdout + ran.stderr).strip()
        raise ReferenceMissing(f"mvn could not fetch Kafka (no network?): {said[:600]}")
