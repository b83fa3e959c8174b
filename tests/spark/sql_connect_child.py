"""Asks a store over Spark Connect, where there is no parser to use, and prints the answers as JSON."""

import json
import sys

from pyspark.sql import SparkSession

from embermq.errors import OptionInvalid
from embermq.spark.jobs.sql import sql


def answer(spark: SparkSession, query: str, store: str) -> object:
    try:
        return [list(row) for row in sql(spark, query, [store]).collect()]
    except OptionInvalid as refused:
        return str(refused)


if __name__ == "__main__":
    session = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    print(json.dumps([answer(session, query, sys.argv[1]) for query in sys.argv[2:]]))
    session.stop()
