"""Times as people write them: ISO 8601, or milliseconds since 1970.

Seconds in the place of milliseconds are the commonest mistake with RocketMQ's times, and look like a moment of
January 1970: they are recognised by their size and refused, with what was probably meant.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# As seconds: 1973 to 5138. As milliseconds: the 2nd of January 1970 to 1973, long before the first message.
_SECONDS = range(10**8, 10**11)
_MILLISECONDS_END = 10**14  # The year 5138; what is larger counts micro- or nanoseconds.


def time_option(name: str, parameter: str, help_text: str) -> Callable[[F], F]:
    """An option that takes a time, and gives milliseconds since 1970, or None if it is not given."""
    return click.option(name, parameter, callback=_to_ms, metavar="TIME", help=help_text)


def _to_ms(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_time_ms(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970; ValueError that says what is wrong."""
    if text.isascii() and text.isdigit():
        return _checked(int(text))
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is no time; use 2024-01-31, 2024-01-31T12:00:00, 2024-01-31T12:00:00Z"
            " or milliseconds since 1970"
        ) from None


def _checked(number: int) -> int:
    if number in _SECONDS:
        meant = datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise ValueError(f"{number} looks like seconds ({meant}); times are in milliseconds: {number}000")
    if number >= _MILLISECONDS_END:
        unit, factor = ("microseconds", 1000) if number < _MILLISECONDS_END * 1000 else ("nanoseconds", 10**6)
        raise ValueError(f"{number} looks like {unit}; times are in milliseconds: {number // factor}")
    return number
