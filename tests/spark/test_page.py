"""The examples of docs/spark.md run: every python block, in order, in one empty directory and a process of its own."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.cli.app import run
from tests.support.jvm import SHORT_LIVED_JVM

pytestmark = pytest.mark.extended

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ embermq (.*)$", re.MULTILINE)


@pytest.mark.slow(60)
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert len(blocks) > 10
    lines: list[str] = []
    for block in blocks:
        # Every example on its line of the page, so that a traceback names the right one.
        lines += [""] * (text.count("\n", 0, block.start(1)) - len(lines)) + block[1].splitlines()
    program = tmp_path / "spark.md.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    # As a user's machine may have it: settings in a file. The examples themselves have none.
    settings = f"spark.driver.memory 1g\nspark.driver.extraJavaOptions {SHORT_LIVED_JVM}\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(settings)
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(program)],
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    commands = _COMMAND.findall(text)
    assert commands
    for command in commands:
        assert run(shlex.split(command)) == 0, command
