"""A Chromium for tests of HTML pages, where there is one.

Looked for in this order: the program named by CHROME, one below the directory named by PLAYWRIGHT, then chromium,
chromium-browser, google-chrome on the PATH (Debian's package is `chromium`).
"""

import html
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PLAYWRIGHT = ("chrome-linux/chrome", "chrome-linux/headless_shell")
# Chromium has no window of less than 500 pixels, so the page is laid out in a frame. The frame is of the same origin,
# so it can be measured from outside, and the page, which allows no script, stays as it is.
_FRAME = """<!doctype html><pre id="probe"></pre>
<iframe id="page" style="border: 0; width: {width}px; height: 1400px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const root = page.documentElement;
  const cut = [...page.querySelectorAll("table")].filter(
    (table) => table.parentElement.scrollWidth > table.parentElement.clientWidth);
  const answer = {{scroll: root.scrollWidth, client: root.clientWidth, text: page.body.innerText.length,
    tables: page.querySelectorAll("table").length, cut: cut.map((table) => table.innerText.slice(0, 200))}};
  document.getElementById("probe").textContent = JSON.stringify(answer);
}});
</script>"""


def find_browser() -> str | None:
    """The program, or None."""
    chosen = os.environ.get("CHROME")
    if chosen:
        return chosen
    for name in _PLAYWRIGHT:
        found = sorted(Path(os.environ.get("PLAYWRIGHT", "/nowhere")).glob(f"**/{name}"))
        if found:
            return str(found[-1])
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """A page as a browser laid it out: widths in CSS pixels, text in characters."""

    scroll_width: int
    client_width: int
    text_length: int
    tables: int
    cut_tables: tuple[str, ...]  # the beginning of each that is wider than its place


def need_browser() -> str:
    """Skip the test, and say what is missing, where there is none."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium: install Debian's `chromium`, or set CHROME or PLAYWRIGHT")
    return browser


def laid_out(page: Path, width: int, *more: str) -> Layout:
    """Load a page at this width."""
    frame = page.with_suffix(f".{width}.html")
    frame.write_text(_FRAME.format(width=width, page=html.escape(page.read_text(encoding="utf-8"))), encoding="utf-8")
    printed = _run(page.parent, 1400, *more, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri())
    answer = json.loads(html.unescape(printed.split('<pre id="probe">')[1].split("</pre>")[0]))
    return Layout(answer["scroll"], answer["client"], answer["text"], answer["tables"], tuple(answer["cut"]))


def screenshot(page: Path, width: int, *more: str) -> bytes:
    """A picture of a page, PNG."""
    picture = page.with_suffix(f".{width}.png")
    _run(page.parent, width, *more, f"--screenshot={picture}", page.as_uri())
    return picture.read_bytes()


def _run(place: Path, width: int, *words: str) -> str:
    command = [
        need_browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={place}/profile",
        f"--window-size={width},1400",
        *words,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return done.stdout
