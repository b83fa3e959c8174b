"""What every test shares: no deadlines for Hypothesis, since a busy machine is no bug; the order; one Spark session.

The ordinary run gives Hypothesis the same examples each time, so that red means "this change". New ones are
looked for by `make fuzz`.

A session is a JVM and takes seconds to start, so all tests of a process share one; `make test` has three processes. A
test that needs other settings starts a session in a process of its own.

Files with much work come first: where several processes share the files, none of them begins a long one at the end. A
test with Spark counts as a second of work; one that takes longer says so with `slow(seconds)`, for all cases of a
parametrised test together.
"""

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.jvm import shorten_every_start, start_below
from tests.support.memory_disk import directory_in, memory_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

shorten_every_start()

# Folders whose tests need no real disk.
IN_MEMORY = ("unit", "columns", "compat", "property")

# With more descriptors, unreachable objects that hold some are collected before a test with Spark: the connection by
# which Spark calls Python back waits with select(), which takes none above 1,023.
DESCRIPTORS_MAX = 500


def pytest_configure(config: pytest.Config) -> None:
    scratch = tempfile.mkdtemp(prefix="embermq-tests-")
    config.add_cleanup(lambda: shutil.rmtree(scratch, ignore_errors=True))
    start_below(Path(scratch))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with the most work first, otherwise in the order they have. Every process comes to the same order."""
    seconds: Counter[Path] = Counter()
    counted: set[object] = set()
    for item in items:
        marker = item.get_closest_marker("slow")
        if marker is not None:
            test = (item.path, getattr(item, "originalname", item.name))
            seconds[item.path] += (marker.args[0] if marker.args else 1) if test not in counted else 0
            counted.add(test)
        elif "spark" in getattr(item, "fixturenames", ()):
            seconds[item.path] += 1
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if "spark" in getattr(item, "fixturenames", ()) and len(os.listdir("/dev/fd")) > DESCRIPTORS_MAX:
        gc.collect()


@pytest.fixture(scope="session")
def memory() -> Path | None:
    return memory_disk()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, memory: Path | None) -> Iterator[Path]:
    """In memory for the tests of single parts, on the disk for all others and those that are marked `disk`."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    if memory is not None and folder in IN_MEMORY and request.node.get_closest_marker("disk") is None:
        with directory_in(memory) as made:
            yield made
    else:
        yield request.getfixturevalue("tmp_path")  # pytest's own


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
