"""ClusterVerbs: verbs for a running cluster, each of whose mistakes is one line and exit code 2."""

import difflib
from typing import Any

import click

from embermq.cli.store import BadInput
from embermq.errors import (
    ExpressionInvalid,
    GroupMissing,
    InputInvalid,
    MessageIdInvalid,
    MessageRejected,
    NameServersUnreachable,
    NameUnknown,
    OptionInvalid,
    RouteMissing,
    SubscriptionRefused,
    TopicMissing,
)

# What a person has to change before it can work.
MISTAKES = (
    ExpressionInvalid,
    GroupMissing,
    InputInvalid,
    MessageIdInvalid,
    MessageRejected,
    NameServersUnreachable,
    NameUnknown,
    OptionInvalid,
    RouteMissing,
    SubscriptionRefused,
    TopicMissing,
)


class ClusterVerbs(click.Group):
    """Verbs whose every mistake is one line: of the command line as well as of what is asked for."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.list_commands(ctx))}"
            raise BadInput(f"no such command: {ctx.command_path} {name}; {known}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as problem:
            path = problem.ctx.command_path if problem.ctx is not None else ctx.command_path
            raise BadInput(f"{problem.format_message()} See {path} --help.") from problem
        except MISTAKES as problem:
            raise BadInput(str(problem)) from problem
