"""The examples of the documents run: every python block of a page, in order, in one empty directory."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "README.zh-CN.md", "docs/api.md")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "examples"}
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        # Blank lines in front, so that a traceback names the line of the page.
        exec(compile("\n" * line + block[1], str(ROOT / page), "exec"), names)


def test_both_readmes_have_the_same_example() -> None:
    """Apart from the comments, which are in the page's own language."""
    codes = []
    for page in PAGES[:2]:
        (block,) = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        codes.append([line.split("#")[0].rstrip() for line in block.splitlines()])
    assert codes[0] == codes[1]


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
