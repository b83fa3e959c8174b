"""The command itself: finds the noun, runs the verb, and turns what goes wrong into a line and a number.

    0    done
    1    could not be done; standard error says why in one line
    2    the command line was wrong
    130  interrupted

A mistake of the user never shows a traceback; a mistake of ours does, because it has to be reported.
"""

import importlib
import io
import os
import sys
import warnings
from typing import TextIO

import click

import embermq
from embermq.errors import EmberError, SettingsWarning

# Noun: where its command is, and what it is for. The modules are imported when they are called for, so
# that `embermq --help` does not wait for what only one of them needs.
NOUNS = {
    "broker": ("embermq.cli.broker:broker", "Run a broker, with a name server of its own unless others are named."),
    "cluster": ("embermq.cli.network.cluster:cluster", "Clusters and their brokers."),
    "demo": (
        "embermq.cli.demo:demo",
        "See a broker with its clients being killed and nothing lost, and Spark at work.",
    ),
    "group": ("embermq.cli.network.group:group", "Consumer groups of a running cluster."),
    "message": ("embermq.cli.network.message:message", "Messages of a running cluster."),
    "namesrv": ("embermq.cli.namesrv:namesrv", "Run a name server."),
    "settings": ("embermq.cli.settings:settings", "List, explain and check settings."),
    "spark": ("embermq.cli.spark:spark", "Work on stores with Spark."),
    "store": ("embermq.cli.store:store", "Look into, check, dump, load and append to a store directory."),
    "tap": ("embermq.cli.tap:tap", "Copy the log of a live master into a store of its own, and follow it."),
    "topic": ("embermq.cli.network.topic:topic", "Topics of a running cluster."),
}

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Nouns(click.Group):
    """A group that loads a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return None
        module, _, name = NOUNS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(noun, NOUNS[noun][1]) for noun in self.list_commands(ctx)])


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(embermq.__version__, prog_name="embermq")
def app() -> None:
    """EmberMQ: a message store that reads and writes the files of Apache RocketMQ 4.9."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    warnings.showwarning = _show_warning
    _complete_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal without our characters is no reason to fail.
    sys.exit(run(arguments))


def _complete_streams() -> None:
    """Leave, before anything is done, if the answer would go nowhere.

    A closed stream leaves its number free for the next file that is opened: a log file, say, into which some library
    then writes its warnings. So each number is taken.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        click.echo("embermq: standard output is closed; use >/dev/null to discard the answer", err=True)
        sys.exit(EXIT_USAGE)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; its exit code."""
    try:
        code = app.main(arguments, prog_name="embermq", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as problem:  # Usage errors among them.
        _show_mistake(problem)
        return problem.exit_code
    except EmberError as problem:
        click.echo(f"embermq: {problem}", err=True)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`); Python must not complain while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as problem:
        if problem.strerror is None:
            raise
        place = f"{problem.filename}: " if problem.filename is not None else ""
        click.echo(f"embermq: {place}{problem.strerror}", err=True)
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


def _show_mistake(problem: click.ClickException) -> None:
    """One line with the prefix that every error has; after a wrong command line its usage comes first. A group without
    a command shows its help."""
    if isinstance(problem, click.exceptions.NoArgsIsHelpError):
        problem.show()
        return
    if isinstance(problem, click.UsageError) and problem.ctx is not None:
        click.echo(problem.ctx.get_usage(), err=True)
        click.echo(f"Try '{problem.ctx.command_path} --help' for help.", err=True)
    click.echo(f"embermq: {problem.format_message()}", err=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning about settings is for the user, and says itself what it is about: no place in our source."""
    if issubclass(category, SettingsWarning):
        click.echo(f"embermq: warning: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)
