"""What retention may delete: only what an archive of this very store holds, whole. And how `archive` fails."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.errors import OptionInvalid, StoreError, StoreReplaced
from embermq.spark.jobs.archive import archive, archive_guard
from embermq.spark.lake import Lake
from embermq.spark.pipelines import pipeline
from embermq.store.services.retention import OldSegment
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.test_lake import fill
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

BROKER = "broker-a"
SCHEMA = {"orders": "id string"}


def first_of(builder: StoreBuilder) -> OldSegment:
    return OldSegment(builder.root, builder.root / "commitlog" / f"{0:020d}", 0, 8192, 0, True)


def json_store(place: Path) -> StoreBuilder:
    builder = StoreBuilder(place, segment_bytes=8192)
    with builder.open() as store:
        store.append_many([Message("orders", b'{"id": "%d"}' % number) for number in range(100)])
        store.append(Message("orders", b"later", delay_level=18))
    return builder


def test_another_store_of_the_same_name(spark: "SparkSession", tmp_path: Path) -> None:
    one, other = (StoreBuilder(tmp_path / name / BROKER, **numbered.TINY) for name in ("one", "two"))
    fill(one, 0, 60)
    fill(other, 0, 80)
    archive(spark, [str(one.root)], str(tmp_path / "lake"))
    guard = archive_guard(str(tmp_path / "lake"), BROKER)
    assert guard(first_of(one))
    with pytest.raises(StoreReplaced, match="another log"):
        guard(first_of(other))
    assert guard(first_of(one))


@pytest.mark.parametrize("is_in_conf", [True, False])
def test_a_log_outside_of_the_directory(spark: "SparkSession", tmp_path: Path, is_in_conf: bool) -> None:
    """Where settings of the broker put it, whether a broker.conf in the directory says so or not."""
    root, log = tmp_path / BROKER, tmp_path / "log"
    builder = StoreBuilder(root, **numbered.TINY, commit_log_paths=(log,))
    with builder.open() as store:
        store.append_many([Message("orders", b"x" * 200) for _ in range(100)])
    conf = root / "broker.conf"
    conf.write_text(f"brokerName={BROKER}\nstorePathCommitLog={log}\n")
    archive(spark, [str(root)], str(tmp_path / "lake"))
    if not is_in_conf:
        conf.unlink()
    guard = archive_guard(str(tmp_path / "lake"), BROKER)
    with MessageStore.open(root, builder.settings, retention_guard=guard) as store:
        cleaned = store.delete_expired(before_ms=1 << 60)
        assert cleaned.segments > 0, cleaned
        assert cleaned.held_by is None


def test_a_lake_that_lacks_something_is_no_archive(spark: "SparkSession", tmp_path: Path) -> None:
    builder = json_store(tmp_path / BROKER)
    store, seen, whole = str(builder.root), str(tmp_path / "seen"), str(tmp_path / "whole")
    pipeline(spark, [store], into=seen, json=SCHEMA, drop_bodies=True).once()
    with pytest.raises(OptionInvalid, match="leaves out what no consumer sees"):
        archive_guard(seen, BROKER)
    archive(spark, [store], whole, json=SCHEMA)
    with pytest.raises(OptionInvalid, match="stands in for the log"):
        pipeline(spark, [store], into=whole, drop_bodies=True)
    pipeline(spark, [store], into=whole).once()  # Without that it may go on.
    assert archive_guard(whole, BROKER)(first_of(builder))


def test_damage_that_was_archived_before(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    builder = json_store(tmp_path / BROKER)
    log = builder.root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:3000] + b"\xff" * 50 + log.read_bytes()[3050:])
    words = ["spark", "archive", str(builder.root), "--into", str(tmp_path / "lake"), "--output", "json"]
    assert run(words) == 1
    (first,) = json.loads(capsys.readouterr().out)["archived"]
    assert run(words) == 1
    (second,) = json.loads(capsys.readouterr().out)["archived"]
    assert second["damaged_bytes_before"] == first["damaged_bytes"] > 0
    assert second["records"] == second["damaged_bytes"] == 0


def test_a_task_that_cannot_write(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = json_store(tmp_path / BROKER)
    lake = Lake.open(str(tmp_path / "lake"), include_system=True)
    (tmp_path / "lake" / "topic=orders").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written") as problem:
        archive(spark, [str(builder.root)], lake.files.root)
    assert "Traceback" not in str(problem.value)
    assert len(str(problem.value).splitlines()) == 1
