"""kill -9 of driver, Python worker and store writer, between any two steps of a pipeline's micro-batch.

A child process runs the pipeline and stands still after a step that was chosen; there it is killed, with its JVM and
its workers. A worker may have killed itself before, in the middle of its work; the process that writes the log is
killed at any moment. Then both are started again. In the end the lake has the log's records, each once, and queues,
index and statistics are those of the live dispatcher, byte for byte.
"""

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import MessageStore
from embermq.repair.verify.store_check import verify
from embermq.spark.lake import Lake
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.names import PENDING
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.pipeline_child import DEATHS, SETTINGS, STEPS, made
from tests.spark.test_lake import places_in_folder, records, rows
from tests.spark.test_lake_tables import everything
from tests.spark.test_stream_kill import Child
from tests.support.minutes import read_minutes
from tests.unit.repair.rebuild.test_follower import derived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

Round = tuple[str, str, bool]  # the step after which the driver is killed, a worker's death, whether the writer is too


def kill_and_check(spark: "SparkSession", place: Path, rounds: list[Round], lake_format: LakeFormat, seed: int) -> None:
    source, store = random.Random(seed), place / "broker-a"
    sink = place / "sink"
    sink.mkdir()
    writer = Child("tests.spark.writer_child", store)
    try:
        writer.listen("begun", 1)
        for step, death, writer_too in rounds:
            options = {"stop": step, "die": death, "format": lake_format}
            with Child("tests.spark.pipeline_child", store, sink, options) as child:
                child.listen("begun", 1)
                if writer_too:
                    writer.listen("", len(writer.lines) + source.randrange(1, 20))
                    writer.kill()
                    writer = Child("tests.spark.writer_child", store)
                child.listen("standing", 1)
                child.kill()
            if death:
                (sink / "died").unlink()  # It really did.
        writer.kill()
    finally:
        writer.__exit__()
    made(spark, store, sink, lake_format, batch_bytes=1 << 30).once()
    check(spark, place, store, sink, lake_format)


def check(spark: "SparkSession", place: Path, store: Path, sink: Path, lake_format: LakeFormat) -> None:
    builder = StoreBuilder(store, **{name: getattr(SETTINGS, name) for name in numbered.TINY})
    lake = Lake.open(str(sink / "lake"), make=False)
    wanted = records(builder, all_of_them=False)
    assert rows(lake, spark) == wanted
    lake.check(spark)
    assert not lake.files.exists(PENDING)
    if lake_format == "parquet":
        assert places_in_folder(sink / "lake") == [record[0] for record in wanted]
        listed = {file.path for commit in lake.commits for file in commit.files}
        there = {path for path in lake.files.list(recursive=True) if path.endswith(".parquet")}
        assert there - listed == set(lake.files.list("_stats"))
    else:
        assert everything(lake) == wanted
    minutes = read_minutes(str(sink / "lake"))
    assert minutes is not None
    assert sum(minutes["messages"].to_pylist()) == len(wanted)
    assert [flaw for flaw in verify(store).flaws if flaw.is_fault] == []
    live = place / "live"
    shutil.copytree(store / "commitlog", live / "commitlog")
    with MessageStore.open(live, SETTINGS) as dispatching:
        numbers = numbered.numbers_in(dispatching)
    assert numbers == list(range(len(numbers)))
    assert derived(store) == derived(live)


def rounds_of(count: int, seed: int, steps: list[str]) -> list[Round]:
    """Every step comes up as often as every other, and every death; the writer dies in every second round."""
    source = random.Random(seed)
    chosen = [steps[number % len(steps)] for number in range(count)]
    source.shuffle(chosen)
    deaths = ["", *DEATHS]
    return [(step, deaths[number % len(deaths)], number % 2 == 1) for number, step in enumerate(chosen)]


@pytest.mark.slow(45)
def test_killed(spark: "SparkSession", tmp_path: Path) -> None:
    """One of each: a worker in the middle of its files, the writer, the driver between commit and publication."""
    kill_and_check(spark, tmp_path, [("committed", "between files", True)], "parquet", seed=1)


@pytest.mark.long
@pytest.mark.parametrize(("lake_format", "count"), [("parquet", 30), ("delta", 10), ("iceberg", 6)])
def test_killed_many_times(spark: "SparkSession", tmp_path: Path, lake_format: LakeFormat, count: int) -> None:
    left_out = "tables published" if lake_format == "parquet" else "files joined"
    steps = [step for step in STEPS if step != left_out]
    kill_and_check(spark, tmp_path, rounds_of(count, 2, steps), lake_format, seed=3)
