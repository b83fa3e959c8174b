"""The demo with Spark, as `make demo` runs it: a pipeline that is killed and goes on, and a page at the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow(70)
def test_the_second_act(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "embermq.cli", "demo", "--messages", "2000", "--report", str(page)]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["demo"]["good"] is True
    assert shown["spark_killed"]["records"] > 0
    assert shown["spark_check"] == {"written": 4000, "found": 4000, "repeated": 0, "good": True}
    assert shown["spark_archive"]["records"] == 4000
    assert shown["spark_audit"] == {"records": 4000, "findings": 0, "sound": True}
    assert sum(row["orders"] for row in shown["sql"]) > 500
    assert shown["report"] == str(page)
    assert "payments" in page.read_text()
    assert not (tmp_path / "embermq-demo.html").exists()
