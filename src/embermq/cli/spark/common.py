"""What the commands that run Spark share: the session, and a line that says how far the work is.

Loaded by those verbs only: what it imports needs pyspark.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import embermq.spark
from embermq.cli.output import Output
from embermq.errors import OptionInvalid
from embermq.spark.jobs import ProgressReport
from embermq.spark.planning import plain_path, stores_at
from embermq.spark.runtime import our_errors

F = TypeVar("F", bound=Callable[..., object])

# Loggers of tasks and queries that fail.
_LOG_FAILURES = [f"org.apache.spark.{name}" for name in ("executor.Executor", "scheduler.TaskSetManager", "util.Utils")]


def master_option(command: F) -> F:
    """`--master`: where Spark runs."""
    return click.option(
        "--master", metavar="URL", help="Spark master, for example spark://host:7077; the default is this machine."
    )(command)


# Options of a cluster beside its name servers, and what the format calls them.
_ACCESS = {
    "access_key": "accessKey",
    "secret_key": "secretKey",
    "tls": "tls",
    "tls_ca_file": "tlsCaFile",
    "namespace": "namespace",
}


def cluster_options_for(purpose: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`--name-server` and as whom its cluster is asked: the command gets `name_server` and `access`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--name-server", "-n", "name_server", metavar="ADDRESSES", help=purpose)
        @click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", show_envvar=True, help="Account, where ACL is on.")
        @click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", show_envvar=True, help="Its secret.")
        @click.option("--tls", is_flag=True, help="Connect to the cluster with TLS.")
        @click.option("--tls-ca-file", metavar="FILE", help="With --tls: certificates (PEM) that are trusted.")
        @click.option("--namespace", help="Namespace of the cluster's topics.")
        @wraps(command)
        def with_access(*args: object, **options: object) -> None:
            given = {name: options.pop(name) for name in _ACCESS}
            if options["name_server"] is None and options.get("from_name_server") is None:
                for name in ("tls", "tls_ca_file", "namespace"):  # An account may be in the environment.
                    if given[name]:
                        raise OptionInvalid(f"--{name.replace('_', '-')}", "has no meaning without --name-server")
            access = {
                _ACCESS[name]: str(value).lower() if value is True else str(value)
                for name, value in given.items()
                if value
            }
            command(*args, access=access, **options)

        return with_access

    return decorate


cluster_options = cluster_options_for(
    "Read the cluster of these name servers instead of stores: host:port, separated by ;."
)


def stores_argument(command: F) -> F:
    return click.argument("paths", nargs=-1, required=True, metavar="DIR...")(command)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--store-config` and `--commit-log`: where the logs of the stores in `paths` are, if not in their directories.

    The command is handed paths that say so.
    """

    @wraps(command)
    def with_logs(
        *args: object, paths: tuple[str, ...], store_configs: tuple[str, ...], commit_log: str | None, **rest: object
    ) -> None:
        command(*args, paths=stores_at(paths, store_configs, commit_log), **rest)

    configured = click.option(
        "--store-config",
        "store_configs",
        multiple=True,
        metavar="FILE",
        help="The broker.conf of a store, wherever it is: its storePathCommitLog says where the log is. For several"
        " stores once for each, in their order.",
    )(with_logs)
    return click.option(
        "--commit-log", metavar="DIRS", help="Where the log of the store is; several directories with commas between."
    )(configured)


def shown_paths(paths: tuple[str, ...]) -> str:
    """Paths for people."""
    return ", ".join(map(plain_path, paths))


@contextmanager
def working(output: Output, master: str | None, title: str) -> Iterator[tuple[Any, ProgressReport]]:
    """A session for the time of a command, and a callback for progress."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.notes,
        transient=True,
        disable=not output.notes.is_terminal,
    ) as bar:
        task = bar.add_task("starting Spark", total=None)

        def on_progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        with _session(title, master, lambda: bar.update(task, description="stopping Spark")) as spark:
            yield spark, on_progress


@contextmanager
def session_for_questions(output: Output, master: str | None, title: str) -> Iterator[Any]:
    """A session for interactive use: progress is shown only while it starts."""
    with ExitStack() as started:
        started.enter_context(output.working("starting Spark"))
        with _session(title, master, lambda: None) as spark:
            started.close()
            yield spark


@contextmanager
def _session(title: str, master: str | None, on_stop: Callable[[], None]) -> Iterator[Any]:
    spark = embermq.spark.session(title, master)
    try:
        with our_errors(), _failures_told_once(spark):
            yield spark
    finally:
        on_stop()
        spark.stop()


@contextmanager
def _failures_told_once(spark: Any) -> Iterator[None]:
    """Inside, the JVM does not log with its whole stack what comes back to us as an exception, and is shown in a line.

    Over Spark Connect the JVM, and its log, are not ours.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        yield
        return
    logging = jvm.org.apache.logging.log4j
    before = {name: logging.LogManager.getLogger(name).getLevel() for name in _LOG_FAILURES}
    try:
        for name in _LOG_FAILURES:
            logging.core.config.Configurator.setLevel(name, logging.Level.OFF)
        yield
    finally:
        for name, level in before.items():
            logging.core.config.Configurator.setLevel(name, level)
