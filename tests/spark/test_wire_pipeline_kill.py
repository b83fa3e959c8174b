"""kill -9 of the driver and of a Python worker in the middle of a batch of a pipeline from a running cluster.

A child process runs the pipeline and stands still after a step that was chosen; there it is killed, with its JVM and
its workers. A worker may have killed itself before, between two files. In the end lake and statistics have every
message of the cluster once, and no file that no commit lists is left.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq.spark.lake import Lake
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.names import PENDING
from tests.spark.pipeline_child import made_of_cluster
from tests.spark.test_stream_kill import Child
from tests.spark.test_wire_pipeline import TOPICS, counted, numbers, put
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.wire_topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

STEPS = (
    "pending noted",
    "files written",
    "committed",
    "tables published",
    "pending removed",
    "files joined",
    "statistics written",
    "batch done",
)
PER_ROUND = 60
Round = tuple[str, str]  # the step after which the driver is killed, and a worker's death


def kill_and_check(
    spark: "SparkSession", cluster: Cluster, place: Path, rounds: list[Round], lake_format: LakeFormat
) -> None:
    place.mkdir()
    for number, (step, death) in enumerate(rounds):
        put(cluster, number * PER_ROUND, (number + 1) * PER_ROUND)
        options = {"stop": step, "die": death, "format": lake_format, "name_server": cluster.name_server}
        with Child("tests.spark.pipeline_child", place, place, options) as child:
            child.listen("begun", 1)
            put(cluster, 1_000 + number, 1_001 + number)
            child.listen("standing", 1)
            child.kill()
        if death:
            (place / "died").unlink()  # It really did.
    made_of_cluster(spark, cluster.name_server, place, lake_format, batch_bytes=1 << 30).once()
    check(spark, place, len(rounds), lake_format)


def check(spark: "SparkSession", place: Path, rounds: int, lake_format: LakeFormat) -> None:
    lake = Lake.open(str(place / "lake"), make=False)
    wanted = [*range(rounds * PER_ROUND), *range(1_000, 1_000 + rounds)]
    for topic in TOPICS:
        assert numbers(spark, str(place / "lake"), topic) == wanted
    assert counted(str(place / "lake")) == len(TOPICS) * len(wanted)
    lake.check(spark)
    assert not lake.files.exists(PENDING)
    if lake_format == "parquet":
        listed = {file.path for commit in lake.commits for file in commit.files}
        there = {path for path in lake.files.list(recursive=True) if path.endswith(".parquet")}
        assert there - listed == set(lake.files.list("_stats"))


def start(cluster: Cluster) -> None:
    for topic in TOPICS:
        create_topic([cluster.broker.address], cluster.name_server, topic)


@pytest.mark.slow(40)
def test_killed(spark: "SparkSession", tmp_path: Path) -> None:
    """A worker between two files, and the driver between commit and statistics."""
    with cluster_on_thread(tmp_path / "brokers") as cluster:
        start(cluster)
        kill_and_check(spark, cluster, tmp_path / "sink", [("committed", "between files")], "parquet")


@pytest.mark.long
@pytest.mark.parametrize("lake_format", ["parquet", "delta"])
def test_killed_after_every_step(spark: "SparkSession", tmp_path: Path, lake_format: LakeFormat) -> None:
    left_out = "tables published" if lake_format == "parquet" else "files joined"
    rounds = [(step, "between files" if n % 2 else "") for n, step in enumerate(STEPS) if step != left_out]
    with cluster_on_thread(tmp_path / "brokers") as cluster:
        start(cluster)
        kill_and_check(spark, cluster, tmp_path / "sink", rounds, lake_format)
