"""The demo with Spark: a pipeline that is killed and goes on, and a page at the end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embermq.cli.app import run
from tests.support.lent_session import lend


def words(page: Path) -> list[str]:
    return ["demo", "--messages", "2000", "--report", str(page), "--output", "json"]


def check(shown: dict[str, Any], page: Path, directory: Path) -> None:
    assert shown["demo"]["good"] is True
    assert shown["spark_killed"]["records"] > 0
    assert shown["spark_check"] == {"written": 4000, "found": 4000, "repeated": 0, "good": True}
    assert shown["spark_archive"]["records"] == 4000
    assert shown["spark_audit"] == {"records": 4000, "findings": 0, "sound": True}
    assert sum(row["orders"] for row in shown["sql"]) > 500
    assert shown["report"] == str(page)
    assert "payments" in page.read_text()
    assert not (directory / "embermq-demo.html").exists()


@pytest.mark.slow(40)
def test_the_second_act(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the session of the tests; the pipeline that is killed has its own."""
    lend(spark, monkeypatch)
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.html"
    assert run(words(page)) == 0, capsys.readouterr().err
    check(json.loads(capsys.readouterr().out), page, tmp_path)


@pytest.mark.long
def test_as_make_demo_runs_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "embermq.cli", *words(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), page, tmp_path)
