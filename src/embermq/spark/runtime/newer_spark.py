"""What Spark got after 4.0, the oldest version that reads stores, and an error where it is missing.

    filters of Python sources, Arrow writers of streams, Arrow functions     Spark 4.1
    limits of streams, Trigger.AvailableNow of Python sources                Spark 4.2

Types that this Spark lacks are replaced by empty classes without instances, so that modules can be imported. Code that
needs a feature calls `require` first. Everywhere.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyspark

from embermq.errors import SparkTooOld

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

__all__ = [
    "JSON_VALUES",
    "STREAMS",
    "WRITES",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "require",
]

_HOMES = {
    "pyspark.sql.datasource": (
        "EqualNullSafe",
        "EqualTo",
        "Filter",
        "GreaterThan",
        "GreaterThanOrEqual",
        "In",
        "LessThan",
        "LessThanOrEqual",
    ),
    "pyspark.sql.streaming.datasource": (
        "ReadAllAvailable",
        "ReadLimit",
        "ReadMaxBytes",
        "ReadMaxRows",
        "ReadMinRows",
        "SupportsTriggerAvailableNow",
    ),
}

# Features, each with the first version that has it.
JSON_VALUES = "a typed column of JSON bodies", (4, 1)
WRITES = "writing with the format rocketmq", (4, 1)
STREAMS = "a stream or a pipeline", (4, 2)


def require(feature: tuple[str, tuple[int, int]]) -> None:
    """SparkTooOld if the installed Spark lacks the feature."""
    name, since = feature
    major, minor = pyspark.__version__.split(".")[:2]
    if (int(major), int(minor)) < since:
        raise SparkTooOld(name, needed="{}.{}".format(*since), installed=pyspark.__version__)


def _found(home: str, name: str) -> Any:
    try:
        return getattr(import_module(home), name)
    except (ImportError, AttributeError):
        return type(name, (), {"__doc__": "Missing in this version of Spark."})


if not TYPE_CHECKING:
    globals().update({name: _found(home, name) for home, names in _HOMES.items() for name in names})
