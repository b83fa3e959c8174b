"""The same work with one JVM, on a standalone cluster of real processes, and over Spark Connect.

Each runs in a process of its own, on a copy of one store, and has to give the same answers.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.orders import orders
from tests.support.spark_daemons import connect_server, spark_environment, standalone_cluster

ROOT = Path(__file__).parents[2]
SMALL = ("spark.driver.memory=512m", "spark.sql.shuffle.partitions=2")

pytestmark = pytest.mark.xdist_group("spark-daemons")


def work(master: str, store: Path, scratch: Path, *settings: str) -> dict[str, Any]:
    """The answers of the job on `master`, which sees a copy of the store of its own."""
    own = scratch / "store"
    shutil.copytree(store, own)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.same_work", master, str(own), str(scratch / "made"), *settings],
        env=spark_environment(scratch),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from embermq.testing.builder import StoreBuilder

    # Small log files, so that there are several, and records that cross none of them.
    builder = StoreBuilder(tmp_path_factory.mktemp("cluster") / "store", segment_bytes=64 << 10)
    with builder.open() as opened:
        for part in range(4):
            opened.append_many(orders(250, f"topic-{part}", body_bytes=100))
            opened.append_many(orders(100))
    return builder.root


@pytest.fixture(scope="module")
def expected(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one JVM on this machine answers."""
    return work("local[2]", store, tmp_path_factory.mktemp("local"), *SMALL)


def test_one_jvm(expected: dict[str, Any]) -> None:
    read, follow, write = expected["read"], expected["follow"], expected["write"]
    assert read["rows"].startswith("1400 rows")
    assert [topic for topic, _ in read["bytes by topic"]] == ["orders", *(f"topic-{part}" for part in range(4))]
    assert read["paid"].startswith("136 rows")
    assert {keys for keys, _ in read["one key"]} == {"o-7"}
    assert len(read["one key"]) == 8
    assert read["range"] == [[0, 4], [1, 97], [2, 100], [3, 100]]
    assert read["kafka"][0] == ["orders", 1, 400]
    assert follow["first"] == 1400
    assert follow["then"].startswith("1450 rows")
    assert write["written"]["count"] == 800
    assert write["streamed"]["count"] == 400


def test_a_standalone_cluster(store: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "daemons") as master:
        answers = work(
            master, store, tmp_path, *SMALL, "spark.executor.memory=512m", "spark.cores.max=2", "spark.executor.cores=1"
        )
    assert answers == expected
    logs = sorted((tmp_path / "daemons" / "work").glob("app-*/*/stderr"))
    assert len(logs) == 2, "each worker had an executor"
    for log in logs:
        assert "Finished task" in log.read_text(), "each executor did a part of the work"


def test_spark_connect(store: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    with connect_server(tmp_path / "daemons") as address:
        assert work(address, store, tmp_path) == expected
