"""Fixtures of the interoperability tests: RocketMQ or a skip that says why, and bounded disk use."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import java_broker, reference
from tests.interop.apache5 import Apache5, apache5_started
from tests.interop.python_client import (
    APACHE,
    APACHE5,
    APACHE_SETTINGS,
    EMBERMQ,
    ClusterUnderTest,
    apache_cluster,
    embermq_cluster,
)


@pytest.fixture(scope="session", autouse=True)
def _reference_built() -> None:
    """Fetches and compiles RocketMQ once, or skips every test of this folder with the reason."""
    try:
        reference.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def apache5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache5]:
    """Apache RocketMQ 5.3.3, started by the first test that wants it."""
    try:
        java_broker.class_path(java_broker.RELEASE_5)
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))
    with apache5_started(tmp_path_factory.mktemp("apache5"), APACHE_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=[APACHE, APACHE5, EMBERMQ], ids=["apache4", "apache5", "embermq"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Each cluster in turn; that of 5.3.3 is the one all tests of the session share."""
    if request.param == APACHE5:
        shared: Apache5 = request.getfixturevalue("apache5")
        yield ClusterUnderTest(APACHE5, shared.name_server)
        return
    place: Path = tmp_path_factory.mktemp("cluster")
    with (apache_cluster if request.param == APACHE else embermq_cluster)(place) as running:
        yield running


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A place for one store; gone after the test, since a store of default sizes takes gigabytes."""
    yield tmp_path / "store"
    shutil.rmtree(tmp_path, ignore_errors=True)
