"""Makes the archive of Spark's classes with which the JVMs of tests start (application class data sharing).

    python -m tests.support.class_archive

A JVM of Spark spends most of its first seconds on reading and verifying classes. One session does what most tests do:
it reads a store, filters, groups, follows it with a stream, writes another. When its JVM ends, the classes it has used
are written to a file, which every later JVM of the same Java and the same jars maps. `make test` runs this once for
an environment.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    archive = jvm.class_archive()
    began = time.monotonic()
    os.environ["SPARK_HOME"] = str(jvm.spark_home())
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / archive.name
        options = f"{jvm.PLAIN_JVM} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
        os.environ |= {"SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": jvm.PLAIN_JVM}
        _use_spark(Path(scratch))
        if not made.exists():
            print("this Java has made no archive of Spark's classes: sessions of tests start slower")
            return 0
        _put(made, archive)
    print(f"Spark's classes are there, {archive.stat().st_size >> 20} MB, {time.monotonic() - began:.1f} s")
    return 0


def _put(made: Path, archive: Path) -> None:
    """In one step: tests of another checkout with the same environment may be starting JVMs."""
    beside = archive.with_name(f".{archive.name}-{os.getpid()}")
    beside.write_bytes(made.read_bytes())
    beside.replace(archive)


def _use_spark(scratch: Path) -> None:
    import embermq.spark
    from embermq.testing.builder import StoreBuilder
    from tests.support.orders import orders

    with StoreBuilder(scratch / "store").open() as store:
        store.append_many(orders(100))
    spark = embermq.spark.session("classes", "local[2]", **{"spark.sql.shuffle.partitions": "2"})
    _read_and_write(spark, scratch)
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # The JVM ends, and writes the archive before it does.
    gateway.proc.wait()


def _read_and_write(spark: "SparkSession", scratch: Path) -> None:
    rows = spark.read.format("rocketmq").load(str(scratch / "store"))
    rows.where("topic = 'orders' and tags = 'paid'").groupBy("queueId").count().orderBy("queueId").collect()
    rows.selectExpr("body", "'copied' as topic").write.format("rocketmq").mode("append").save(str(scratch / "copy"))
    stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(str(scratch / "store"))
    query = (
        stream.writeStream.format("parquet")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start(str(scratch / "followed"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(scratch / "followed")).count() == 100


if __name__ == "__main__":
    sys.exit(main())
