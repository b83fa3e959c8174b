"""The state diagrams of four pages are those of the tables that tests go through."""

from pathlib import Path

import pytest

from tools.state_pages import PAGES, render


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_is_that_of_the_table(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert render(page, PAGES[path]) == page, "run tools/state_pages.py"


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError):
        render("no part", next(iter(PAGES.values())))
