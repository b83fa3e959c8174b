"""Answers of commands: values first, then text or JSON.

A command collects `Rows` (a table) and `Facts` (names and values) and shows them through one `Output`.
Text goes to people: units in words, a table that fits the terminal, plain aligned lines when the output
is no terminal. JSON goes to programs: one document per command, full precision, and the unit is the end
of the name (`size_bytes`, `seconds`). Numbers are never shown without one or the other.

What is drawn while working (a progress line) uses `notes`, which is the standard error stream, so that
standard output holds the answer and nothing else. A command whose answer is a stream of its own (a dump) takes
`report_option`: everything here then goes to standard error, and in JSON mode that is the document alone.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, wraps
from itertools import zip_longest
from typing import Any, Concatenate, ParamSpec, TextIO

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Show = Callable[[Any], str]
P = ParamSpec("P")

# Wide enough for any line we print: without a terminal, nothing is cut or wrapped.
_UNLIMITED_COLUMNS = 100_000


def show_text(value: object) -> str:
    return "" if value is None else str(value)


def show_count(value: int) -> str:
    return f"{value:,}"


def show_bytes(value: float) -> str:
    """`1,023 B`, `1.0 KiB`, `3.4 GiB`."""
    if abs(value) < 1024:
        return f"{value:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if abs(value) < 1024:
            return f"{value:,.1f} {unit}"
    return f"{value / 1024:,.1f} TiB"


def show_seconds(value: float) -> str:
    """`12 µs`, `3.4 ms`, `5.67 s`."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def show_rate(value: float) -> str:
    return f"{value:,.0f}/s"


def show_time(ms: int | None) -> str:
    """Milliseconds since 1970 as local time with its distance from UTC, to the millisecond."""
    if ms is None:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # A record may hold any 64-bit number.
        return f"{ms} ms"


def show_clock(ms: int) -> str:
    """The time of day of `ms`, for where the day is known."""
    return show_time(ms)[11:23]


def show_yes(value: bool) -> str:
    return "yes" if value else "no"


def show_body(body: bytes) -> str:
    """The body itself when it is text of one line, else a description and its first bytes."""
    try:
        text = body.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    head = body[:24].hex(" ", 4)
    return f"({show_bytes(len(body))}) {head}{' …' if len(body) > 24 else ''}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: `key` names it in JSON and ends with its unit; `title` heads it in text."""

    key: str
    title: str
    show: Show = show_text
    right: bool = False


