"""`--name-server` of commands that work on the files of stores: refused, with what to do instead. Loads no Spark."""

from collections.abc import Callable
from typing import TypeVar

import click

from embermq.errors import OptionInvalid

F = TypeVar("F", bound=Callable[..., object])


def no_name_server(reason: str) -> Callable[[F], F]:
    """`--name-server` of a command that works on files: refused, with what to do instead."""

    def refuse(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise OptionInvalid("--name-server", reason)

    return click.option(
        "--name-server", "-n", expose_value=False, is_eager=True, hidden=True, callback=refuse, help="Refused."
    )
