"""The topic of a command: as the argument TOPIC or as the option --topic, alike in every verb.

    @click.command(cls=TopicCommand)
    @directory_argument
    @topic_parameter()
    def fetch(output: Output, directory: Path, topic: str) -> None: ...

`embermq store fetch DIR orders 0` and `embermq store fetch DIR 0 --topic orders` are the same. Where the option is
given, the words of the command line go to the other arguments. A command that takes any number of directories has only
the option. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

_OPTION = "--topic"
_BY_OPTION = "embermq.topic_by_option"


class TopicArgument(click.Argument):
    """The argument of `topic_parameter`."""


class TopicCommand(click.Command):
    """A command with a `topic_parameter`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_BY_OPTION] = _has_option(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        found = super().get_params(ctx)
        if not ctx.meta.get(_BY_OPTION):
            return found
        return [one for one in found if not isinstance(one, TopicArgument)]


def topic_parameter(
    name: str = "topic", *, required: bool = True, default: str | None = None, help: str | None = None
) -> Callable[[F], F]:
    """Give a command its topic under this name of a parameter; without one it is `default`, if not `required`."""

    def take(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if not ctx.meta.get(_BY_OPTION):
            return
        if not value:
            raise click.MissingParameter(ctx=ctx, param=parameter)
        ctx.params[name] = value

    def decorate(command: F) -> F:
        command = click.option(
            _OPTION,
            "topic_option",
            metavar="TOPIC",
            expose_value=False,
            callback=take,
            help=help or "The topic; the same as the argument TOPIC.",
        )(command)
        metavar = "TOPIC" if required else "[TOPIC]"
        given: dict[str, Any] = {"required": required} if required else {"required": False, "default": default}
        return click.argument(name, cls=TopicArgument, metavar=metavar, **given)(command)

    return decorate


def _has_option(args: Sequence[str]) -> bool:
    words = args[: args.index("--")] if "--" in args else args
    return any(word == _OPTION or word.startswith(f"{_OPTION}=") for word in words)