def number(key: str, title: str, show: Show = show_count) -> TableColumn:
    """A column of numbers."""
    return TableColumn(key, title, show, right=True)


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    key: str
    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[object]]
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A name and its value; `absent` is what people are shown for None."""

    key: str
    title: str
    value: object
    show: Show = show_text
    absent: str = ""


@dataclass(frozen=True, slots=True)
class NamedValues:
    """Names and values."""

    key: str
    title: str
    facts: Sequence[NamedValue]


class Output:
    """Where one command's answer goes. Not thread-safe."""

    def __init__(self, as_json: bool, *, is_report: bool = False) -> None:
        self.as_json = as_json
        self._is_report = is_report
        self._document: dict[str, object] = {}
        self._has_lines = False

    @cached_property
    def console(self) -> Console:
        """For text on standard output, or, of a report, on standard error."""
        return _console(sys.stderr if self._is_report else sys.stdout)

    @cached_property
    def notes(self) -> Console:
        """For what is said while working: the terminal in text mode, standard error in JSON mode."""
        return _console(sys.stderr) if self.as_json else self.console

    def show(self, *parts: Rows | NamedValues) -> None:
        for part in parts:
            if self.as_json:
                self._document[part.key] = _plain(part)
            elif isinstance(part, Rows):
                self._show_rows(part)
            else:
                self._show_facts(part)

    def record(self, key: str, value: object) -> None:
        """Something for programs that people get in other words."""
        self._document[key] = value

    def line(self, document: dict[str, Any], text: str) -> None:
        """One line of an answer that has no end. In JSON mode the answer is then these lines, an object each."""
        self._has_lines = True
        click.echo(json.dumps(document, ensure_ascii=False, default=_jsonable) if self.as_json else text)

    def drawn(self, part: Rows) -> Table:
        """A table for a terminal that is drawn again and again."""
        cells = _cells(part)
        return _table([column.title for column in part.columns], [column.right for column in part.columns], cells)

    def say(self, text: str, *, style: str = "") -> None:
        """A line for people; programs do not get it."""
        if self.as_json and self._is_report:
            return
        self.notes.print(text, style=style, highlight=False, markup=False)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Say on the terminal that something takes its time; nothing is left of it afterwards."""
        if not self.notes.is_terminal:
            yield
            return
        with self.notes.status(Text(text)):
            yield

    def finish(self) -> None:
        """Print the document of a command that was asked for JSON."""
        if self.as_json and not self._has_lines:
            document = json.dumps(self._document, ensure_ascii=False, indent=2, default=_jsonable)
            click.echo(document, err=self._is_report)

    def _show_rows(self, part: Rows) -> None:
        if not part.rows:
            self.say(f"{part.title}: {part.empty}" if part.title else part.empty)
            return
        titles = [column.title for column in part.columns]
        self._draw(part.title, titles, [column.right for column in part.columns], _cells(part))

    def _show_facts(self, part: NamedValues) -> None:
        cells = [[fact.title, _cell(fact.show, fact.value, fact.absent)] for fact in part.facts]
        self._draw(part.title, [], [False, False], cells)

    def _draw(self, title: str, heads: Sequence[str], right: Sequence[bool], cells: list[list[str]]) -> None:
        if title:
            self.say(f"\n{title}", style="bold")
        if self.console.is_terminal:
            self.console.print(_table(heads, right, cells))
        else:
            click.echo("\n".join(_plain_lines(heads, right, cells)), err=self._is_report)


def _table(heads: Sequence[str], right: Sequence[bool], cells: list[list[str]]) -> Table:
    """For a terminal: folded to its width."""
    table = Table(box=box.SIMPLE_HEAD if heads else None, show_header=bool(heads), show_edge=False, padding=(0, 1))
    for at, is_right in enumerate(right):
        style = "dim" if not heads and at == 0 else ""
        head = heads[at] if heads else ""
        table.add_column(head, justify="right" if is_right else "left", overflow="fold", no_wrap=is_right, style=style)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _plain_lines(heads: Sequence[str], right: Sequence[bool], cells: list[list[str]]) -> list[str]:
    """For a file or a pipe: aligned, and as long as it needs to be."""
    lines = [list(heads), *cells] if heads else cells
    split = [piece for line in lines for piece in _line_pieces(line)]
    widths = [max(map(cell_len, column)) for column in zip(*split, strict=True)]
    return [
        "  ".join(
            (" " * (width - cell_len(text)) + text) if is_right else text + " " * (width - cell_len(text))
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in split
    ]


def _line_pieces(line: list[str]) -> list[list[str]]:
    """A line whose cells have several lines, as several lines."""
    parts = [text.split("\n") for text in line]
    return [list(piece) for piece in zip_longest(*parts, fillvalue="")]


def _console(stream: TextIO) -> Console:
    # The width is rich's business on a terminal; elsewhere a line is as long as it needs to be.
    terminal = stream.isatty()
    return Console(file=stream, width=None if terminal else _UNLIMITED_COLUMNS, soft_wrap=not terminal)


def _cells(part: Rows) -> list[list[str]]:
    return [[_cell(column.show, value) for column, value in zip(part.columns, row, strict=True)] for row in part.rows]


def _cell(show: Show, value: object, absent: str = "") -> str:
    return absent if value is None else show(value)


def row_documents(part: Rows) -> list[dict[str, object]]:
    """The rows of a table for programs: an object each, with the columns' keys."""
    keys = [column.key for column in part.columns]
    return [dict(zip(keys, row, strict=True)) for row in part.rows]


def _plain(part: Rows | NamedValues) -> object:
    if isinstance(part, NamedValues):
        return {fact.key: fact.value for fact in part.facts}
    return row_documents(part)


def _jsonable(value: object) -> object:
    """Bytes are given as text where they are text, else as hexadecimal digits under `hex`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def output_option(command: Callable[Concatenate[Output, P], None]) -> Callable[P, None]:
    """Give a command `--output text|json`; it receives an Output first, which is finished after it."""
    return _with_output(command, is_report=False, help_text="Text for people, JSON for programs.")


def report_option(command: Callable[Concatenate[Output, P], None]) -> Callable[P, None]:
    """The same for a command that writes something else to standard output: what it says goes to standard error."""
    return _with_output(command, is_report=True, help_text="What is said on standard error: text, or JSON.")


def _with_output(
    command: Callable[Concatenate[Output, P], None], *, is_report: bool, help_text: str
) -> Callable[P, None]:
    @click.option(
        "--output",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help=help_text,
    )
    @wraps(command)
    def with_output(*args: P.args, **options: P.kwargs) -> None:
        output = Output(options.pop("output_format") == "json", is_report=is_report)
        try:
            command(output, *args, **options)
        except click.exceptions.Exit:  # An answer that is also a failure, such as "not found".
            output.finish()
            raise
        output.finish()

    return with_output
