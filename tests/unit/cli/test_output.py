"""How values become text and JSON."""

import json

import pytest

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    show_body,
    show_bytes,
    show_seconds,
    show_time,
)

Captured = pytest.CaptureFixture[str]
ROWS = Rows(
    "files",
    "log files",
    (TableColumn("name", "name"), number("size_bytes", "size", show_bytes)),
    [("first [not markup]", 1536), ("second", 0)],
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 50, "1,024.0 TiB"),
    ],
)
def test_bytes(value: int, text: str) -> None:
    assert show_bytes(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0000123, "12 µs"), (0.0034, "3.4 ms"), (5.674, "5.67 s")])
def test_seconds(value: float, text: str) -> None:
    assert show_seconds(value) == text


def test_times_of_any_number_are_shown() -> None:
    assert show_time(1_700_000_000_123).startswith("2023-11-1")
    assert ".123" in show_time(1_700_000_000_123)
    assert show_time(2**63 - 1) == f"{2**63 - 1} ms"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"plain", "plain"),
        ("größer".encode(), "größer"),
        (b"\xff\x00", "(2 B) ff00"),
        (b"a\nb", "(3 B) 610a62"),
    ],
)
def test_bodies(body: bytes, text: str) -> None:
    assert show_body(body) == text


def test_text_without_a_terminal_is_plain_lines(capsys: Captured) -> None:
    output = Output(as_json=False)
    output.show(ROWS, NamedValues("facts", "", [NamedValue("seconds", "took", 0.5, show_seconds)]))
    output.finish()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        [],
        ["log", "files"],
        ["name", "size"],
        ["first", "[not", "markup]", "1.5", "KiB"],
        ["second", "0", "B"],
        ["took", "500.0", "ms"],
    ]


def test_json_is_one_document_with_full_precision(capsys: Captured) -> None:
    output = Output(as_json=True)
    output.show(
        ROWS,
        NamedValues("facts", "", [NamedValue("seconds", "took", 0.5, show_seconds), NamedValue("raw", "", b"\xff")]),
    )
    output.finish()
    assert json.loads(capsys.readouterr().out) == {
        "files": [
            {"name": "first [not markup]", "size_bytes": 1536},
            {"name": "second", "size_bytes": 0},
        ],
        "facts": {"seconds": 0.5, "raw": {"hex": "ff"}},
    }


def test_what_is_said_while_working_stays_out_of_json(capsys: Captured) -> None:
    output = Output(as_json=True)
    output.say("working")
    output.finish()
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {}
    assert captured.err == "working\n"


def test_an_empty_table_says_so(capsys: Captured) -> None:
    Output(as_json=False).show(Rows("none", "files", ROWS.columns, [], empty="none yet"))
    assert capsys.readouterr().out == "files: none yet\n"


def test_a_report_goes_to_standard_error(capsys: Captured) -> None:
    output = Output(as_json=False, is_report=True)
    output.show(ROWS)
    output.say("done")
    output.finish()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "second" in captured.err
    assert captured.err.endswith("done\n")


def test_a_report_in_json_is_the_document_alone(capsys: Captured) -> None:
    output = Output(as_json=True, is_report=True)
    output.show(ROWS)
    output.say("done")
    output.finish()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert list(json.loads(captured.err)) == ["files"]
