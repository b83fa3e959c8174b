"""Forcing the plain or the compiled form of every operation, for tests that run both."""

from collections import defaultdict

import pytest

from embermq.columns import choosing


def force_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "WORTH_LOADING", defaultdict(lambda: 1 << 62))
    monkeypatch.setattr(choosing, "is_loaded", lambda module: False)


def force_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "WORTH_LOADING", defaultdict(int))
    monkeypatch.setattr(choosing, "is_loaded", lambda module: True)
