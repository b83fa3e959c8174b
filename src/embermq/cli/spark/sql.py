"""`embermq spark sql`: queries over stores and a lake."""

import math
import re
from collections import Counter

import click

from embermq.cli.output import Output, Rows, TableColumn, output_option
from embermq.cli.spark.common import master_option, name_server_option, working
from embermq.cli.spark.lake_options import json_option
from embermq.errors import OptionInvalid
from embermq.spark import sql as job_sql
from embermq.spark.lake import schemas_in_words
from embermq.spark.runtime import our_errors

ROWS_MAX = 10_000
_COMMENT = re.compile(r"--(?:\s|[^=]*\n)")


class QueryCommand(click.Command):
    """A command whose argument may begin with a comment of SQL, which would be taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        queries = [word for word in args if _COMMENT.match(word)]
        if queries and "--" not in args:
            args = [*(word for word in args if word not in queries), "--", *queries]
        return super().parse_args(ctx, args)


@click.command(cls=QueryCommand)
@click.argument("query")
@click.option("--store", "paths", multiple=True, metavar="DIR", help="Store directory or glob. Repeatable.")
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option(
    "--shipped", metavar="URI", help="Target of `embermq spark ship`, for messages that are no longer in the logs."
)
@name_server_option
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(1, ROWS_MAX), help="Maximum number of rows."
)
@click.option("--include-system", is_flag=True, help="Include system topics and records that consumers cannot receive.")
@json_option
@master_option
@output_option
def sql(
    output: Output,
    query: str,
    paths: tuple[str, ...],
    lake: str | None,
    shipped: str | None,
    name_server: str | None,
    limit: int,
    include_system: bool,
    master: str | None,
    json_words: tuple[str, ...],
) -> None:
    """Query stores and a lake with SQL. Each topic is a table; `messages` has all topics; `show tables` lists them.

    `embermq spark query` is an alias of this command. Only queries are allowed.

    \b
    embermq spark sql "select tags, count(*) from orders group by 1" --store /data/broker-a
    embermq spark sql "select sum(value.amount) from orders" --store /data/broker-a --json orders='amount double'
    embermq spark sql "select * from orders where keys = 'o-1'" --store /data/broker-a --archive /data/lake
    embermq spark sql "select count(*) from orders" --store /data/broker-a --shipped s3://bucket/logs
    embermq spark sql "select tags, count(*) from orders group by 1" --name-server 127.0.0.1:9876
    """
    if not paths and lake is None and shipped is None and name_server is None:
        raise OptionInvalid("store", "name at least one store or a lake to ask, or a name server")
    schemas = schemas_in_words(json_words)
    with working(output, master, "embermq sql") as (spark, on_progress):
        on_progress("asking", 0, 1)
        frame = job_sql(
            spark,
            query,
            list(paths),
            lake=lake,
            include_system=include_system,
            json=schemas,
            shipped=shipped,
            name_server=name_server,
        )
        with our_errors("sql"):
            names = frame.columns
            if output.as_json:
                _check_names(names)
            rows = [list(row) for row in frame.limit(limit + 1).collect()]
    plain = _in_json if output.as_json else _as_bytes
    cells = [[plain(cell) for cell in row] for row in rows[:limit]]
    output.show(Rows("rows", "", [TableColumn(name, name, _text) for name in names], cells, empty="no rows"))
    if len(rows) > limit:
        output.say(f"only the first {limit:,} rows are shown; --limit shows more")


def _check_names(names: list[str]) -> None:
    """In JSON a row has its cells by name."""
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise OptionInvalid("sql", f"two columns are called {twice}; give one of them another name with AS")


def _as_bytes(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


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
