"""What lies in examples/ runs, and does what it says."""

import ast
import runpy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from pyspark.sql import SparkSession

from tests.support.lent_session import lend

pytestmark = pytest.mark.extended

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


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """What a notebook shows of a cell: the value of its last line, if that is an expression."""
    parts = ast.parse(source).body
    last = parts.pop() if isinstance(parts[-1], ast.Expr) else None
    exec(compile(ast.Module(parts, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def check_notebook(answers: list[str]) -> None:
    assert "[20001, 500]" in answers, "the pipeline took each message once"
    assert "True" in answers, "the store is sound"
    table = next(text for text in answers if "just now" in text)
    assert "late" in table, "the lake and the log in one answer"


def read_notebook() -> Any:
    return nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)  # type: ignore[no-untyped-call]


@pytest.mark.slow(20)
def test_the_cells_of_the_notebook(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One after the other, with the session of the tests."""
    lend(spark, monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell.source for cell in read_notebook().cells if cell.cell_type == "code"]
    check_notebook([repr(run_cell(cell, names)) for cell in cells])


# The kernel is another process: what its libraries deprecate is not our business.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.long
def test_the_notebook() -> None:
    notebook = read_notebook()
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    check_notebook(
        [
            output["data"]["text/plain"]
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if output.output_type == "execute_result"
        ]
    )
