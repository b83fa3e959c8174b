"""A session with the right settings, and nobody else's overruled."""

from pyspark.sql import SparkSession


def test_a_job_runs(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
