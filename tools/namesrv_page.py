"""Writes the tables of docs/namesrv.md from the settings and the rows of embermq.namesrv; run by `make docs`.

The rest of the page is written by hand: a table stands between two marks that name it. A test renders the page
again and compares, so that it cannot fall behind the code.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from embermq.namesrv import CHANGEABLE, NameServer
from embermq.remoting import Row
from embermq.settings import NamesrvSettings
from embermq.settings.namesrv_settings import NAMESRV_PROPERTIES
from embermq.settings.values import to_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "namesrv.md"

_REGION = re.compile(r"(<!-- table: ([a-z]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with both tables as the code has them now."""
    tables = {"settings": _settings(), "requests": _requests()}
    if sorted(region[2] for region in _REGION.finditer(page)) != sorted(tables):
        raise ValueError(f"docs/namesrv.md must have each of these tables once: {', '.join(sorted(tables))}")
    return _REGION.sub(lambda region: f"{region[1]}\n{tables[region[2]]}\n{region[4]}", page)


def _settings() -> str:
    rows = []
    for field, about in NAMESRV_PROPERTIES.items():
        default = {f.name: f.default for f in NamesrvSettings.__dataclass_fields__.values()}[field]
        unit = f" ({about.unit})" if about.unit else ""
        changeable = "yes" if about.name in CHANGEABLE else ""
        rows.append((f"`{about.name}`", f"`{to_text(default)}`", about.help + unit, changeable))
    return _table(("Setting", "Default", "What for", "At run time"), rows)


def _requests() -> str:
    rows = sorted(NameServer().requests, key=lambda row: row.code)
    return _table(
        ("Code", "Request", "Header", "Other than RocketMQ"),
        [(str(int(row.code)), row.name, _fields(row), row.note) for row in rows],
    )


def _fields(row: Row) -> str:
    return ", ".join(
        f"`{info.encode_name}`" if info.required else f"`{info.encode_name}`?"
        for info in msgspec.structs.fields(row.header)
    )


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> None:
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
