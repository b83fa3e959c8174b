"""The pipeline: what it derives equals what the store derives, whatever stops it in between."""

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message, MessageStore
from embermq.errors import DataLost, OptionInvalid, StoreError, StoreReplaced
from embermq.spark.lake import Lake
from embermq.spark.pipelines import LogBatch, SinkFigures, pipeline
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.spark.test_lake import records, rows
from tests.support.minutes import read_minutes
from tests.unit.repair.rebuild.test_follower import derived, log_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 120


@pytest.fixture
def bare(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "bare", clock=ManualClock(), **numbered.TINY)
    with log_only(builder) as store:
        numbered.append_until(store, 0, COUNT)
    return builder


def live(tmp_path: Path, count: int = COUNT) -> dict[str, bytes]:
    builder = StoreBuilder(tmp_path / "live", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        numbered.append_until(store, 0, count)
    return derived(builder.root)


def test_all_that_comes_along(spark: "SparkSession", bare: StoreBuilder, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    made = pipeline(
        spark,
        [str(bare.root)],
        into=lake,
        derive=["queues", "index", "lake", "stats"],
        settings=bare.settings,
        batch_bytes_max=12_000,
    )
    done = made.once()
    assert len(done) >= 3
    assert done[-1].lag_bytes == 0
    with bare.open(read_only=True) as store:
        everything = list(store.scan())
    assert sum(one.sinks["queues+index"].records for one in done) == len(everything)
    assert derived(bare.root) == live(tmp_path)
    assert rows(Lake.open(lake), spark) == records(bare, all_of_them=False)
    minutes = read_minutes(lake)
    assert minutes is not None
    seen = [one for one in everything if one.sys_flag & 0xC not in (4, 12) and one.topic != "SCHEDULE_TOPIC_XXXX"]
    assert sum(minutes["messages"].to_pylist()) == len(seen)
    assert sum(minutes["bytes"].to_pylist()) == sum(one.size for one in seen)
    assert sum(minutes["delay_sum_ms"].to_pylist()) == sum(one.store_timestamp - one.born_timestamp for one in seen)
    assert made.once() == []  # Nothing new.


class Breaking:
    """A sink that fails now and then, before or after the others have done their part."""

    name = "breaking"

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.seen: list[tuple[int, int]] = []

    def process(self, batch: LogBatch) -> SinkFigures:
        if self.chance.random() < 0.4:
            raise StoreError("pulled the plug")
        self.seen += [(one.start, one.end) for one in batch.ranges]
        return SinkFigures()


@pytest.mark.parametrize("seed", [1, 2])
def test_stopped_anywhere_it_goes_on(spark: "SparkSession", bare: StoreBuilder, tmp_path: Path, seed: int) -> None:
    chance, lake = random.Random(seed), str(tmp_path / "lake")
    breaking, failures = Breaking(chance), list[str]()
    for _ in range(60):
        made = pipeline(
            spark,
            [str(bare.root)],
            into=lake,
            derive=["lake", "queues", "index", "stats"],
            settings=bare.settings,
            batch_bytes_max=9_000,
            sinks=[breaking],
        )
        try:
            made.once()
            break
        except StoreError as problem:
            failures.append(str(problem))
    assert "pulled the plug" in failures
    # A machine that is too busy for Spark to start a worker is only one more reason to stop.
    assert all(one == "pulled the plug" or "connect back" in one for one in failures), failures
    assert breaking.seen[0][0] == 0
    assert [end for _, end in breaking.seen[:-1]] == [start for start, _ in breaking.seen[1:]]
    assert derived(bare.root) == live(tmp_path)
    assert rows(Lake.open(lake), spark) == records(bare, all_of_them=False)


def test_following_a_log_that_is_written(spark: "SparkSession", tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "written", clock=ManualClock(), **numbered.TINY)
    with log_only(builder) as store:
        numbered.append_until(store, 0, 16)
        made = pipeline(
            spark,
            [str(builder.root)],
            derive=["queues", "index"],
            settings=builder.settings,
            checkpoint=str(tmp_path / "checkpoint"),
        )
        wrote = threading.Event()

        def write() -> None:
            wrote.wait(60)
            numbered.append_until(store, 16, COUNT)

        writing = threading.Thread(target=write)
        writing.start()
        for progress in made.follow("100 milliseconds"):
            wrote.set()
            if not writing.is_alive() and progress.positions["written"] >= store.max_physical:
                break
        writing.join()
    assert derived(builder.root) == live(tmp_path)


def test_several_stores_and_a_sink_of_ones_own(spark: "SparkSession", tmp_path: Path) -> None:
    for name in ("a", "b"):
        with StoreBuilder(tmp_path / "stores" / name).open() as store:
            store.append_many([Message("orders", f"{name}{n}".encode(), tags="paid") for n in range(50)])

    class Counter:
        name = "counter"

        def __init__(self) -> None:
            self.counts: dict[tuple[str, str], int] = {}

        def process(self, batch: LogBatch) -> SinkFigures:
            found = batch.frame(["brokerName", "topic"]).groupBy("brokerName", "topic").count().collect()
            for row in found:
                key = (row["brokerName"], row["topic"])
                self.counts[key] = self.counts.get(key, 0) + row["count"]
            return SinkFigures(records=sum(row["count"] for row in found))

    counter = Counter()
    made = pipeline(
        spark,
        [str(tmp_path / "stores" / "*")],
        derive=[],
        sinks=[counter],
        checkpoint=str(tmp_path / "checkpoint"),
        batch_bytes_max=4000,
    )
    done = made.once()
    assert counter.counts == {("a", "orders"): 50, ("b", "orders"): 50}
    assert sum(one.records for one in done) == 100
    assert set(done[-1].positions) == {"a", "b"}


def test_a_log_that_is_gone_or_another(spark: "SparkSession", bare: StoreBuilder, tmp_path: Path) -> None:
    def made(**more: Any) -> Any:
        return pipeline(spark, [str(bare.root)], into=str(tmp_path / "lake"), derive=["stats"], **more)

    made().once()
    with log_only(bare) as store:
        numbered.append_until(store, COUNT, 2 * COUNT)
    files = sorted((bare.root / "commitlog").iterdir())
    with bare.open(read_only=True) as store:
        end = store.max_physical
    gone = [path for path in files if int(path.name) + 8192 < end][: len(files) - 2]
    for path in gone:
        path.unlink()
    with pytest.raises(DataLost, match="begins at"):
        made().once()
    assert made(fail_on_data_loss=False).once()[-1].lag_bytes == 0
    for path in sorted(bare.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with MessageStore.open(bare.root, bare.settings) as store:
        numbered.append_until(store, 0, 10)
    with pytest.raises(StoreReplaced, match="another checkpoint"):
        made().once()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"derive": ["lakes"]}, "choose from queues, index, lake, stats"),
        ({"derive": ["lake"], "checkpoint": "x"}, "needs a place to write to"),
        ({"derive": ["queues"]}, "where progress is to be kept"),
        ({"derive": []}, "choose from"),
    ],
)
def test_a_pipeline_that_cannot_be(spark: "SparkSession", bare: StoreBuilder, more: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionInvalid, match=said):
        pipeline(spark, [str(bare.root)], **more)
