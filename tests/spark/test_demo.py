"""The demo with Spark: a pipeline on the store of a killed broker is killed and goes on; a page at the end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embermq.cli.app import run
from tests.support.lent_session import lend

pytestmark = pytest.mark.extended


def words(page: Path, count: int) -> list[str]:
    return ["demo", "--messages", str(count), "--report", str(page), "--output", "json"]


def check(shown: dict[str, Any], page: Path, directory: Path, count: int, *, is_fast: bool) -> None:
    assert shown["demo"]["good"] is True
    assert shown["spark_killed"]["records"] > 0
    twice = next(row["messages"] for row in shown["check"] if row["what"].startswith("stored twice"))
    assert shown["spark_check"]["good"] is True
    assert (shown["spark_check"]["written"], shown["spark_check"]["found"]) == (2 * count, 2 * count + twice)
    assert shown["spark_audit"]["records"] == 2 * count + twice
    assert shown["spark_audit"]["sound"] is True
    assert ("spark_archive" in shown) is not is_fast
    assert sum(row["orders"] for row in shown["sql"]) > count // 4
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
    assert run([*words(page, 1000), "--fast"]) == 0, capsys.readouterr().err
    check(json.loads(capsys.readouterr().out), page, tmp_path, 1000, is_fast=True)


@pytest.mark.long
def test_as_make_demo_runs_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "embermq.cli", *words(page, 2000)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), page, tmp_path, 2000, is_fast=False)
