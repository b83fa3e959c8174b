"""Writes the tables of docs/spark.md from the declarations in embermq.spark; run by `make docs`.

The rest of the page is written by hand: a table stands between two marks that name it, and only what is between
them is replaced. A test renders the page again and compares, so that it cannot fall behind the code.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from embermq.spark.options.read_options import OPTIONS, Scope
from embermq.spark.options.schema import COLUMNS, CORRUPT, HEADERS, KAFKA_COLUMNS, Column
from embermq.spark.options.write_options import WRITE_OPTIONS
from embermq.spark.runtime.sessions import DEFAULTS, LOCAL_DEFAULTS
from embermq.spark.writing.write_rows import WRITE_COLUMNS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "spark.md"

_REGION = re.compile(r"(<!-- table: ([a-z ]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with every table as the code has it now."""
    tables = _tables()
    found = [region[2] for region in _REGION.finditer(page)]
    missing = set(tables).symmetric_difference(found)
    if missing or len(found) != len(set(found)):
        raise ValueError(f"docs/spark.md must have each of these tables once: {', '.join(sorted(tables))}")
    return _REGION.sub(lambda region: f"{region[1]}\n{tables[region[2]]}\n{region[4]}", page)


def _tables() -> dict[str, str]:
    return {
        "options of every read": _options("read"),
        "options of a batch": _options("batch"),
        "options of a stream": _options("stream"),
        "columns": _columns((*COLUMNS, CORRUPT)),
        "kafka columns": _columns((*KAFKA_COLUMNS, HEADERS)),
        "options of a write": _write_options(),
        "columns of a write": _write_columns(),
        "settings of a session": _settings(),
    }


def _options(scope: Scope) -> str:
    rows = [(f"`{one.name}`", _code(one.default), one.meaning) for one in OPTIONS if one.scope == scope]
    return _table(("Option", "Default", "What it does"), rows)


def _columns(columns: Iterable[Column]) -> str:
    rows = [
        (f"`{column.name}`", f"`{column.type.simpleString()}`", "yes" if column.may_be_null else "", column.meaning)
        for column in columns
    ]
    return _table(("Column", "Type", "Can be null", "What it is"), rows)


def _write_options() -> str:
    scopes = {"write": "", "batch": " Only for a batch.", "stream": " Only for a stream."}
    rows = [(f"`{one.name}`", _code(one.default), one.meaning + scopes[one.scope]) for one in WRITE_OPTIONS]
    return _table(("Option", "Default", "What it does"), rows)


def _write_columns() -> str:
    # A type with parameters looks like a tag to what shows the page, unless it is marked as code.
    rows = [
        (f"`{column.name}`", re.sub(r"\w+<[\w,]+>", r"`\g<0>`", column.types), column.meaning)
        for column in WRITE_COLUMNS
    ]
    return _table(("Column", "Type", "What it is"), rows)


def _settings() -> str:
    rows = [(f"`{name}`", f"`{value}`") for name, value in (DEFAULTS | LOCAL_DEFAULTS).items()]
    return _table(("Setting", "Value"), rows)


def _code(default: str) -> str:
    """A value in the way it is written; what is said in words stays words."""
    in_words = default in ("", "all") or " " in default
    return default if in_words else f"`{default}`"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> int:
    """Write the tables."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
