"""`embermq spark pipeline` as a user types it: damage is reported, each batch at once, signals end it cleanly."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.cli.spark import pipeline as verb
from embermq.spark.pipelines import BatchProgress, SinkFigures
from embermq.testing.builder import StoreBuilder
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

PATIENCE_SECONDS = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 16)
    with builder.open() as opened:
        opened.append_many([Message("orders", b"x" * 2000, keys=[f"k{number}"]) for number in range(400)])
    return builder.root


def test_damage_of_the_first_of_many_batches(
    spark: "SparkSession",
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(spark, monkeypatch)
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:5000] + b"\xff" * 50 + log.read_bytes()[5050:])
    words = ["spark", "pipeline", str(store), "--into", str(tmp_path / "lake"), "--batch-bytes", "65536"]
    assert run([*words, "--output", "json"]) == 1
    captured = capsys.readouterr()
    found, lines = json.loads(captured.out), [json.loads(line) for line in captured.err.splitlines() if line[:1] == "{"]
    assert len(found["batches"]) == len(lines) > 10
    assert any("are no records" in text for text in found["damages"])
    assert run([*words, "--checkpoint", "/proc/progress"]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert len(said.strip().splitlines()) == 1


def test_of_batches_without_end_the_last_are_kept_and_the_sums_of_all() -> None:
    reported = verb._RunSummary()
    for number in range(200):
        figures = SinkFigures(1, 1, [f"place {number}"] if number < 3 else [], undecoded=1)
        reported.add(BatchProgress(number, 1, 1, 1.0, 0, {}, {"lake": figures}), 50)
    assert [one.batch for one in reported.done] == list(range(150, 200))
    assert (reported.undecoded, reported.damage_count) == (200, 3)
    assert reported.damages == ["place 0", "place 1", "place 2"]


@pytest.mark.parametrize("how", ["ctrl-c", pytest.param("sigterm", marks=pytest.mark.long)])
@pytest.mark.slow(20)
def test_following_until_told_to_stop(store: Path, tmp_path: Path, how: str) -> None:
    """Ctrl-C reaches all processes of a terminal, Spark's too; SIGTERM only the one it was sent to."""
    page, errors = tmp_path / "page.html", tmp_path / "errors"
    words = ["spark", "pipeline", str(store), "--into", str(tmp_path / "lake"), "--batch-bytes", "65536", "--follow"]
    with errors.open("w") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "embermq.cli", *words, "--report", str(page), "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while _batches(errors) < 2:  # In the middle of the third, most likely.
                assert child.poll() is None, errors.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            if how == "ctrl-c":
                os.killpg(child.pid, signal.SIGINT)
            else:
                child.terminate()
            out, _ = child.communicate(timeout=PATIENCE_SECONDS)
        finally:
            child.kill()
    said = errors.read_text()
    assert child.returncode == 0, said
    assert len(json.loads(out)["batches"]) == _batches(errors)
    assert page.exists()
    assert len([line for line in said.splitlines() if not line.startswith("{")]) <= 3, said


def _batches(errors: Path) -> int:
    return sum(line.startswith('{"batch"') for line in errors.read_text().splitlines())
