"""What commands that make messages are given: NAME=VALUE pairs, and bodies from the command line or standard input."""

import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from embermq.cli.store import BadInput


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, several times."""
    return dict(_split(option, pair) for pair in pairs)


def _split(option: str, pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {pair!r}: NAME=VALUE is expected")
    return name, value


def standard_input() -> BinaryIO:
    """Standard input as bytes; BadInput if it is closed."""
    if sys.stdin is None:
        raise BadInput("standard input is closed: there is nothing to read")
    return sys.stdin.buffer


def message_bodies(body: str | None, source: BinaryIO | None, lines: bool) -> Iterator[bytes]:
    """The body that was given, each line of the source, or all of it."""
    if body is not None:
        yield body.encode()
    elif source is not None and lines:
        for line in source:
            yield line.rstrip(b"\r\n")
    elif source is not None:
        yield source.read()
