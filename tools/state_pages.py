"""Writes the state diagrams of four pages of docs/ from the tables that tests go through
(tests/support/documented_states.py); run by `make docs`: python -m tools.state_pages.

The rest of the pages is written by hand: each part stands between two marks. A test renders the pages again and
compares.
"""

import re
import sys
from pathlib import Path

from tests.support.documented_states import FILTERED, REPLIED, RETRIED, TIMED, Step

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    ROOT / "docs" / "delays.md": TIMED,
    ROOT / "docs" / "order-and-retries.md": RETRIED,
    ROOT / "docs" / "filters.md": FILTERED,
    ROOT / "docs" / "request-reply.md": REPLIED,
}
_REGION = re.compile(r"(<!-- made: states -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def render(page: str, steps: tuple[Step, ...]) -> str:
    """The page with its part as the table has it now."""
    if len(_REGION.findall(page)) != 1:
        raise ValueError("the page must have the part states once")
    return _REGION.sub(lambda region: f"{region[1]}\n{_diagram(steps)}\n{_table(steps)}\n{region[3]}", page)


def _diagram(steps: tuple[Step, ...]) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {steps[0].state}"]
    lines += [f"    {one.state} --> {one.then}: {one.event}" for one in steps if one.then != one.state]
    return "\n".join([*lines, "```"]) + "\n"


def _table(steps: tuple[Step, ...]) -> str:
    lines = ["| State | Event | Then |", "|---|---|---|"]
    lines += [f"| {' | '.join(part.replace('_', ' ') for part in one)} |" for one in steps]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the parts."""
    for path, steps in PAGES.items():
        path.write_text(render(path.read_text(encoding="utf-8"), steps), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
