"""What the Spark tests share: small stores to read. The session is in tests/conftest.py."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.testing.builder import StoreBuilder
from tests.support import golden

StoreMaker = Callable[..., Path]


@pytest.fixture
def make_store(tmp_path: Path) -> StoreMaker:
    """`make_store(messages, name="store", **settings)`: a closed store with these messages; answers its directory.

    Several messages are appended in one go. `settings` are names of StoreSettings; files are small by default.
    """

    def make(messages: Iterable[Message] = (), name: str = "store", **settings: Any) -> Path:
        builder = StoreBuilder(tmp_path / name, **settings)
        with builder.open() as store:
            store.append_many(messages)
            store.flush()
        return builder.root

    return make


@pytest.fixture
def golden_store(tmp_path: Path) -> Callable[[str], Path]:
    """`golden_store("basic")`: a fresh copy of a store that RocketMQ wrote; answers its directory."""

    def restore(name: str) -> Path:
        return golden.restore(name, tmp_path / f"golden-{name}")

    return restore
