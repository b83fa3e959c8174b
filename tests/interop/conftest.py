"""Fixtures of the interoperability tests: RocketMQ or a skip that says why, and bounded disk use."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import reference


@pytest.fixture(scope="session", autouse=True)
def _reference_built() -> None:
    """Fetches and compiles RocketMQ once, or skips every test of this folder with the reason."""
    try:
        reference.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A place for one store; gone after the test, since a store of default sizes takes gigabytes."""
    yield tmp_path / "store"
    shutil.rmtree(tmp_path, ignore_errors=True)
