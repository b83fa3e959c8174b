"""Features that older versions of Spark lack: each is refused with an error that names both versions.

The version is set by hand here; `make spark-versions` installs the real ones.
"""

import pyspark
import pytest
from pyspark.sql.types import StringType, StructType

import embermq.spark
from embermq.errors import SparkTooOld
from embermq.spark.reading.source import RocketMQSource
from embermq.spark.runtime import newer_spark
from embermq.spark.runtime.newer_spark import JSON_VALUES, STREAMS, WRITES, require

pytestmark = pytest.mark.extended

SCHEMA = StructType().add("body", StringType())


@pytest.mark.parametrize(
    ("version", "feature", "has_it"),
    [
        ("4.0.5", JSON_VALUES, False),
        ("4.0.5", WRITES, False),
        ("4.1.0", JSON_VALUES, True),
        ("4.1.0", WRITES, True),
        ("4.1.4", STREAMS, False),
        ("4.2.0.dev1", STREAMS, True),
        ("4.10.0", STREAMS, True),
        ("5.0.0", WRITES, True),
    ],
)
def test_a_feature_needs_its_version(
    version: str, feature: tuple[str, tuple[int, int]], has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    if has_it:
        require(feature)
        return
    with pytest.raises(SparkTooOld) as caught:
        require(feature)
    assert (caught.value.installed, caught.value.needed) == (version, "{}.{}".format(*feature[1]))
    assert f"needs Spark {caught.value.needed} or later, and Spark {version} is installed" in str(caught.value)
    assert f"pip install 'pyspark>={caught.value.needed}" in str(caught.value)


def test_the_format_refuses_writes_before_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    source = RocketMQSource({"path": "store"})
    with pytest.raises(SparkTooOld, match=r"^writing with the format rocketmq needs Spark 4\.1"):
        source.writer(SCHEMA, overwrite=False)


def test_the_format_refuses_streams_before_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader answers with the error, to questions with the arguments of either version."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    source = RocketMQSource({"path": "store"})
    reader = source.streamReader(SCHEMA)
    for question in (reader.initialOffset, reader.latestOffset, lambda: reader.partitions({}, {})):
        with pytest.raises(SparkTooOld, match=r"needs Spark 4\.2 or later, and Spark 4\.1\.4 is installed"):
            question()  # type: ignore[call-arg]
    with pytest.raises(SparkTooOld):
        source.streamWriter(SCHEMA, overwrite=False)


def test_a_pipeline_is_refused_before_4_2(spark: pyspark.sql.SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(SparkTooOld, match=r"needs Spark 4\.2"):
        embermq.spark.pipeline(spark, ["store"], into="lake")


def test_a_missing_type_has_no_instances() -> None:
    assert newer_spark._found("pyspark.sql.datasource", "EqualTo") is pyspark.sql.datasource.EqualTo
    for missing in (
        newer_spark._found("pyspark.sql.datasource", "FilterOfTomorrow"),
        newer_spark._found("pyspark.sql.module_of_tomorrow", "ReadLimit"),
    ):
        assert isinstance(missing, type)
        assert not isinstance(pyspark.sql.datasource.EqualTo(("a",), 1), missing)
