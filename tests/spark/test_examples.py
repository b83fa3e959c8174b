"""What lies in examples/ runs, and does what it says."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def function(example: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = runpy.run_path(str(EXAMPLES / example))[name]
    return found


def test_batch(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    function("batch.py", "make_store")(tmp_path / "store")
    assert function("batch.py", "main")(spark, str(tmp_path / "store"), "orders") == {"created": 1000, "paid": 900}
    shown = capsys.readouterr().out
    assert "order-999" in shown


def test_stream(spark: SparkSession, tmp_path: Path) -> None:
    first, then, different = function("stream.py", "main")(spark, tmp_path)
    assert 500 <= first <= 3000
    assert then == different == 3000


def test_custom_sink(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = function("custom_sink.py", "main")(spark, tmp_path)
    amounts = dict.fromkeys(("eu", "us", "ap"), 0)
    for number in range(3000):
        amounts[("eu", "us", "ap")[number % 3]] += number % 50
    assert found == amounts
    assert "batch 1:" in capsys.readouterr().out, "more than one batch"


# The kernel is another process: what its libraries deprecate is not our business.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.slow(60)
def test_the_notebook() -> None:
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    answers = {
        cell.id: output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "execute_result"
    }
    assert "[20001, 500]" in answers.values(), "the pipeline took each message once"
    assert "True" in answers.values(), "the store is sound"
    table = next(text for text in answers.values() if "just now" in text)
    assert "late" in table, "the lake and the log in one answer"
