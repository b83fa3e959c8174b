"""How the JVMs of tests and the Python workers below them are started.

A run starts some forty JVMs, and each of them a Python daemon for every kind of worker it needs. What is set here
makes a start cheaper and changes nothing of what is tested.
"""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

# Short jobs end before the optimising compiler pays: without it, and with the plainest collector, a JVM takes less
# than half of the processor time.
PLAIN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def class_archive() -> Path:
    """Where `make test` has put Spark's classes, read and verified already (tests/support/class_archive.py)."""
    return Path(sys.prefix) / f"spark-home-{importlib.metadata.version('pyspark')}" / "classes.jsa"


def _with_archive(options: str) -> str:
    """A JVM that maps the archive instead of reading some ten thousand classes takes less than half of the processor
    time until its first query is answered. One the archive does not fit (another Java, other jars) does without, and
    says so on its output unless logging is off."""
    archive = class_archive()
    if not archive.exists() or len(str(archive).split()) > 1:
        return options
    return f"{options} -Xlog:disable -XX:SharedArchiveFile={archive}"


SHORT_LIVED_JVM = _with_archive(PLAIN_JVM)


def shorten_every_start() -> None:
    """Every driver that this process or a child of it starts is short-lived, also where no setting can say so: the
    demo, the examples, the benchmarks. Spark's own scripts read these variables, and nothing is printed about them."""
    # The launcher works out a command line and ends; it has other classes.
    for name, options in (("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM), ("SPARK_LAUNCHER_OPTS", PLAIN_JVM)):
        given = os.environ.get(name, "")
        if options not in given:
            os.environ[name] = f"{options} {given}".strip()
    home = spark_home()
    if home is not None:
        os.environ.setdefault("SPARK_HOME", str(home))


def start_below(scratch: Path) -> None:
    """Every driver from here on keeps its temporary files in `scratch`: one that is killed removes none of them."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}".strip()


def spark_home() -> Path | None:
    """The installed Spark without pyspark.zip, as a directory of links beside it in the environment.

    Python workers find pyspark.zip first, and what comes out of an archive is compiled at every start: a second for
    each daemon, more than a quarter of what a short session takes. Without the archive they import the installed
    package, the same code, which is compiled already.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent.resolve()
    return linked_home(installed, Path(sys.prefix) / f"spark-home-{importlib.metadata.version('pyspark')}")


def linked_home(installed: Path, home: Path) -> Path:
    """The directory of links for a Spark that is installed here or in another environment."""
    try:
        home.mkdir(exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            _link(home / name, installed / name)
    except OSError:  # An environment that cannot be written to: slower, and as good.
        return installed
    return home


def _link(link: Path, target: Path) -> None:
    """Two processes may do this at once."""
    if link.is_symlink() and Path(os.readlink(link)) == target:
        return
    made = link.with_name(f".{link.name}-{os.getpid()}")
    made.symlink_to(target)
    made.replace(link)
