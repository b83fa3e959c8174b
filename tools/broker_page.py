"""Writes the table of settings in docs/broker.md from embermq.settings; run by `make docs`.

The rest of the page is written by hand: the table stands between two marks. A test renders the page again and compares.
"""

import dataclasses
import re
import sys
from pathlib import Path

from embermq.settings import BrokerSettings
from embermq.settings.broker_settings import PROPERTIES
from embermq.settings.values import to_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "broker.md"

_REGION = re.compile(r"(<!-- table: settings -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with the table as the code has it now."""
    if len(_REGION.findall(page)) != 1:
        raise ValueError("docs/broker.md must have the table `settings` once")
    return _REGION.sub(lambda region: f"{region[1]}\n{_table()}\n{region[3]}", page)


def _table() -> str:
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
    """Write the table."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
