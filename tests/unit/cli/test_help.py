"""The help of every command teaches with an example that calls it."""

import click
import pytest

from embermq.cli.app import NOUNS, app


def commands() -> list[str]:
    """`store info`, `spark sql` and so on."""
    found = []
    context = click.Context(app)
    for noun in NOUNS:
        command = app.get_command(context, noun)
        assert command is not None
        if isinstance(command, click.Group):
            found += [f"{noun} {verb}" for verb in command.list_commands(context)]
    return found


@pytest.mark.parametrize("name", commands())
def test_help_has_an_example(name: str) -> None:
    noun, verb = name.split()
    context = click.Context(app)
    group = app.get_command(context, noun)
    assert isinstance(group, click.Group)
    command = group.get_command(context, verb)
    assert command is not None
    assert command.help is not None
    assert f"embermq {name}" in command.help
