"""One broker for all tests of the folder: each test uses topics and groups of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.client.admin import Admin
from tests.support.probed_cluster import ProbedCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbedCluster]:
    with ProbedCluster(Path(tmp_path_factory.mktemp("cluster"))) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: ProbedCluster) -> Iterator[Admin]:
    with Admin(cluster.name_server) as opened:
        yield opened
