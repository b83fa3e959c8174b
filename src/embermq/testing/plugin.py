"""Fixtures for pytest: `rocketmq_broker`, `embermq_store`, `embermq_builder` and `manual_clock`.

Loaded by pytest through its entry point in every project that has this package installed, so it imports
nothing of its own but pytest until a fixture is used; kernels in particular stay unloaded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from embermq.store import MessageStore
    from embermq.testing.builder import StoreBuilder
    from embermq.testing.clock import ManualClock
    from embermq.testing.local_broker import LocalBroker


@pytest.fixture
def manual_clock() -> "ManualClock":
    """A clock that stands still until moved."""
    from embermq.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def embermq_builder(tmp_path: Path) -> "StoreBuilder":
    """Opens, and opens again, an embedded store with small files in the test's own directory."""
    from embermq.testing.builder import StoreBuilder

    return StoreBuilder(tmp_path / "store")


@pytest.fixture
def embermq_store(embermq_builder: "StoreBuilder") -> "Iterator[MessageStore]":
    """An open, empty embedded store; closed when the test is over."""
    with embermq_builder.open() as store:
        yield store


@pytest.fixture
def rocketmq_broker_options() -> dict[str, Any]:
    """Arguments of `embermq.testing.broker` for the fixture `rocketmq_broker`; override it to give some."""
    return {}


@pytest.fixture
def rocketmq_broker(rocketmq_broker_options: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A running broker and name server with an empty store; gone when the test is over."""
    from embermq.testing.local_broker import broker

    with broker(**rocketmq_broker_options) as running:
        yield running
