"""`embermq spark sql`: queries over stores and a lake."""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import click

from embermq.cli.output import Output, Rows, TableColumn, output_option
from embermq.cli.spark.common import cluster_options, log_options, master_option, session_for_questions, working
from embermq.cli.spark.lake_options import json_option
from embermq.cli.spark.sql_shell import SqlShell, reader
from embermq.errors import OptionInvalid
from embermq.spark import sql as job_sql
from embermq.spark.jobs import check_rows_file, csv_text, save_rows
from embermq.spark.lake import schemas_in_words
from embermq.spark.runtime import our_errors

NULL = "NULL"
_COMMENT = re.compile(r"--(?:\s|[^=]*\n)")


class QueryCommand(click.Command):
    """A command whose argument may begin with a comment of SQL, which would be taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        queries = [word for word in args if _COMMENT.match(word)]
        if queries and "--" not in args:
            args = [*(word for word in args if word not in queries), "--", *queries]
        return super().parse_args(ctx, args)


@click.command(cls=QueryCommand)
@click.argument("query", required=False)
@click.option("--store", "paths", multiple=True, metavar="DIR", help="Store directory or glob. Repeatable.")
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option(
    "--shipped", metavar="URI", help="Target of `embermq spark ship`, for messages that are no longer in the logs."
)
@cluster_options
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(0), help="Maximum number of rows to show; 0: all."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@click.option("--save", metavar="FILE", help="Write all rows to a new file: .csv, .parquet or .jsonl.")
@click.option("--include-system", is_flag=True, help="Include system topics and records that consumers cannot receive.")
@json_option
@log_options
@master_option
@output_option
def sql(
    output: Output,
    query: str | None,
    paths: tuple[str, ...],
    lake: str | None,
    shipped: str | None,
    name_server: str | None,
    access: dict[str, str],
    limit: int,
    as_csv: bool,
    save: str | None,
    include_system: bool,
    master: str | None,
    json_words: tuple[str, ...],
) -> None:
    """Query stores and a lake with SQL. Each topic is a table; `messages` has all topics; `show tables` lists them.

    Without QUERY, statements are read from the terminal, in one session with history (\\? shows help), or from standard
    input; each ends with a semicolon. `embermq spark query` is an alias of this command. Only queries are allowed.

    \b
    embermq spark sql "select tags, count(*) from orders group by 1" --store /data/broker-a
    embermq spark sql "select sum(value.amount) from orders" --store /data/broker-a --json orders='amount double'
    embermq spark sql "select * from orders where keys = 'o-1'" --store /data/broker-a --archive /data/lake
    embermq spark sql "select count(*) from orders" --store /data/broker-a --shipped s3://bucket/logs
    embermq spark sql "select tags, count(*) from orders group by 1" --name-server 127.0.0.1:9876
    embermq spark sql "select * from orders" --store /data/broker-a --save orders.parquet
    embermq spark sql --store /data/broker-a
    """
    if not paths and lake is None and shipped is None and name_server is None:
        raise OptionInvalid("store", "name at least one store or a lake to ask, or a name server")
    if (save is not None or as_csv) and (query is None or output.as_json or (save is not None and as_csv)):
        raise OptionInvalid("save", "with --save or --csv give a query, and one form of output")
    target = check_rows_file(save) if save is not None else None
    schemas = schemas_in_words(json_words)

    def answer(spark: Any, text: str) -> Any:
        return job_sql(
            spark,
            text,
            list(paths),
            lake=lake,
            include_system=include_system,
            json=schemas,
            shipped=shipped,
            name_server=name_server,
            access=access,
        )

    if query is None:
        _converse(output, master, limit, answer)
        return
    with working(output, master, "embermq sql") as (spark, on_progress):
        on_progress("asking", 0, 1)
        frame = answer(spark, query)
        if target is not None:
            count = save_rows(frame, target)
            output.say(f"{count:,} rows written into {target}")
            return
        if as_csv:
            click.echo(csv_text(frame), nl=False)
            return
        found = _collected(output, frame, limit)
    _show(output, *found, limit)


def _converse(output: Output, master: str | None, limit: int, answer: Callable[[Any, str], Any]) -> None:
    """Statements in one session, from a terminal or from standard input."""
    if output.as_json:
        raise OptionInvalid("output", "one query makes one document; give the query as an argument")
    is_terminal = sys.stdin.isatty()
    with session_for_questions(output, master, "embermq sql") as spark:

        def ask(text: str) -> None:
            with our_errors("sql"), output.working("asking"):
                found = _collected(output, answer(spark, text), shell.limit)
            _show(output, *found, shell.limit)

        shell = SqlShell(output, ask, limit)
        if not is_terminal:
            lines = iter(sys.stdin)
            shell.run(lambda _prompt: _next_line(lines), is_terminal=False)
            return
        with our_errors("sql"):
            tables = [row["tableName"] for row in answer(spark, "show tables").collect()]
        output.say(f"{len(tables):,} tables; \\d lists them, \\? is help")
        shell.run(reader(tables), is_terminal=True)


def _next_line(lines: Iterator[str]) -> str:
    try:
        return next(lines).rstrip("\n")
    except StopIteration:
        raise EOFError from None


def _collected(output: Output, frame: Any, limit: int) -> tuple[list[str], list[list[object]]]:
    """Names and rows; one row more than `limit`, to know that there are more."""
    with our_errors("sql"):
        names = list(frame.columns)
        if output.as_json:
            _check_names(names)
        return names, [list(row) for row in (frame.limit(limit + 1) if limit else frame).collect()]


def _show(output: Output, names: list[str], rows: list[list[object]], limit: int) -> None:
    shown = rows[:limit] if limit else rows
    plain = _in_json if output.as_json else _as_text
    cells = [[plain(cell) for cell in row] for row in shown]
    output.show(Rows("rows", "", [TableColumn(name, name, _text) for name in names], cells, empty="no rows"))
    if len(rows) > len(shown):
        output.say(f"only the first {limit:,} rows are shown; --limit shows more, --save all of them")


def _check_names(names: list[str]) -> None:
    """In JSON a row has its cells by name."""
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise OptionInvalid("sql", f"two columns are called {twice}; give one of them another name with AS")


def _as_bytes(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


def _as_text(value: object) -> object:
    """For people, who would take an empty cell for an empty text."""
    return NULL if value is None else _as_bytes(value)


def _in_json(value: object) -> object:
    """The value with numbers that JSON does not have as text, however deep they are."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {_name_in_json(name): _in_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(one) for one in value]
    return _as_bytes(value)


def _name_in_json(name: object) -> str | int:
    return name if isinstance(name, str | int) else _text(_in_json(name))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)
