"""What the crash tests share."""

from collections.abc import Callable

import pytest

from embermq.store.log import tail_mark
from tests.crash.kills import Figures

_kills: dict[str, Figures] = {}
_lines: dict[str, str] = {}


@pytest.fixture
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads the log's tail again, tens of megabytes of it, which here would be everything. Made short, so
    that what the proofs of earlier runs cover is believed in a test as it is in a large store."""
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 400)


@pytest.fixture
def kill_figures() -> Callable[[str, Figures], None]:
    """Takes what rounds of kills have shown, under a name; shown when all tests are over."""
    return lambda name, figures: _kills.setdefault(name, Figures()).add(figures)


@pytest.fixture
def figures() -> Callable[[str, str], None]:
    """Takes any other line to be shown when all tests are over."""
    return _lines.__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _kills or _lines:
        terminalreporter.section("what was seen")
    for name, line in _lines.items():
        terminalreporter.write_line(f"{name}: {line}")
    total = Figures()
    for name, seen in _kills.items():
        terminalreporter.write_line(f"kill -9, {name}: {seen}")
        total.add(seen)
    if _kills:
        terminalreporter.write_line(f"kill -9, all: {total}")
