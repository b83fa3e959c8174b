"""A Spark session with the settings that reading and writing stores wants.

    spark = session()                                        # this machine, all cores
    spark = session(master="local[4]", driver_memory="8g")   # `driver_memory` is spark.driver.memory
    spark = session("orders", "spark://host:7077")           # a cluster
    spark = session("orders", "sc://host:15002")             # Spark Connect: no Java needed here

What is set otherwise wins, in this order: the arguments, spark-submit and spark-defaults.conf, DEFAULTS below. A
session that exists is answered as it is, with the arguments that can be changed at run time applied.

Driver side. The format itself works in any session, also without this module.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from embermq.settings.java_properties import parse_properties
from embermq.spark.runtime.java import find_java

Value = str | int | float | bool

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"

QUIET = Path(__file__).with_name("quiet.properties")

# Spark asks whether a value is null before it reads it, and never reads behind the end of a batch. Arrow would look
# again, at every access: without, rows of 200 bytes took 7 % and 17 % less of the JVM's time in two runs. Spark's own
# vectors, those of Parquet, do not look either.
_DRIVER_OPTIONS = "spark.driver.defaultJavaOptions"
_ARROW_FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

DEFAULTS: dict[str, str] = {
    # Filters reach the store; Spark's own default is to keep them away from Python sources.
    PUSH_DOWN: "true",
    # What is shown and compared is the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Without reuse a task pays for a new Python process and its kernels: two to four times slower.
    "spark.python.worker.reuse": "true",
    # Readable by every other reader of Parquet; the older INT96 of Spark's default is not.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # State that outgrows the heap, for streams that aggregate.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Put before the user's own extraJavaOptions.
    _DRIVER_OPTIONS: _ARROW_FLAGS,
    "spark.executor.defaultJavaOptions": _ARROW_FLAGS,
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# On this machine alone: nothing listens where others can reach it.
LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def session(app_name: str = "embermq", master: str | None = None, **conf: Value) -> SparkSession:
    """The session of this process, made if there is none. JavaMissing if Spark cannot be started.

    `conf` takes Spark's names (`**{"spark.executor.memory": "2g"}`) or the same without `spark.` and with
    underscores for dots (`executor_memory="2g"`, `sql_session_timeZone="Europe/Berlin"`).
    """
    wanted = {conf_name(name): conf_value(value) for name, value in conf.items()}
    if SparkContext._active_spark_context is not None:
        return _adjusted(SparkSession.builder.getOrCreate(), wanted)
    remote = _remote_url(master)
    if remote is not None:
        builder = SparkSession.builder.remote(remote).appName(app_name)
        for name, value in wanted.items():
            builder = builder.config(name, value)
        return _adjusted(builder.getOrCreate(), wanted)
    # Workers run `python3` of their PATH unless configured, which need not be this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _settings(app_name, master, wanted)
    with _environment(_for_the_jvm(settings["spark.master"])):
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
    # Every error of a query would be printed as well as raised, with the whole stack of the JVM in one line of JSON.
    for kind in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").setLevel(logging.CRITICAL)
    return made


def conf_name(name: str) -> str:
    """`driver_memory` is spark.driver.memory; a name with a dot is Spark's own."""
    if "." in name:
        return name
    dotted = name.replace("_", ".")
    return dotted if dotted.startswith("spark.") else f"spark.{dotted}"


def conf_value(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _adjusted(existing: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """A session that others made, with what can be changed now."""
    for name, value in ({PUSH_DOWN: "true"} | dict(wanted)).items():
        if existing.conf.isModifiable(name):
            existing.conf.set(name, value)
    return existing


def _remote_url(master: str | None) -> str | None:
    if master is None:
        return os.environ.get("SPARK_REMOTE")
    return master if master.startswith("sc://") else None


def _for_the_jvm(master: str) -> dict[str, str]:
    """What a JVM that is now to be started must find in its environment; nothing if there is one already."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    wanted = {"JAVA_HOME": str(find_java().home)}
    if is_local(master):
        # Otherwise Spark looks for an address that others can reach, and warns when the name has none.
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return wanted


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Inside, what this process starts finds these. Afterwards they are as they were."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _settings(app_name: str, master: str | None, wanted: Mapping[str, str]) -> dict[str, str]:
    """Everything to hand to Spark: what was asked for, and our defaults for the rest."""
    decided = _decided_elsewhere()
    settings = {"spark.app.name": app_name, **wanted}
    if master is not None:
        settings["spark.master"] = master
    master = settings.get("spark.master") or decided.get("spark.master")
    if master is None:
        master = "local[*]"
    ours = DEFAULTS | _logging()
    if is_local(master):
        ours.update(LOCAL_DEFAULTS)
        ours["spark.sql.shuffle.partitions"] = str(2 * local_cores(master))
    return {name: value for name, value in ours.items() if name not in decided} | {"spark.master": master} | settings


def _decided_elsewhere() -> dict[str, str]:
    """What spark-submit or spark-defaults.conf say."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # Started by spark-submit, whose JVM knows both.
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    try:
        text = (_conf_directory() / "spark-defaults.conf").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {entry.key: entry.value for entry in parse_properties(text)}


def _logging() -> dict[str, str]:
    if (_conf_directory() / "log4j2.properties").exists():
        return {}
    return {_DRIVER_OPTIONS: f"{_ARROW_FLAGS} -Dlog4j2.configurationFile={QUIET.as_uri()}"}


def _conf_directory() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")


def is_local(master: str) -> bool:
    """This machine, in one JVM; `local-cluster` is not."""
    return master == "local" or master.startswith("local[")


def local_cores(master: str) -> int:
    """How many tasks run at once under this local master: local, local[4], local[*], local[4,2]."""
    count = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    if count == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(count) if count.isdecimal() and int(count) > 0 else 1
