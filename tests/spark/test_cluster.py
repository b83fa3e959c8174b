"""The same work in one JVM, on a standalone cluster of real processes, and over Spark Connect.

Cluster and Connect have a driver in a process of its own, each on a store of its own; the answers have to be those
that follow from the messages.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support import same_work
from tests.support.jvm import SHORT_LIVED_JVM
from tests.support.spark_daemons import connect_server, spark_environment, standalone_cluster

ROOT = Path(__file__).parents[2]


def answers(master: str, scratch: Path, settings: dict[str, str]) -> dict[str, Any]:
    """The answers of the job on `master`."""
    store = same_work.make_store(scratch / "store")
    job = [sys.executable, "-m", "tests.support.same_work", master, str(store), str(scratch / "made")]
    done = subprocess.run(
        [*job, *(f"{name}={value}" for name, value in settings.items())],
        env=spark_environment(scratch),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_jvm(spark: SparkSession, tmp_path: Path) -> None:
    store = same_work.make_store(tmp_path / "store")
    assert same_work.answers(spark, store, tmp_path / "made") == same_work.expected()


def test_a_standalone_cluster(tmp_path: Path) -> None:
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.sql.shuffle.partitions": "2",
    }
    with standalone_cluster(tmp_path / "daemons") as master:
        assert answers(master, tmp_path, settings) == same_work.expected()
    logs = sorted((tmp_path / "daemons" / "work").glob("app-*/*/stderr"))
    assert len(logs) == 2, "each worker had an executor"
    for log in logs:
        assert "Finished task" in log.read_text(), "each executor did a part of the work"


def test_spark_connect(tmp_path: Path) -> None:
    with connect_server(tmp_path / "daemons") as address:
        assert answers(address, tmp_path, {}) == same_work.expected()
