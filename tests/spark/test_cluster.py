"""The same work and the same jobs in one JVM, on a standalone cluster of real processes; the work over Connect too.

Cluster and Connect have a driver in a process of its own, each on a store of its own; the answers have to be those
that follow from the messages.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from tests.support import same_jobs, same_work
from tests.support.jvm import SHORT_LIVED_JVM
from tests.support.spark_daemons import connect_server, spark_environment, standalone_cluster

ROOT = Path(__file__).parents[2]


def answers(work: ModuleType, master: str, scratch: Path, settings: dict[str, str]) -> dict[str, Any]:
    """The answers of `work` on `master`."""
    scratch.mkdir(exist_ok=True)
    store = work.make_store(scratch / "store")
    job = [sys.executable, "-m", work.__name__, master, str(store), str(scratch / "made")]
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


def test_jobs_in_one_jvm(spark: SparkSession, tmp_path: Path) -> None:
    store = same_jobs.make_store(tmp_path / "store")
    assert same_jobs.plain(same_jobs.answers(spark, store, tmp_path / "made")) == same_jobs.expected()


def test_a_standalone_cluster(tmp_path: Path) -> None:
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.sql.shuffle.partitions": "2",
    }
    with standalone_cluster(tmp_path / "daemons") as master:
        assert answers(same_work, master, tmp_path / "work", settings) == same_work.expected()
        assert answers(same_jobs, master, tmp_path / "jobs", settings) == same_jobs.expected()
    logs = sorted((tmp_path / "daemons" / "work").glob("app-*/*/stderr"))
    assert len(logs) == 4, "each worker had an executor of each"
    for log in logs:
        assert "Finished task" in log.read_text(), "each executor did a part of the work"


def test_spark_connect(tmp_path: Path) -> None:
    with connect_server(tmp_path / "daemons") as address:
        assert answers(same_work, address, tmp_path, {}) == same_work.expected()
