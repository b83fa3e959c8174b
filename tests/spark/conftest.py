"""What the Spark tests share: one session for each test process, and small stores to read.

A session is a JVM and takes seconds to start, so all tests of a process share one; `make test` has two processes. A
test that needs other settings starts a session in a process of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.testing.builder import StoreBuilder
from tests.support import golden
from tests.support.jvm import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StoreMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session of this test process: two cores, everything it writes by itself in a directory of its own."""
    from pyspark import SparkContext

    import embermq.spark

    left_over = SparkContext._active_spark_context
    if left_over is not None:  # An example of a document had one.
        left_over.stop()
    place = tmp_path_factory.mktemp("spark")
    started = embermq.spark.session(
        "tests",
        "local[2]",
        **{
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        },
    )
    yield started
    gateway = started.sparkContext._gateway
    started.stop()
    # The JVM outlives the session, for the next one. There is none.
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


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
    """`golden_store("basic")`: a fresh copy of a store that the Java reference wrote; answers its directory."""

    def restore(name: str) -> Path:
        return golden.restore(name, tmp_path / f"golden-{name}")

    return restore
