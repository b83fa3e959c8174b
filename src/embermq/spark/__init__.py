"""Stores as Spark tables and streams.

    import embermq.spark

    spark = embermq.spark.session()
    spark.read.format("rocketmq").load("store").groupBy("topic").count().show()
    embermq.spark.table(spark, "store", ["topic", "keys"], topic="orders").show()
    embermq.spark.scan(spark, "store").write.parquet("everything")
    embermq.spark.pipeline(spark, ["store"], into="lake").once()
    embermq.spark.sql(spark, "select tags, count(*) from orders group by 1", ["store"], lake="lake").show()

The only package that knows pyspark and pyarrow (the extra `spark`). Names are imported when they are first
used: Spark's worker processes import this package, and need none of them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embermq.spark.jobs.archive import archive, archive_guard
    from embermq.spark.jobs.audit import audit
    from embermq.spark.jobs.dead_letters import dead_letters
    from embermq.spark.jobs.rebuild import rebuild
    from embermq.spark.jobs.replay import replay
    from embermq.spark.jobs.ship import ship
    from embermq.spark.jobs.ship_follow import keep_shipping
    from embermq.spark.jobs.sql import sql
    from embermq.spark.jobs.stats import stats
    from embermq.spark.pipelines import pipeline
    from embermq.spark.planning import store_at
    from embermq.spark.reading.scans import scan
    from embermq.spark.reading.tables import stream, table
    from embermq.spark.reading.views import messages, register
    from embermq.spark.runtime.java import Java, find_java
    from embermq.spark.runtime.sessions import session

_HOMES = {
    "Java": "embermq.spark.runtime.java",
    "archive": "embermq.spark.jobs.archive",
    "archive_guard": "embermq.spark.jobs.archive",
    "audit": "embermq.spark.jobs.audit",
    "dead_letters": "embermq.spark.jobs.dead_letters",
    "find_java": "embermq.spark.runtime.java",
    "keep_shipping": "embermq.spark.jobs.ship_follow",
    "messages": "embermq.spark.reading.views",
    "pipeline": "embermq.spark.pipelines",
    "rebuild": "embermq.spark.jobs.rebuild",
    "register": "embermq.spark.reading.views",
    "replay": "embermq.spark.jobs.replay",
    "scan": "embermq.spark.reading.scans",
    "session": "embermq.spark.runtime.sessions",
    "ship": "embermq.spark.jobs.ship",
    "sql": "embermq.spark.jobs.sql",
    "stats": "embermq.spark.jobs.stats",
    "store_at": "embermq.spark.planning",
    "stream": "embermq.spark.reading.tables",
    "table": "embermq.spark.reading.tables",
}

__all__ = [
    "Java",
    "archive",
    "archive_guard",
    "audit",
    "dead_letters",
    "find_java",
    "keep_shipping",
    "messages",
    "pipeline",
    "rebuild",
    "register",
    "replay",
    "scan",
    "session",
    "ship",
    "sql",
    "stats",
    "store_at",
    "stream",
    "table",
]

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
