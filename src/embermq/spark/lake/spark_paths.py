"""A lake's files as Spark names them: the file system must be one that Spark has, and a path is no pattern. Driver.

We write through pyarrow, Spark reads through Hadoop's file systems. Of these a plain Spark has the local one and HDFS;
`s3a` comes with the jars of hadoop-aws, and has settings and credentials of its own.
"""

import re
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from embermq.errors import OptionInvalid
from embermq.spark.lake.files import LakeFiles
from embermq.spark.shipped.places import shown

_PATTERN = re.compile(r"([\[\]{}*?\\])")
_ALSO = {"s3": "s3a"}


def has_file_system(spark: SparkSession, address: str) -> bool:
    """Can Spark read and write there?"""
    context = spark.sparkContext
    assert context._jvm is not None
    try:
        context._jvm.org.apache.hadoop.fs.Path(address).getFileSystem(context._jsc.hadoopConfiguration())
    except Py4JJavaError:
        return False
    return True


def spark_root(spark: SparkSession, files: LakeFiles) -> str:
    """The lake's place for Spark; OptionInvalid if it has no such file system."""
    if files.is_local:
        return files.path
    bare = files.root.partition("?")[0].rstrip("/")
    scheme, _, rest = bare.partition("://")
    for one in (scheme, _ALSO.get(scheme, scheme)):
        if has_file_system(spark, f"{one}://{rest}"):
            return f"{one}://{rest}"
    raise OptionInvalid(
        "lake",
        f"this Spark has no file system for {scheme}://, so it cannot read a lake there; add its jars"
        " (hadoop-aws for s3a), or copy the lake to a directory",
        value=shown(files.root),
    )


def literal(paths: Sequence[str]) -> list[str]:
    """Paths in which `[1]`, `{a,b}` and `*` mean themselves."""
    return [_PATTERN.sub(r"\\\1", path) for path in paths]
