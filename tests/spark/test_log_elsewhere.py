"""A store whose log lies outside its directory, where its broker.conf says: everything of Spark follows it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.testing.builder import StoreBuilder
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 3000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Its log is in two directories, and several files."""
    root, logs = tmp_path / "broker-a", (tmp_path / "disk-1", tmp_path / "disk-2")
    builder = StoreBuilder(root, commit_log_paths=logs, segment_bytes=128 << 10)
    with builder.open() as opened:
        for number in range(COUNT):
            opened.append(Message("orders", b"x" * 100, tags="paid", keys=[f"o-{number}"]))
    (root / "broker.conf").write_text(f"brokerName=broker-a\nstorePathCommitLog={logs[0]},{logs[1]}\n")
    assert all(any(log.iterdir()) for log in logs)
    assert not (root / "commitlog").exists()
    return root


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


def test_a_log_that_is_not_where_broker_conf_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "broker-b"
    root.mkdir()
    (root / "broker.conf").write_text("storePathCommitLog=/nowhere/log\n")
    assert run(["spark", "explain", str(root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "its broker.conf puts the log at /nowhere/log, and there is no such directory" in line
