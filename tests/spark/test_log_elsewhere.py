"""A store whose log lies outside its directory, where a broker.conf says: everything of Spark follows it.

The broker.conf is in the directory, or elsewhere and named by an option: then nothing is written into the directory.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import embermq.spark
from embermq import Message
from embermq.cli.app import run
from embermq.spark.planning import store_at, stores_at
from embermq.spark.planning.stores import find_stores, open_survey
from embermq.testing.builder import StoreBuilder
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

COUNT = 3000


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Its log is in two directories, and several files; beside it, not in it, is its broker.conf."""
    root, logs = tmp_path / "broker-a", (tmp_path / "disk-1", tmp_path / "disk-2")
    builder = StoreBuilder(root, commit_log_paths=logs, segment_bytes=128 << 10)
    with builder.open() as opened:
        for number in range(COUNT):
            opened.append(Message("orders", b"x" * 100, tags="paid", keys=[f"o-{number}"]))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "broker.conf").write_text(f"brokerName=east\nstorePathCommitLog={logs[0]},{logs[1]}\n")
    assert all(any(log.iterdir()) for log in logs)
    assert not (root / "commitlog").exists()
    return root


@pytest.fixture
def store(bare: Path) -> Path:
    """The same with its broker.conf in it."""
    (bare / "broker.conf").write_bytes((bare.parent / "conf" / "broker.conf").read_bytes())
    return bare


def names_in(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = run(["spark", *words, "--output", "json"])
    heard = capsys.readouterr()
    assert code == 0, heard.err
    return json.loads(heard.out)


@pytest.mark.slow(8)
def test_reads_and_jobs_follow_broker_conf(
    store: Path,
    tmp_path: Path,
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = spark.read.format("rocketmq").option("topic", "orders").load(str(store))
    assert rows.select("keys", "physicalOffset").distinct().count() == COUNT
    lend(spark, monkeypatch)
    query = "select tags, count(*) as n from orders group by 1"
    assert asked(capsys, "sql", query, "--store", str(store))["rows"] == [{"tags": "paid", "n": COUNT}]
    (audited,) = asked(capsys, "audit", str(store))["stores"]
    assert audited["records"] == COUNT
    (archived,) = asked(capsys, "archive", str(store), "--into", str(tmp_path / "lake"))["archived"]
    assert archived["records"] == COUNT


@pytest.mark.slow(8)
def test_options_name_a_broker_conf_anywhere(bare: Path, tmp_path: Path, spark: "SparkSession") -> None:
    before = names_in(bare)
    conf, logs = str(tmp_path / "conf" / "broker.conf"), f"{tmp_path / 'disk-1'},{tmp_path / 'disk-2'}"
    reading = spark.read.format("rocketmq").option("topic", "orders")
    rows = reading.option("storeConfig", conf).load(str(bare))
    assert rows.select("keys", "brokerName").distinct().count() == COUNT
    assert [row.brokerName for row in rows.select("brokerName").distinct().collect()] == ["east"]
    assert reading.option("commitLogPath", logs).load(str(bare)).count() == COUNT
    for read in (embermq.spark.scan, embermq.spark.table):
        assert read(spark, bare, ["keys"], storeConfig=[conf]).count() == COUNT
    stream = embermq.spark.stream(spark, bare, ["keys"], storeConfig=conf, startingOffsets="earliest")
    query = (
        stream.writeStream.format("memory")
        .queryName("elsewhere")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "progress"))
        .start()
    )
    assert query.awaitTermination(120)
    assert spark.table("elsewhere").count() == COUNT
    assert names_in(bare) == before


@pytest.mark.slow(15)
def test_commands_take_a_broker_conf_anywhere(
    bare: Path,
    tmp_path: Path,
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = names_in(bare)
    lend(spark, monkeypatch)
    said = ("--store-config", str(tmp_path / "conf" / "broker.conf"))
    query = "select brokerName, count(*) as n from orders group by 1"
    assert asked(capsys, "sql", query, "--store", str(bare), *said)["rows"] == [{"brokerName": "east", "n": COUNT}]
    (explained,) = asked(capsys, "explain", str(bare), *said)["stores"]
    assert (explained["broker_name"], explained["path"]) == ("east", str(bare))
    assert asked(capsys, "stats", str(bare), *said)["stats"]["messages"] == COUNT
    (audited,) = asked(capsys, "audit", str(bare), *said)["stores"]
    assert (audited["records"], audited["path"]) == (COUNT, str(bare))
    (archived,) = asked(capsys, "archive", str(bare), "--into", str(tmp_path / "archive"), *said)["archived"]
    assert (archived["records"], archived["path"]) == (COUNT, str(bare))
    (shipped,) = asked(capsys, "ship", str(bare), "--to", str(tmp_path / "copy"), "--tail", *said)["shipped"]
    assert shipped["broker_name"] == "east"
    assert run(["spark", "pipeline", str(bare), "--into", str(tmp_path / "lake"), *said]) == 0
    capsys.readouterr()
    assert spark.read.parquet(str(tmp_path / "lake")).count() == COUNT
    checkpoint = ("--checkpoint", str(tmp_path / "lake" / "_checkpoint"))
    (lag,) = asked(capsys, "lag", *checkpoint, "--store", str(bare), *said)["checkpoints"]
    assert [(one["broker_name"], one["behind_bytes"]) for one in lag["lags"]] == [("east", 0)]
    replay = ("replay", str(bare), "--topic", "orders", "--dry-run", *said)
    assert asked(capsys, *replay, "--tags", "paid")["replay"]["found"] == COUNT
    assert run(["spark", *replay, "--tags", "price > 5"]) == 2
    assert "not a list of tags" in capsys.readouterr().err
    logs = ("--commit-log", f"{tmp_path / 'disk-1'},{tmp_path / 'disk-2'}")
    again = asked(capsys, "rebuild", str(bare), "--into", str(tmp_path / "derived"), *logs)
    assert again["rebuilt"]["records"] == COUNT
    assert names_in(bare) == before


def test_relative_paths_and_a_broker_conf_in_the_directory(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bare.parent)
    (place,) = find_stores(stores_at(["broker-a"], ["conf/broker.conf"], None))
    assert place.source == store_at(bare, store_config=bare.parent / "conf" / "broker.conf")
    (bare / "broker.conf").write_text("brokerName=north\n")
    (place,) = find_stores(stores_at(["broker-a"], [], "disk-1, disk-2"))
    assert place.source == store_at(bare, commit_log_path=f"{bare.parent / 'disk-1'},{bare.parent / 'disk-2'}")
    assert place.broker_name == "north"
    monkeypatch.chdir("/")
    assert open_survey(place.source).log_end > COUNT * 100


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--store-config", "/nowhere/broker.conf"), "option storeConfig = '/nowhere/broker.conf': cannot be read"),
        (("--commit-log", "/nowhere/log"), "option commitLogPath = '/nowhere/log': there is no directory /nowhere/log"),
        (("--store-config", "a", "--store-config", "b"), "one broker.conf for each path"),
        ((), "name its broker.conf with storeConfig (--store-config)"),
    ],
)
def test_a_store_config_that_does_not_help_is_said_in_a_line(
    bare: Path, words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", "explain", str(bare), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_log_that_is_not_where_broker_conf_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "broker-b"
    root.mkdir()
    (root / "broker.conf").write_text("storePathCommitLog=/nowhere/log\n")
    assert run(["spark", "explain", str(root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "its broker.conf puts the log at /nowhere/log, and there is no such directory" in line
