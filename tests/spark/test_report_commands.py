"""`embermq spark audit` and the pages of audit and pipeline, as a user gets them: answers, exit codes, mistakes."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.inspect.snapshot import Survey
from embermq.spark.pipelines import BatchProgress
from embermq.spark.pipelines.batches import RangeSlice
from embermq.spark.pipelines.report import pipeline_report
from embermq.spark.pipelines.report_sink import STEPS_KEPT, RunFigures, SliceFigures, TopicFigures, count_slice
from embermq.spark.report import render
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.spark.test_job_commands import asked, refused
from tests.spark.test_report import checked
from tests.support.browser import find_browser, laid_out
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

START_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """100 orders, a second apart, number n born n ms before it is stored; and one delayed message, parked."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "broker-a", clock=clock, segment_bytes=1 << 16)
    with builder.open() as opened:
        for n in range(100):
            clock.set(now := START_MS + 1000 * n)
            opened.append(
                Message(
                    "orders",
                    b"x" * 2000,
                    tags="paid",
                    keys=[f"o-{n}"],
                    born_timestamp=now - n,
                    properties={"UNIQ_KEY": f"key-{n}"},
                )
            )
        opened.append(Message("orders", b"later", delay_level=18))
    return builder.root


@pytest.fixture
def damaged(store: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(store, tmp_path / "broker-b"))
    path = sorted((root / "commitlog").iterdir())[1]
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    return root


@pytest.fixture
def lend_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    lend(spark, monkeypatch)


def seen_by_browser(page: Path, width: int, *more: str) -> None:
    """Where there is no browser the rest of the test still counts."""
    if find_browser() is None:
        return
    layout = laid_out(page, width, *more)
    assert layout.scroll_width <= layout.client_width
    assert layout.tables > 0
    assert layout.cut_tables == ()
    assert layout.text_length > 500


# -- audit -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lend_session")
def test_audit_of_a_sound_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "audit", str(store))
    assert (found["sound"], found["faults"], found["findings"]) == (True, 0, [])
    (one,) = found["stores"]
    assert (one["broker_name"], one["records"], one["damaged_bytes"], one["live"]) == ("broker-a", 101, 0, False)
    assert [(topic["topic"], topic["messages"]) for topic in one["topics"]] == [
        ("orders", 100),
        ("SCHEDULE_TOPIC_XXXX", 1),
    ]
    assert run(["spark", "audit", str(store)]) == 0
    out = capsys.readouterr().out
    assert "orders" in out
    assert "sound" in out


