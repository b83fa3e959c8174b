"""Writes the state diagram and the tables of docs/transactions.md from embermq.broker.transactions; run by `make docs`.

The rest of the page is written by hand: each part stands between two marks. A test renders the page again and compares.
"""

import re
import sys
from pathlib import Path

from embermq.broker.transactions.check_rules import RULES
from embermq.broker.transactions.states import TRANSITIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "transactions.md"

_REGION = re.compile(r"(<!-- made: (diagram|states|rules) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with its parts as the code has them now."""
    if sorted(name for _begin, name, _text, _end in _REGION.findall(page)) != ["diagram", "rules", "states"]:
        raise ValueError("docs/transactions.md must have the parts diagram, states and rules once")
    parts = {"diagram": _diagram(), "states": _states(), "rules": _rules()}
    return _REGION.sub(lambda region: f"{region[1]}\n{parts[region[2]]}\n{region[4]}", page)


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for (state, event), step in TRANSITIONS.items():
        if step.state is not state:
            writes = f" / {' + '.join(step.writes)}" if step.writes else ""
            lines.append(f"    {state} --> {step.state}: {event}{writes}")
    return "\n".join([*lines, "```"]) + "\n"


def _states() -> str:
    lines = ["| State | Event | Stored | Then | Answer |", "|---|---|---|---|---|"]
    for (state, event), step in TRANSITIONS.items():
        lines.append(f"| {state} | {event} | {', '.join(step.writes) or 'nothing'} | {step.state} | {step.answer} |")
    return "\n".join(lines) + "\n"


def _rules() -> str:
    lines = ["| If | Then |", "|---|---|"]
    lines += [f"| {why} | {decision.name.lower().replace('_', ' ')} |" for why, _holds, decision in RULES]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the parts."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
