"""The examples of docs/testing-your-code.md run, in a project of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing-your-code.md"
_FILE = re.compile(r"^```python\n# (test_\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow(seconds=5)
def test_the_examples_run(tmp_path: Path) -> None:
    files = _FILE.findall(PAGE.read_text(encoding="utf-8"))
    assert [name for name, _text in files] == [
        "test_shop.py",
        "test_two_brokers.py",
        "test_options.py",
        "test_retries.py",
    ]
    for name, text in files:
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
