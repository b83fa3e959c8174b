"""The same work and the same jobs on a standalone cluster of real processes, and over Connect.

Cluster and Connect have a driver in a process of its own, each work a store of its own; the answers have to be those
that follow from the messages. In one JVM everything is tested by itself elsewhere, and as a whole by the long tests.
"""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support import same_jobs, same_sql, same_work
from tests.support.jvm import SHORT_LIVED_JVM
from tests.support.same_driver import Driver
from tests.support.spark_daemons import PATIENCE_SECONDS, connect_server, standalone_cluster

pytestmark = pytest.mark.extended


@pytest.mark.long
def test_one_jvm(spark: SparkSession, tmp_path: Path) -> None:
    store = same_work.make_store(tmp_path / "store")
    assert same_work.answers(spark, store, tmp_path / "made") == same_work.expected()


@pytest.mark.long
def test_jobs_in_one_jvm(spark: SparkSession, tmp_path: Path) -> None:
    store = same_jobs.make_store(tmp_path / "store")
    assert same_jobs.plain(same_jobs.answers(spark, store, tmp_path / "made")) == same_jobs.expected()


@pytest.mark.parametrize(
    "jobs", [same_jobs.SOME_JOBS, pytest.param(same_jobs.JOBS, marks=pytest.mark.long)], ids=["short", "every job"]
)
@pytest.mark.slow(90)
def test_a_standalone_cluster(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.sql.shuffle.partitions": "2",
    }
    daemons = tmp_path / "daemons"
    with standalone_cluster(daemons) as master, Driver(master, tmp_path / "driver", settings) as driver:
        assert driver.answers(same_work) == same_work.expected()
        done = wait_for_tasks(daemons, {})
        assert driver.answers(same_jobs, jobs) == same_jobs.expected(jobs)
        wait_for_tasks(daemons, done)


def wait_for_tasks(daemons: Path, before: dict[Path, int]) -> dict[Path, int]:
    """Until two executors, one of each worker, did a part of the work: they have logged more finished tasks than
    before. What is logged comes to the file a moment later. How many tasks each has finished now."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        logs = (daemons / "work").glob("app-*/*/stderr")
        done = {log: log.read_text(errors="replace").count("Finished task") for log in logs}
        if sum(done[log] > before.get(log, 0) for log in done) >= 2:
            return done
        assert time.monotonic() < deadline, f"finished tasks: {before}, then {done}"
        time.sleep(0.05)


@pytest.mark.slow(60)
def test_spark_connect(tmp_path: Path) -> None:
    """The work, and SQL, for which there is no parser to use here."""
    with connect_server(tmp_path / "daemons") as address, Driver(address, tmp_path / "driver", {}) as driver:
        assert driver.answers(same_work) == same_work.expected()
        answers = driver.answers(same_sql)
    place = tmp_path / "driver" / same_sql.__name__ / "made"
    for statement in same_sql.writing(place):
        assert str(answers[statement]).startswith("option sql"), statement
    assert not place.exists()
    assert "nothing" in answers["select nothing from orders"]
    assert {query: answers[query] for query, _ in same_sql.READING} == dict(same_sql.READING)
