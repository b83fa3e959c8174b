"""What the crash tests share."""

import pytest

from embermq.store import tail_mark


@pytest.fixture
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads the log's tail again, tens of megabytes of it, which here would be everything. Made short, so
    that what the proofs of earlier runs vouch for is believed in a test as it is in a large store."""
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 400)
