"""Options of the commands that write or read a lake."""

from collections.abc import Callable
from typing import TypeVar

import click

from embermq.spark.lake import FORMATS

F = TypeVar("F", bound=Callable[..., object])


def json_option(command: F) -> F:
    """`--json`: schemas of bodies."""
    return click.option(
        "--json",
        "json_words",
        multiple=True,
        metavar="TOPIC=SCHEMA",
        help="Decode the JSON bodies of a topic into a column `value`. SCHEMA: a file, or 'field type, …'. Repeatable.",
    )(command)


def lake_options(command: F) -> F:
    """What a new lake is to be; an old one remembers."""
    command = click.option(
        "--catalog", metavar="NAME", help="Iceberg catalog of pyiceberg's configuration, or NAME.NAMESPACE."
    )(command)
    return click.option(
        "--lake-format", type=click.Choice(FORMATS), help="Format of a new lake; the default is parquet."
    )(json_option(command))
