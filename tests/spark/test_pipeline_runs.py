"""Runs of pipelines over the same places: other stores, other sinks, other checkpoints, logs that lost something."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.errors import DataLost, OptionInvalid, StoreError, StoreReplaced
from embermq.spark.lake import Lake
from embermq.spark.pipelines import LogBatch, SinkFigures, pipeline
from embermq.testing.builder import StoreBuilder
from tests.spark.test_lake import records, rows
from tests.support.minutes import read_minutes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def append(place: Path, count: int) -> str:
    with StoreBuilder(place, segment_bytes=8192).open() as store:
        store.append_many([Message("orders", b"x" * 50, tags="paid") for _ in range(count)])
    return str(place)


def counted(root: Path) -> int:
    minutes = read_minutes(str(root))
    return 0 if minutes is None else sum(minutes["messages"].to_pylist())


def in_lake(root: Path) -> int:
    return sum(file.rows for file in Lake.open(str(root), make=False).live_files())


def test_a_store_that_is_left_out_for_a_while(spark: "SparkSession", tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    one, other = append(tmp_path / "a", 100), append(tmp_path / "b", 100)
    pipeline(spark, [one, other], into=str(lake)).once()
    append(tmp_path / "a", 10)
    (alone,) = pipeline(spark, [one], into=str(lake)).once()
    assert set(alone.positions) == {"a"}
    append(tmp_path / "a", 10)
    append(tmp_path / "b", 10)
    pipeline(spark, [one, other], into=str(lake)).once()
    assert counted(lake) == in_lake(lake) == 230


def test_another_checkpoint_counts_nothing_twice(spark: "SparkSession", tmp_path: Path) -> None:
    lake, store = tmp_path / "lake", append(tmp_path / "a", 200)
    pipeline(spark, [store], into=str(lake), batch_bytes_max=15_000).once()
    append(tmp_path / "a", 50)
    again = pipeline(spark, [store], into=str(lake), checkpoint=str(tmp_path / "other"), batch_bytes_max=20_000).once()
    assert counted(lake) == in_lake(lake) == 250
    assert sum(one.sinks["stats"].records for one in again) == 50
    # And what was counted of one log is not taken for what another one has.
    append(tmp_path / "elsewhere" / "a", 300)
    with pytest.raises(StoreReplaced, match="statistics of another log"):
        pipeline(
            spark, [str(tmp_path / "elsewhere" / "a")], into=str(lake), derive=["stats"], checkpoint=str(tmp_path / "c")
        ).once()


def test_a_sink_that_comes_later(spark: "SparkSession", tmp_path: Path) -> None:
    lake, store = tmp_path / "lake", append(tmp_path / "a", 100)
    pipeline(spark, [store], into=str(lake), derive=["stats"]).once()
    with pytest.raises(OptionInvalid, match="not that of lake; it would lack"):
        pipeline(spark, [store], into=str(lake), derive=["lake", "stats"])
    assert not (lake / "_embermq.json").exists()
    more: Any = {"into": str(lake), "checkpoint": str(tmp_path / "both")}
    pipeline(spark, [store], **more).once()
    assert counted(lake) == in_lake(lake) == 100
    append(tmp_path / "a", 10)
    pipeline(spark, [store], derive=["lake"], **more).once()
    with pytest.raises(OptionInvalid, match="not that of stats; it would lack"):
        pipeline(spark, [store], **more)


def test_loss_that_is_accepted(spark: "SparkSession", tmp_path: Path) -> None:
    lake, store = tmp_path / "lake", append(tmp_path / "a", 100)
    pipeline(spark, [store], into=str(lake)).once()
    end = Lake.open(str(lake)).end_of("a")
    assert end is not None
    append(tmp_path / "a", 300)
    for old in sorted((tmp_path / "a" / "commitlog").glob("0*"))[:-2]:
        old.unlink()
    first = int(min((tmp_path / "a" / "commitlog").glob("0*")).name)
    assert first > end
    with pytest.raises(DataLost):
        pipeline(spark, [store], into=str(lake)).once()
    assert pipeline(spark, [store], into=str(lake), fail_on_data_loss=False).once()[-1].lag_bytes == 0
    ranges = Lake.open(str(lake)).covered("a")
    assert [one.start for one in ranges] == [0, first]
    with StoreBuilder(tmp_path / "a", segment_bytes=8192).open(read_only=True) as opened:
        assert ranges[1].rows == len(list(opened.scan()))
    append(tmp_path / "a", 10)
    pipeline(spark, [store], into=str(lake)).once()


class Broken:
    name = "broken"

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem

    def process(self, batch: LogBatch) -> SinkFigures:
        raise self.problem


def test_why_it_stopped(spark: "SparkSession", tmp_path: Path) -> None:
    one, other = append(tmp_path / "a", 20), append(tmp_path / "b", 20)
    more: Any = {"derive": [], "checkpoint": str(tmp_path / "progress")}
    with pytest.raises(StoreError, match=r"^the pipeline stopped: RuntimeError: no such table$"):
        pipeline(spark, [one, other], sinks=[Broken(RuntimeError("no such table"))], **more).once()
    with pytest.raises(StoreError, match=r"^the pipeline stopped: KeyError: 'x'$"):
        pipeline(spark, [one, other], sinks=[Broken(KeyError("x"))], **more).once()
    with pytest.raises(OptionInvalid, match="needs the store of b as well") as problem:
        pipeline(spark, [one], sinks=[Broken(KeyError("x"))], **more).once()
    assert "Traceback" not in str(problem.value)


class Slow:
    """Notes when it begins and ends."""

    name = "slow"

    def __init__(self) -> None:
        self.begun = self.done = 0

    def process(self, batch: LogBatch) -> SinkFigures:
        self.begun += 1
        batch.frame(["topic"]).count()  # Spark's part, which a stop at once would break off.
        time.sleep(0.2)
        self.done += 1
        return SinkFigures(records=1)


def test_batches_are_told_as_they_are_done_and_the_last_comes_to_its_end(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, slow = append(tmp_path / "a", 400), Slow()
    more: Any = {"derive": [], "checkpoint": str(tmp_path / "progress"), "batch_bytes_max": 4096, "sinks": [slow]}
    ends = []
    for progress in pipeline(spark, [store], **more).work_off(stop=lambda: slow.begun > 3):
        ends.append(progress.positions["a"])
        if len(ends) == 1:
            assert slow.done < 5  # The others are still to come.
    assert slow.begun == slow.done == len(ends)
    seen = slow.done
    for progress in pipeline(spark, [store], **more).follow():
        assert progress.positions["a"] > ends[-1]  # Noted as done: not even the last one comes again.
        ends.append(progress.positions["a"])
        break
    assert slow.begun == slow.done > seen
    assert "StackOverflowError" not in capfd.readouterr().err


def test_places_that_cannot_be(spark: "SparkSession", tmp_path: Path) -> None:
    store, lake = append(tmp_path / "a", 10), tmp_path / "lake"
    (tmp_path / "file").write_text("x")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"into": str(lake), "checkpoint": "/proc/progress"}, "checkpoint = '/proc/progress': cannot be written"),
        ({"into": str(lake), "checkpoint": str(tmp_path / "file")}, "this is a file"),
        ({"into": "/proc/lake", "derive": ["stats"]}, "into = '/proc/lake': cannot be written"),
        ({"into": "/proc/lake"}, "cannot be used"),
        ({"into": "s3://bucket/lake?region=x"}, "name a directory for it"),
    ]
    for more, said in cases:
        with pytest.raises(OptionInvalid) as problem:
            pipeline(spark, [store], **more)
        assert said in str(problem.value)
    assert not lake.exists()
    assert [one.name for one in tmp_path.iterdir() if one.name not in ("a", "file")] == []


def test_rows_are_those_of_the_log(spark: "SparkSession", tmp_path: Path) -> None:
    """Stopped between batches and gone on with, the lake is as if nothing had been."""
    store, lake = append(tmp_path / "a", 300), str(tmp_path / "lake")
    for _ in pipeline(spark, [store], into=lake, batch_bytes_max=8192).follow():
        break
    pipeline(spark, [store], into=lake, batch_bytes_max=8192).once()
    builder = StoreBuilder(tmp_path / "a", segment_bytes=8192)
    assert rows(Lake.open(lake), spark) == records(builder, all_of_them=True)
    assert counted(Path(lake)) == 300


class Named:
    """Keeps what it was given under the name of the batch."""

    name = "named"

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    def process(self, batch: LogBatch) -> SinkFigures:
        self.kept[batch.name] = batch.frame(["topic"]).count()
        return SinkFigures()


def test_batches_of_two_stores_have_names_of_their_own(spark: "SparkSession", tmp_path: Path) -> None:
    stores, named = [append(tmp_path / "a", 100), append(tmp_path / "b/x", 0)], Named()
    more: Any = {"derive": [], "checkpoint": str(tmp_path / "progress"), "sinks": [named]}
    pipeline(spark, stores, **more).once()
    append(tmp_path / "b/x", 100)  # The same stretch, of another log.
    pipeline(spark, stores, **more).once()
    assert sorted(named.kept.values()) == [100, 100]
