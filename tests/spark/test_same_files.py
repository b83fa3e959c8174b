"""One log, one answer: every derived file has the same SHA-256, whoever derived it.

    live        the dispatcher of the store that wrote the log, or, of the golden stores, RocketMQ itself
    start       our own store, opened with the log alone
    rebuild     `embermq store rebuild`
    spark       `embermq spark rebuild`
    pipeline    the pipeline on Spark, stopped at random and started again

Index files are compared in the order of their names, which are times.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StoreError
from embermq.files import RealFiles
from embermq.repair.rebuild.rebuilding import rebuild, settings_as_found
from embermq.spark.jobs import rebuild as job
from embermq.spark.pipelines import pipeline
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.compat.test_golden_rebuild import FROM_THE_LOG
from tests.crash import numbered
from tests.spark.test_pipeline import Breaking
from tests.support import golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

Sums = dict[str, str]
FAMILIES = ("consumequeue", "consumequeue_ext", "index")
# What a log of our own is made of: (name, settings, messages).
GENERATED: list[tuple[str, dict[str, Any], int]] = [
    ("tiny files", {}, 100),
    ("one file each", {"segment_bytes": 1 << 20, "queue_file_bytes": 20 * 2000, "index_entries_max": 4000}, 160),
    ("index full to the last entry", {"index_entries_max": 2}, 48),
    ("long queues, short index", {"queue_file_bytes": 20 * 500, "index_slots_max": 3, "index_entries_max": 7}, 120),
]


def sums(root: Path) -> Sums:
    """SHA-256 of every derived file; the digests of holes are those of zeros."""
    found = {}
    for family in FAMILIES:
        for name, digest in golden.content(root / family, names=family != "index").items():
            found[f"{family}/{name}"] = digest
    return found


def log_alone(root: Path, target: Path) -> Path:
    """A store of which nothing is left but its log."""
    target.mkdir()
    shutil.copytree(root / "commitlog", target / "commitlog")
    return target


def interrupted(spark: "SparkSession", root: Path, settings: StoreSettings, place: Path, seed: int) -> None:
    """The pipeline over small batches, with a sink that fails now and then."""
    breaking = Breaking(random.Random(seed))
    for _ in range(100):
        made = pipeline(
            spark,
            [str(root)],
            derive=["queues", "index"],
            settings=settings,
            checkpoint=str(place),
            batch_bytes_max=12_000,
            sinks=[breaking],
        )
        try:
            made.once()
            return
        except StoreError as problem:
            assert str(problem) == "pulled the plug"  # noqa: PT017
    raise AssertionError("it never came to its end")


def all_ways(
    spark: "SparkSession", root: Path, settings: StoreSettings, tmp_path: Path, expected: Sums, *without: str
) -> None:
    ways: dict[str, Callable[[Path], object]] = {
        "start": lambda path: MessageStore.open(path, settings, clock=ManualClock()).close(),
        "rebuild": lambda path: rebuild(path, settings),
        "spark": lambda path: job.rebuild(spark, path, settings=settings),
        "pipeline": lambda path: interrupted(spark, path, settings, tmp_path / "checkpoint", len(expected)),
    }
    assert expected
    for name, derive in ways.items():
        if name not in without:
            copy = log_alone(root, tmp_path / name)
            derive(copy)
            assert sums(copy) == expected, name


@pytest.mark.parametrize(("settings", "count"), [one[1:] for one in GENERATED], ids=[one[0] for one in GENERATED])
def test_generated(spark: "SparkSession", tmp_path: Path, settings: dict[str, Any], count: int) -> None:
    builder = StoreBuilder(tmp_path / "live", clock=ManualClock(), **(numbered.TINY | settings))
    with builder.open() as store:
        numbered.append_until(store, 0, count)
    without = ["pipeline"] if settings else []  # It takes seconds: once in the ordinary run.
    all_ways(spark, builder.root, builder.settings, tmp_path, sums(builder.root), *without)


def test_many_queues(spark: "SparkSession", tmp_path: Path) -> None:
    """And topics whose names are not plain letters."""
    builder = StoreBuilder(tmp_path / "live", clock=ManualClock(), **numbered.TINY)
    chance = random.Random(5)
    with builder.open() as store:
        for number in range(300):
            topic = chance.choice(["%RETRY%shop", "%DLQ%shop", "a-b_c|d", "T" * 127, f"t{number % 40}"])
            keys = [f"k{number}", f"k{number}"] if number % 3 else []
            store.append(Message(topic, b"x" * chance.randrange(200), queue_id=number % 5, keys=keys, tags="a"))
    all_ways(spark, builder.root, builder.settings, tmp_path, sums(builder.root), "pipeline")


PLAIN = [name for name in FROM_THE_LOG if name not in ("lmq", "default-size")]


@pytest.mark.parametrize("name", PLAIN)
def test_golden(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    """Byte for byte what RocketMQ made itself."""
    store = golden.restore(name, tmp_path / "reference")
    settings = StoreSettings.from_properties(golden.manifest(name).properties())
    all_ways(spark, store, settings, tmp_path, sums(store), "pipeline")


@pytest.mark.parametrize(
    "name", [name if name == "transaction-raw" else pytest.param(name, marks=pytest.mark.long) for name in PLAIN]
)
def test_golden_by_the_pipeline(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    store = golden.restore(name, tmp_path / "reference")
    settings = StoreSettings.from_properties(golden.manifest(name).properties())
    all_ways(spark, store, settings, tmp_path, sums(store), "start", "rebuild", "spark")


@pytest.mark.parametrize("name", ["lmq", "cqext", "default-size", "deleted-segments"])
def test_golden_by_both_rebuilds(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    """Light queues and extensions, which the pipeline does not make; files of a gigabyte; what the log alone cannot
    give and a rebuild keeps."""
    settings = StoreSettings.from_properties(golden.manifest(name).properties())
    walked, sliced = (golden.restore(name, tmp_path / way) for way in ("walk", "slices"))
    settings = settings.replace(**settings_as_found(RealFiles(), walked))
    before = sums(walked)
    rebuild(walked, settings)
    job.rebuild(spark, sliced, settings=settings)
    assert sums(sliced) == sums(walked)
    if name in FROM_THE_LOG:
        assert sums(sliced) == before
