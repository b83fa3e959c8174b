"""Answers of `embermq spark sql` as files, and questions one after the other."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.cli.output import Output
from embermq.cli.spark.sql_shell import SqlShell, history_file
from embermq.errors import OptionInvalid
from tests.spark.conftest import StoreMaker
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "select queueOffset as n, tags, body, array(1, 2) as list, '' as empty from orders order by n"


@pytest.fixture
def store(make_store: StoreMaker) -> str:
    return str(make_store([Message("orders", b'a "b"', tags="paid"), Message("orders", b"c")], name="broker-a"))


def test_files_and_statements(
    spark: "SparkSession",
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(spark, monkeypatch)
    words = ["spark", "sql", QUERY, "--store", store]
    assert run([*words, "--csv"]) == 0
    expected = '"n","tags","body","list","empty"\n0,"paid","a ""b""","[1,2]",""\n1,,"c","[1,2]",""\n'
    assert capsys.readouterr().out == expected
    for name in ("rows.csv", "rows.parquet", "rows.jsonl"):
        assert run([*words, "--save", str(tmp_path / name)]) == 0
        assert "2 rows written" in capsys.readouterr().out
    assert (tmp_path / "rows.csv").read_text() == expected
    table = pq.read_table(tmp_path / "rows.parquet")
    assert (table["body"].to_pylist(), table["list"].to_pylist()) == ([b'a "b"', b"c"], [[1, 2]] * 2)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert lines[1] == {"n": 1, "tags": None, "body": "c", "list": [1, 2], "empty": ""}
    assert run([*words, "--limit", "0"]) == 0
    assert "NULL" in capsys.readouterr().out.splitlines()[2]
    text = "select count(*) as total\nfrom orders;\n\\d orders\nselect tags from orders where tags is not null"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(["spark", "sql", "--store", store]) == 0
    out = capsys.readouterr().out
    assert out.split()[:2] == ["total", "2"]
    assert "storeTimestamp" in out
    assert out.split()[-1] == "paid"
    monkeypatch.setattr("sys.stdin", io.StringIO("select nothing;"))
    assert run(["spark", "sql", "--store", store]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [["--save", "x.txt"], ["--save", "{there}"], ["--save", "/proc/none/x.csv"], ["--csv", "--output", "json"]],
)
def test_places_that_cannot_be(
    store: str, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.csv").touch()
    given = [word.format(there=tmp_path / "there.csv") for word in words]
    assert run(["spark", "sql", "select 1", "--store", store, *given]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    left = iter(lines)

    def read(prompt: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def test_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def ask(text: str) -> None:
        asked.append(text)
        if "wrong" in text:
            raise OptionInvalid("sql", "there is no such table")
        if "long" in text:
            raise KeyboardInterrupt

    shell = SqlShell(Output(as_json=False), ask, 1000)
    lines = ["select 1", "from x;", "", "\\d", "\\d orders", "\\limit 5", "select wrong;", "select long;"]
    shell.run(typed(*lines, "select half", KeyboardInterrupt, "select 2 ;", "\\?", "last"), is_terminal=True)
    statements = ["select 1\nfrom x", "show tables", "describe `orders`", "select wrong", "select long"]
    assert asked == [*statements, "select 2 ", "last"]
    assert shell.limit == 5
    out = capsys.readouterr().out
    assert "there is no such table" in out
    assert "interrupted" in out
    assert "list tables" in out
    shell.run(typed("\\q", "select 3;"), is_terminal=True)
    assert "select 3" not in asked
    with pytest.raises(OptionInvalid):
        shell.run(typed("select wrong;"), is_terminal=False)


def test_where_history_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "embermq" / "sql_history"
