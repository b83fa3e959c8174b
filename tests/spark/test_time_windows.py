"""Statistics and audits of a window of time."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.spark.jobs.audit_tally import TimeWindow
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.spark.test_audit_parts import START_MS
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Thirty minutes, a message a minute."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "broker-a", clock=clock, segment_bytes=1 << 16)
    with builder.open() as opened:
        for number in range(30):
            opened.append(Message("orders", b"body %02d" % number))
            clock.advance(ms=MINUTE)
    return builder.root


def damage(store: Path, *numbers: int) -> None:
    log = store / "commitlog" / f"{0:020d}"
    whole = log.read_bytes()
    for number in numbers:
        whole = whole.replace(b"body %02d" % number, b"BODY %02d" % number)
    log.write_bytes(whole)


def test_audit_and_stats(
    spark: "SparkSession", store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    since, until = START_MS + 15 * MINUTE, START_MS + 25 * MINUTE
    window = ["--since", datetime.fromtimestamp(since / 1000, UTC).isoformat(), "--until", str(until)]
    assert run(["spark", "stats", str(store), *window, "--output", "json"]) == 0
    stats = json.loads(capsys.readouterr().out)["stats"]
    assert stats["messages"] == 10
    assert (stats["start_ms"], stats["end_ms"]) == (since, until - MINUTE)
    assert sum(stats["volume_by_topic"]["orders"]) == 10
    damage(store, 10, 20)
    assert run(["spark", "audit", str(store), *window, "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["records_in_window"] == 9
    assert found["stores"][0]["records"] == 28  # All of it was read.
    assert found["stores"][0]["topics"][0]["messages"] == 9
    [fault] = [one for one in found["findings"] if one["kind"] == "log"]
    assert fault["severity"] == "fault"
    assert run(["spark", "audit", str(store), "--until", str(START_MS + 5 * MINUTE), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True


@pytest.mark.parametrize("verb", ["audit", "stats"])
def test_a_window_that_cannot_be(store: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", verb, str(store), "--since", "2026-11-02", "--until", "2026-11-01"]) == 2
    assert "is later than" in capsys.readouterr().err
    assert run(["spark", verb, str(store), "--since", "yesterday"]) == 2
    assert "is no time" in capsys.readouterr().err


def test_half_open() -> None:
    times = np.array([5, 9, 10, 19, 20])
    assert TimeWindow(10, 20).holds(times).tolist() == [2, 3]
    assert TimeWindow(end_ms=10).holds(times).tolist() == [0, 1]
    assert TimeWindow().holds(times).tolist() == [0, 1, 2, 3, 4]
