"""The driver that test_spark_sink_kills.py kills: a stream of JSON files into a store, tried again until it is through.

    python -m tests.crash.sink_driver <place> <options as JSON>

Reads <place>/source, two files a micro-batch, writes <place>/store. Ends with 0 when everything was processed.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

import embermq.spark
from tests.support.jvm import SHORT_LIVED_JVM

TRIES_MAX = 20


def main() -> int:
    place, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = embermq.spark.session(
        "sink",
        "local[2,3]",  # A task whose worker was killed is tried again, twice.
        **{
            "spark.local.dir": str(place / "spark"),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
        },
    )
    print("started", flush=True)
    for _ in range(TRIES_MAX):
        frame = spark.readStream.schema("body string, keys string").option("maxFilesPerTrigger", 2)
        writer = frame.json(str(place / "source")).writeStream.format("rocketmq").options(**options)
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(place / "store"))
        try:
            query.awaitTermination()
        except StreamingQueryException as problem:
            print("failed", str(problem).splitlines()[0][:200], flush=True)
            continue
        print("done", flush=True)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
