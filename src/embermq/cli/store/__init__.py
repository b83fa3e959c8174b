"""`embermq store`: look into, search, fill and watch a store directory, without a broker. One file a verb.

    options.py    what several verbs take: the directory, settings for writing, places to read from
    times.py      times as people write them
    shown.py      how messages are shown

Verbs that read never write into the directory, not even a lock: safe beside a running writer, ours or a Java
broker's, and on a copy of either. They take files of whatever size they find.

    0    done, and everything is sound
    1    done, and something is wrong there, or nothing was found
    2    it could not even be tried: the command line, the directory, a file that was handed in

A verb's module is loaded when the verb is called.
"""

import errno
import importlib
from typing import Any

import click

from embermq.errors import (
    InputInvalid,
    MessageIdInvalid,
    OptionInvalid,
    SettingsError,
    StoreError,
    StoreLocked,
    StorePathInvalid,
)

EXIT_BAD_INPUT = 2

# Verb: what it is for. The command is the attribute of this name in the module of this name.
VERBS = {
    "append": "Append messages.",
    "clean": "Delete old log files now.",
    "drop": "Delete a topic.",
    "dump": "Write every message as a line of JSON.",
    "fetch": "Show messages of one queue.",
    "find": "Find messages by key.",
    "get": "Show one message by its id or offset.",
    "info": "Show the contents of a store, and what a start would do.",
    "load": "Append the messages of a dump.",
    "rebuild": "Rebuild queues and index from the log.",
    "salvage": "Copy the valid records of a damaged store into a new one.",
    "top": "Monitor a store: rates, lags, segments, disk.",
    "trace": "Follow one message through its topics.",
    "verify": "Compare log, queues, index and config, and check every checksum.",
}
# Of verbs that have to write: those that work while the store is open elsewhere.
_BESIDE = {"rebuild": ", or make them elsewhere, beside it, with --into NEW"}
# Verbs that make something whole or not at all: a permission that lacks leaves nothing behind.
_WHOLE = ("rebuild", "salvage")
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
# What concerns programs and not people.
_FOR_PROGRAMS = (", and read_only=True does not make one", ", or open with read_only=True")


class BadInput(click.ClickException):
    """One line on standard error, and the exit code that says: nothing was done."""

    exit_code = EXIT_BAD_INPUT

    def show(self, file: Any = None) -> None:
        click.echo(f"embermq: {self.message}", err=True, file=file)


class StoreVerbs(click.Group):
    """A group that loads a verb when it is called, and tells bad input from failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, VERBS[verb]) for verb in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (InputInvalid, MessageIdInvalid, OptionInvalid, SettingsError, StorePathInvalid) as problem:
            raise BadInput(for_people(problem)) from problem
        except StoreLocked as problem:
            raise BadInput(for_people(problem) + _BESIDE.get(str(ctx.invoked_subcommand), "")) from problem
        except PermissionError as problem:
            raise BadInput(f"{problem.filename}: no permission; check its owner and mode") from problem
        except StoreError as problem:
            cause = problem.__cause__
            is_refused = isinstance(cause, OSError) and cause.errno in _NOT_PERMITTED
            if is_refused and ctx.invoked_subcommand in _WHOLE:
                raise BadInput(str(problem)) from problem
            raise


def for_people(problem: Exception) -> str:
    """What an error says, without advice to programs."""
    text = str(problem)
    for part in _FOR_PROGRAMS:
        text = text.removesuffix(part)
    return text


@click.group(cls=StoreVerbs)
def store() -> None:
    """Inspect, search, fill and monitor a store directory of EmberMQ or Apache RocketMQ 4.9.

    \b
    embermq store info ~/store                              what is in there
    embermq store find ~/store --topic orders --key o-17    where is that order
    embermq store trace ~/store --key o-17                  and what became of it
    embermq store dump ~/store > all.jsonl                  everything, as text
    embermq store top ~/store                               is it keeping up
    """
