"""What the crash tests share."""

from collections.abc import Callable

import pytest

from embermq.store import tail_mark
from tests.crash.kills import Figures

_seen: dict[str, Figures] = {}


@pytest.fixture
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads the log's tail again, tens of megabytes of it, which here would be everything. Made short, so
    that what the proofs of earlier runs vouch for is believed in a test as it is in a large store."""
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 400)


@pytest.fixture
def kill_figures() -> Callable[[str, Figures], None]:
    """Takes what rounds of kills have shown, under a name; shown when all tests are over."""
    return lambda name, figures: _seen.setdefault(name, Figures()).add(figures)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _seen:
        terminalreporter.section("kill -9")
        total = Figures()
        for name, figures in _seen.items():
            terminalreporter.write_line(f"{name}: {figures}")
            total.add(figures)
        terminalreporter.write_line(f"all: {total}")
