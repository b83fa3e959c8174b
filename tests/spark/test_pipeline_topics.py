"""A pipeline of some topics, in batches that wait for more, with files of a wanted size."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.errors import OptionInvalid
from embermq.spark.lake import Lake, TopicFilter
from embermq.spark.lake.commits import LakeFile
from embermq.spark.lake.compaction import groups_of_small_files
from embermq.spark.lake.topic_filter import as_regex
from embermq.spark.pipelines import LogBatch, LogRange, pipeline
from embermq.spark.pipelines.minute_statistics import MinutesSink
from embermq.spark.pipelines.ranges import LogRangesReader
from embermq.spark.pipelines.surveyed_stores import SurveyedStores
from embermq.spark.reading.views import messages
from embermq.testing.builder import StoreBuilder
from tests.support.lent_session import lend
from tests.support.minutes import read_minutes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

TOPICS = ["orders", "orders-eu", "orders-test", "returns"]


def fill(builder: StoreBuilder, count: int) -> None:
    with builder.open() as store:
        store.append_many([Message(topic, b"%d" % number) for number in range(count) for topic in TOPICS])


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        ([], [], TOPICS),
        (["orders*"], [], TOPICS[:3]),
        (["orders*"], ["*-test"], TOPICS[:2]),
        (["orders,returns"], [], ["orders", "returns"]),
        ([], ["orders", "return?"], ["orders-eu", "orders-test"]),
        (["Orders", "order", "rders"], [], []),
        (["orders.eu", "[o]rders"], [], []),
    ],
)
def test_which_topics(include: list[str], exclude: list[str], wanted: list[str]) -> None:
    chosen = TopicFilter.of(include, exclude)
    assert [topic for topic in TOPICS if chosen.wants(topic)] == wanted


def test_words_that_are_none() -> None:
    with pytest.raises(OptionInvalid, match="empty"):
        TopicFilter.of(["orders,"], [])
    assert as_regex("%DLQ%g?") == "(?s)^%DLQ%g.$"


@pytest.mark.slow(15)
def test_a_lake_of_some_topics(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    builder, lake = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 16), str(tmp_path / "lake")
    fill(builder, 5)
    words = ["spark", "pipeline", str(builder.root), "--into", lake]
    assert run([*words, "--topic", "orders*", "--exclude", "*-test"]) == 0
    fill(builder, 2)
    assert run([*words, "--metrics-file", str(tmp_path / "figures.prom")]) == 0  # The lake remembers.
    figures = (tmp_path / "figures.prom").read_text()
    assert "embermq_pipeline_batches_total 1\n" in figures
    assert 'embermq_pipeline_sink_records_total{sink="lake"} 8\n' in figures
    held = Lake.open(lake, make=False)
    assert {file.topic: 0 for file in held.live_files()}.keys() == {"orders", "orders-eu"}
    assert sum(file.rows for file in held.live_files()) == 14
    minutes = read_minutes(lake)
    assert minutes is not None
    assert set(minutes["topic"].to_pylist()) == {"orders", "orders-eu"}
    fill(builder, 1)
    check_lag(builder, lake, capsys)
    rows = messages(spark, [str(builder.root)], lake=lake)  # What the lake leaves out comes from the log.
    counts = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert counts == dict.fromkeys(TOPICS, 8)
    capsys.readouterr()
    assert run([*words, "--topic", "returns"]) == 2
    assert "is that of topics orders* without *-test" in capsys.readouterr().err
    assert run([*words, "--topic", "returns", "--checkpoint", str(tmp_path / "other")]) == 2
    assert "has topics orders* without *-test" in capsys.readouterr().err
    stores = SurveyedStores({"broker-a": str(builder.root)})
    stores.begin_batch()
    batch = LogBatch(0, (LogRange("broker-a", str(builder.root), 0, 100),), spark, stores)
    with pytest.raises(OptionInvalid, match=r"are of topics orders\*"):
        MinutesSink(lake, TopicFilter()).process(batch)


def check_lag(builder: StoreBuilder, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["spark", "lag", "--checkpoint", f"{lake}/_checkpoint", "--store", str(builder.root)]
    assert run([*words, "--output", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["checkpoints"]
    [only] = found["lags"]
    assert found["batch"] == 1
    with builder.open(read_only=True) as store:
        waiting = list(store.scan())[-4:]
    assert (only["broker_name"], only["state"], only["position"]) == ("broker-a", "ok", waiting[0].physical_offset)
    assert only["behind_bytes"] == sum(one.size for one in waiting)
    assert only["behind_seconds"] > 0


def test_filters_that_cannot_be(spark: "SparkSession", tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 16)
    fill(builder, 1)
    some = TopicFilter.of(["orders"], [])
    with pytest.raises(OptionInvalid, match="queues and index are of all"):
        pipeline(spark, [str(builder.root)], derive=["queues"], checkpoint=str(tmp_path / "c"), topics=some)
    with pytest.raises(OptionInvalid, match="1 MiB to 1 GiB"):
        pipeline(spark, [str(builder.root)], into=str(tmp_path / "lake"), file_bytes=5)
    assert (
        run(["spark", "pipeline", str(builder.root), "--into", str(tmp_path / "lake"), "--every", "5s", "--once"]) == 2
    )


def test_a_batch_waits_for_its_time_or_for_being_full(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 16)
    fill(builder, 1)
    now = [100.0]
    reader = LogRangesReader({"a": str(builder.root)}, 2_000, True, 60.0, now=lambda: now[0])
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert first != start  # Whatever is there when it begins.
    fill(builder, 1)
    now[0] += 59
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    now[0] += 1
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert second["stores"]["a"]["position"] > first["stores"]["a"]["position"]
    fill(builder, 20)
    third = reader.latestOffset(second, reader.getDefaultReadLimit())  # More than a batch: at once.
    assert 0 < third["stores"]["a"]["position"] - second["stores"]["a"]["position"] <= 2_500
    fill(builder, 1)
    reader.prepareForTriggerAvailableNow()
    ends = json.loads(json.dumps(reader.latestOffset(third, reader.getDefaultReadLimit())))
    assert ends["stores"]["a"]["position"] > third["stores"]["a"]["position"]


def test_files_are_joined_when_they_make_one_of_the_wanted_size() -> None:
    files = [LakeFile(f"f{number}", "orders", "2026-01-01", 1, 1 << 20, 0) for number in range(10)]
    assert [len(group) for group in groups_of_small_files(files, 8 << 20, full_only=True)[1]] == [8]
    assert groups_of_small_files(files[:3], 4 << 20, full_only=True)[1] == []
    assert groups_of_small_files(files[:5], 32 << 20, full_only=True)[1] == []
    assert [len(group) for group in groups_of_small_files(files[:5], 32 << 20)[1]] == [5]
