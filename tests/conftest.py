"""What every test shares: no deadlines for Hypothesis, since a busy machine is no bug; and one Spark session.

The ordinary run gives Hypothesis the same examples each time, so that red means "this change". New ones are
looked for by `make fuzz`.

A session is a JVM and takes seconds to start, so all tests of a process share one; `make test` has three processes. A
test that needs other settings starts a session in a process of its own.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.jvm import shorten_every_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

shorten_every_jvm()


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
