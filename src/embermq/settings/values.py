"""One setting's value: read from text, checked, written back as text. Pure.

What may be written is decided by the field's type and its Property. Everything refused is an Unusable
whose text says what is accepted; the caller that knows file and line makes a SettingsError of it.
"""

import dataclasses
import ipaddress
import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum, unique
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

INT_MAX = (1 << 31) - 1

T = TypeVar("T")


@unique
class FlushDisk(StrEnum):
    """When an append counts as done: once in memory, or once on the disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@unique
class BrokerRole(StrEnum):
    """What this store is in a replicated group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@unique
class KernelUse(StrEnum):
    """Whether compiled kernels are used: where they pay, everywhere, nowhere."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Unusable(ValueError):
    """A value that is not accepted; the text says what is."""


class SettingFacts(NamedTuple):
    """What is known about one setting besides its type and its default."""

    name: str
    help: str
    unit: str
    least: int
    most: int
    clamped: bool
    multiple_of: int
    check: Callable[[str], object] | None
    no_effect: str


def prop(
    name: str,
    default: T,
    help: str,
    *,
    unit: str = "",
    least: int = 0,
    most: int = INT_MAX,
    clamped: bool = False,
    multiple_of: int = 1,
    check: Callable[[str], object] | None = None,
    no_effect: str = "",
) -> T:
    """Declare a setting as the default of a dataclass field.

    Numbers outside least..most are refused, or moved to the nearest end when `clamped`; then rounded up to
    a `multiple_of`. `check` raises Unusable for text of the wrong shape. `no_effect` says why a value is
    taken and changes nothing.
    """
    about = SettingFacts(name, help, unit, least, most, clamped, multiple_of, check, no_effect)
    return dataclasses.field(default=default, metadata={"property": about})


def parse_text(kind: Any, about: SettingFacts, text: Any) -> Any:
    """The value a text stands for, not yet checked. A number or a truth value stands for itself."""
    if not isinstance(text, str):
        if isinstance(text, bool | int):
            return text
        raise Unusable("text is expected")
    stripped = text.strip()
    if kind is bool:
        if stripped.lower() not in ("true", "false"):
            raise Unusable("true or false is expected")
        return stripped.lower() == "true"
    if kind is int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", stripped):
            raise Unusable(range_text(about))
        return int(stripped)
    if kind in (tuple[Path, ...], tuple[str, ...]):
        return tuple(filter(None, (part.strip() for part in text.split(","))))
    return stripped  # A path, a text, or an enumeration, whose members `accept` knows.


def accept(kind: Any, about: SettingFacts, value: Any) -> Any:
    """The value in its final form."""
    if kind is int:
        return _accept_int(about, value)
    if kind is bool:
        if type(value) is not bool:
            raise Unusable("True or False is expected")
        return value
    if kind is Path:
        return _accept_path(value)
    if kind == tuple[Path, ...]:
        return tuple(_accept_path(path) for path in _several(value))
    if kind == tuple[str, ...]:
        return tuple(_accept_text(name) for name in _several(value))
    if kind is str:
        if about.check is not None:
            about.check(_accept_text(value))
        return _accept_text(value)
    assert issubclass(kind, StrEnum), kind
    try:
        return kind(value)
    except ValueError:
        raise Unusable(f"{' or '.join(kind)} is expected") from None


def to_text(value: Any) -> str:
    """The inverse of parse_text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value)


def range_text(about: SettingFacts) -> str:
    """What numbers are accepted, as the end of an error message."""
    unit = f" ({about.unit})" if about.unit else ""
    return f"a whole number{unit} from {about.least} to {about.most} is expected"


def _accept_int(about: SettingFacts, value: Any) -> int:
    # A bool is an int in Python, and a float is a slip even when it is whole: neither is meant.
    if type(value) is not int:
        raise Unusable(range_text(about))
    number: int = min(max(value, about.least), about.most) if about.clamped else value
    if not about.least <= number <= about.most:
        raise Unusable(range_text(about))
    return -(-number // about.multiple_of) * about.multiple_of


def _accept_path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise Unusable("a path is expected")
    return Path(value).expanduser()


def _accept_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unusable("text is expected")
    return value


def _several(value: Any) -> Iterable[Any]:
    """One path or name is as good as a sequence of one; a text is never a sequence of letters."""
    if isinstance(value, str | os.PathLike):
        return (value,)
    if not isinstance(value, tuple | list):
        raise Unusable("a tuple is expected")
    return value


@lru_cache(maxsize=16)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 1m` -> (1000, 5000, 60000), in ms; Unusable names the piece that is wrong."""
    units_ms = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    levels_ms = []
    for number, piece in enumerate(text.split(), start=1):
        match = re.fullmatch(r"([0-9]{1,9})([smhd])", piece)
        if match is None:
            raise Unusable(f"level {number} is {piece!r}; a whole number and one of s, m, h, d is expected")
        levels_ms.append(int(match[1]) * units_ms[match[2]])
    if not levels_ms:
        raise Unusable("at least one level is expected, for example `1s 5s 1m`")
    return tuple(levels_ms)


@lru_cache(maxsize=16)
def parse_delete_hours(text: str) -> frozenset[int]:
    """`04;16` -> {4, 16}; Unusable names the piece that is wrong."""
    hours = set()
    for piece in filter(None, (part.strip() for part in text.split(";"))):
        if not re.fullmatch(r"[0-9]{1,2}", piece) or int(piece) > 23:
            raise Unusable(f"{piece!r} is no hour; hours from 00 to 23 separated by `;` are expected")
        hours.add(int(piece))
    return frozenset(hours)


def check_address(text: str) -> None:
    """A record holds the bytes of an address, so a host name will not do."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise Unusable("an IPv4 or IPv6 address is expected, not a host name") from None