@pytest.mark.usefixtures("lend_session")
def test_audit_of_a_damaged_store(
    store: Path, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, saved = tmp_path / "audit.html", tmp_path / "findings.jsonl"
    words = ["audit", str(store), str(damaged), "--report", str(page), "--save", str(saved)]
    found = asked(capsys, *words, code=1)
    (fault,) = (one for one in found["findings"] if one["severity"] == "fault")
    assert (fault["broker_name"], fault["kind"], fault["byte_offset"]) == ("broker-b", "log", 0)
    assert fault["file"] == "commitlog/00000000000000065536"
    assert fault["end_offset"] - fault["physical_offset"] > 2000
    assert found["stores"][1]["damages"][0]["reason"] == "bad crc"
    assert (found["faults"], found["sound"], found["findings_total"]) == (1, False, len(found["findings"]))
    assert found["report"] == str(page)
    assert found["saved"] == [str(saved)]
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    assert [line["fault"] for line in lines] == [one["fault"] for one in found["findings"]]
    texts = checked(page.read_text())
    for said in ("1 faults", "broker-b", "bad crc", "orders", "00000000000000065536", "Log integrity", "XXXX (no tag)"):
        assert said in texts
    for width, more in ((1200, ()), (390, ("--blink-settings=preferredColorScheme=0",))):
        seen_by_browser(page, width, *more)
    assert asked(capsys, "audit", str(damaged), "--limit", "0", code=1)["findings"] == []
    assert run(["spark", "audit", str(damaged), "--limit", "1"]) == 1
    out = capsys.readouterr().out
    assert "bad crc" in out
    assert "more; --save writes all of them" in out
    assert "faults: 1" in out


@pytest.mark.usefixtures("lend_session")
def test_mistakes_are_one_line_and_nothing_is_written(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    for words, said in [
        (["audit", str(tmp_path / "nowhere")], "no such directory"),
        (["audit", str(store / "commitlog")], "give its directory"),
        (["audit", str(store), "--save", str(tmp_path / "f.csv")], ".parquet"),
        (["audit", str(store), "--save", str(tmp_path / "no" / "f.jsonl")], "no directory"),
        (["audit", str(store), "--report", str(tmp_path)], "this is a directory"),
        (["audit", str(store), "--limit", "-1"], "limit"),
        (
            ["pipeline", str(store), "--into", str(tmp_path / "l"), "--report", str(tmp_path / "no" / "p.html")],
            "no directory",
        ),
    ]:
        text = refused(capsys, *words)
        assert said in text, text
        assert "Traceback" not in text
        assert len(text.strip().splitlines()) <= 4, text
    assert sorted(tmp_path.rglob("*")) == before


# -- pipeline --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lend_session")
def test_the_page_of_a_pipeline(damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "pipeline.html"
    words = ["pipeline", str(damaged), "--into", str(tmp_path / "lake"), "--derive", "stats", "--report", str(page)]
    assert run(["spark", *words, "--batch-bytes", "120000", "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(page)
    assert len(found["batches"]) > 1
    assert sum(batch["sinks"]["report"]["records"] for batch in found["batches"]) == 100
    texts = checked(page.read_text())
    said = ("Pipeline run", "orders", "99 records", f"batch {len(found['batches']) - 1}", "1 damaged place,")
    for words_said in (*said, "p50 "):
        assert words_said in texts, words_said
    for width, more in ((1200, ("--blink-settings=preferredColorScheme=0",)), (390, ())):
        seen_by_browser(page, width, *more)
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_what_a_slice_counts(store: Path) -> None:
    survey = Survey.open(store)
    found = count_slice(RangeSlice("a", survey.segments, survey.log_min, survey.log_end))
    assert found.records == 101
    orders = found.topics["orders"]
    assert (orders.messages, int(orders.delays.sum())) == (100, 100)
    assert len(found.volume) == 100
    assert sum(messages for messages, _ in found.volume.values()) == 101
    for share, expected in ((0.5, 49), (0.9, 89), (0.99, 98)):
        assert expected <= orders.delay_ms(share) <= expected * 1.1 + 1
    assert orders.delay_ms(1.0) == orders.delay_max_ms == 99
    assert TopicFigures().delay_ms(0.5) >= 0


def test_long_runs_are_counted_in_coarser_steps() -> None:
    figures, first = RunFigures(), START_MS // 1000
    for start in range(0, 20 * STEPS_KEPT, STEPS_KEPT):
        volume = {first + start + n: (1, 100) for n in range(STEPS_KEPT)}
        figures.add(SliceFigures(STEPS_KEPT, {}, volume))
    assert len(figures.volume) <= STEPS_KEPT + 1
    assert figures.step_ms == 60_000
    assert sum(messages for messages, _ in figures.volume.values()) == 20 * STEPS_KEPT
    assert min(figures.volume) * figures.step_ms <= START_MS


def test_a_pipeline_that_had_nothing_to_do() -> None:
    assert "nothing to show" in render(pipeline_report(RunFigures(), [], "a", START_MS))
    one = BatchProgress(0, 5, 100, 0.0, 0, {})
    figures = RunFigures({"orders": TopicFigures(5, 100, np.ones(368, np.int64))})
    assert "orders" in render(pipeline_report(figures, [one], "a", START_MS))
