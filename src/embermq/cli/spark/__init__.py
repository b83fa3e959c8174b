"""`embermq spark`: what Spark does with stores. One file a verb.

    0    done, and everything is sound
    1    done, and something is wrong there; or Spark, or a Java for it, is missing
    2    it could not even be tried: the command line, the directory, an option

A verb's module is loaded when the verb is called, and only there are pyspark and what stands on it imported: who has
no Spark still gets `--help`, and a line that says what to install.
"""

import importlib

import click

import embermq.spark
from embermq.cli.store import BadInput, for_people
from embermq.errors import (
    InputInvalid,
    NameServersUnreachable,
    OptionInvalid,
    SettingsError,
    StoreLocked,
    StorePathInvalid,
    TopicUnknown,
)

# Verb: what it is for. The command is the attribute of this name (with underscores) in the module of this name, or
# of the name that stands for it in SAME_AS.
VERBS = {
    "archive": "Write logs into a lake of Parquet files.",
    "audit": "Check every record; compare log, queues and index.",
    "dead-letters": "List the dead letters of a group, and send them again.",
    "lag": "Show how far streams and pipelines are behind.",
    "pipeline": "Process logs into a lake, statistics, queues and index.",
    "rebuild": "Rebuild queues and index from the log.",
    "replay": "Append messages of a time range to a topic again.",
    "ship": "Copy logs to S3, HDFS or another file system.",
    "query": "Alias of sql.",
    "sql": "Query stores and a lake with SQL.",
    "stats": "Volume, sizes, delay, tags, keys, consumer lag.",
    "explain": "Show the plan of a read.",
    "java": "Show the Java that Spark is started with.",
}

SAME_AS = {"query": "sql"}


BAD_INPUT = (
    InputInvalid,
    NameServersUnreachable,
    OptionInvalid,
    SettingsError,
    StoreLocked,
    StorePathInvalid,
    TopicUnknown,
)


class SparkMissing(BadInput):
    """The extra is not installed."""

    exit_code = 1


class SparkVerbs(click.Group):
    """A group that loads a verb when it is called, and tells bad input from failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        try:
            embermq.spark.require_extra()
        except ModuleNotFoundError as missing:
            raise SparkMissing(str(missing)) from missing
        name = SAME_AS.get(cmd_name, cmd_name).replace("-", "_")
        command = getattr(importlib.import_module(f"{__name__}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, VERBS[verb]) for verb in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BAD_INPUT as problem:
            raise BadInput(for_people(problem)) from problem


@click.group(cls=SparkVerbs)
def spark() -> None:
    """Process stores of EmberMQ or Apache RocketMQ 4.9 with Spark.

    \b
    embermq spark explain ~/store -o topic=orders       the plan of a query on that topic
    export JAVA_HOME=$(embermq spark java --home)       a Java for spark-submit
    """
