"""Stores as Spark tables and streams.

    import embermq.spark

    spark = embermq.spark.session()
    spark.read.format("rocketmq").load("store").groupBy("topic").count().show()
    embermq.spark.table(spark, "store", ["topic", "keys"], topic="orders").show()

The only package that knows pyspark and pyarrow (the extra `spark`). Names are imported when they are first
used: Spark's worker processes import this package, and need none of them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embermq.spark.java import Java, find_java
    from embermq.spark.sessions import session
    from embermq.spark.tables import stream, table

_HOMES = {
    "Java": "embermq.spark.java",
    "find_java": "embermq.spark.java",
    "session": "embermq.spark.sessions",
    "stream": "embermq.spark.tables",
    "table": "embermq.spark.tables",
}

__all__ = ["Java", "find_java", "session", "stream", "table"]

# What the extra brings, by the name it is imported under.
_EXTRA = ("pyspark", "pyarrow")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra()
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def require_extra() -> None:
    """ModuleNotFoundError that says what to install, unless all of it is there."""
    for package in _EXTRA:
        if find_spec(package) is None:
            raise ModuleNotFoundError(
                f"{package} is not installed: the Spark side of EmberMQ needs pip install 'embermq[spark]'",
                name=package,
            )
