"""Writes the tables of docs/broker.md from embermq.settings and the rows of embermq.broker; run by `make docs`.

The rest of the page is written by hand: a table stands between two marks that name it. A test renders the page again
and compares.
"""

import asyncio
import dataclasses
import re
import sys
import tempfile
from pathlib import Path

from embermq.broker import Broker
from embermq.remoting import Row
from embermq.settings import BrokerSettings, KernelUse, StoreSettings
from embermq.settings.broker_settings import PROPERTIES
from embermq.settings.values import to_text
from embermq.store import MessageStore

PAGE = Path(__file__).resolve().parent.parent / "docs" / "broker.md"

_REGION = re.compile(r"(<!-- table: ([a-z]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with both tables as the code has them now."""
    tables = {"settings": _settings(), "requests": _requests()}
    if sorted(region[2] for region in _REGION.finditer(page)) != sorted(tables):
        raise ValueError(f"docs/broker.md must have each of these tables once: {', '.join(sorted(tables))}")
    return _REGION.sub(lambda region: f"{region[1]}\n{tables[region[2]]}\n{region[4]}", page)


def _requests() -> str:
    lines = ["| Code | Request | Answered | |", "|---|---|---|---|"]
    for row in sorted(asyncio.run(_rows()), key=lambda row: row.code):
        lines.append(f"| {int(row.code)} | {row.name} | {_how(row)} | {row.note.removeprefix('refused: ')} |")
    return "\n".join(lines) + "\n"


def _how(row: Row) -> str:
    if row.note.startswith("refused"):
        return "refused"
    if row.note.startswith("of 5.x"):
        return "as RocketMQ 5 does"
    return "differently" if row.note else "as RocketMQ does"


async def _rows() -> list[Row]:
    """The rows of a broker that was made and never started."""
    with tempfile.TemporaryDirectory() as place:
        settings = StoreSettings(segment_bytes=1 << 20, listen_port=0, kernels=KernelUse.NEVER)
        with MessageStore.open(place, settings) as store:
            broker = Broker(BrokerSettings(), store)
            rows = list(broker.table)
            await broker.stop()
    return rows


def _settings() -> str:
    lines = ["| Setting | Default | What for |", "|---|---|---|"]
    for field in dataclasses.fields(BrokerSettings):
        about = PROPERTIES[field.name]
        default = to_text(field.default)
        shown = f"`{default}`" if default else "none"
        unit = f" ({about.unit})" if about.unit else ""
        help_text = (about.help + unit).replace("|", "\\|")
        lines.append(f"| `{about.name}` | {shown} | {help_text} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the tables."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
