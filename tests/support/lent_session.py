"""The session of the tests, for programs that make and stop one of their own: commands, examples, the demo."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

import embermq.spark


class Lent:
    """A session that its user cannot stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def lend(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `embermq.spark.session` return this session for any settings."""
    monkeypatch.setattr(embermq.spark, "session", lambda *_, **__: Lent(spark), raising=False)
