"""Times as people write them: ISO 8601, or milliseconds since 1970.

Seconds in the place of milliseconds are recognised (model.time_units) and refused, with what was probably meant.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import click

from embermq.cli.output import show_time
from embermq.cli.store import BadInput
from embermq.model.time_units import unit_mistaken

F = TypeVar("F", bound=Callable[..., object])


def time_option(name: str, parameter: str, help_text: str) -> Callable[[F], F]:
    """An option that takes a time, and gives milliseconds since 1970, or None if it is not given."""
    return click.option(name, parameter, callback=_to_ms, metavar="TIME", help=help_text)


def _to_ms(_context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else option_ms(parameter.opts[0], value)


def option_ms(option: str, text: str) -> int:
    """The time given to an option; BadInput, which is one line, if it is none."""
    try:
        return parse_time_ms(text)
    except ValueError as problem:
        raise BadInput(f"{option}: {problem}") from None


def check_order(begin: str, begin_ms: int | None, end: str, end_ms: int | None) -> None:
    """BadInput if a range of times, given by these two options, ends before it begins."""
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise BadInput(f"{begin} {show_time(begin_ms)} is later than {end} {show_time(end_ms)}: nothing can be found")


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970; ValueError that says what is wrong."""
    if text.isascii() and text.isdigit():
        mistake = unit_mistaken(int(text))
        if mistake is not None:
            raise ValueError(mistake)
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is no time; use 2024-01-31, 2024-01-31T12:00:00, 2024-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
