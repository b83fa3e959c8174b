"""Durations and sizes as people write them: `60s`, `5m`, `500ms`; `128MiB`, `64k`, `1GB`. A bare number is seconds, or
bytes. As types of options: what is none of these is a line of click's own, exit code 2."""

import re
from typing import Final

import click

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Duration(click.ParamType[float]):
    """Seconds, at least `least`."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float | int):
            return float(value)
        found = _NUMBER.fullmatch(str(value).strip())
        unit = None if found is None else _SECONDS.get(found[2].lower())
        if found is None or unit is None:
            self.fail(f"{value!r} is no duration; use 500ms, 60s, 5m or 1h; a number alone is seconds", param, ctx)
        seconds = float(found[1]) * unit
        if seconds < self._least:
            self.fail(f"{value!r} is too short; at least {self._least:g} s", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """Bytes, at least `least`. k, M and G are powers of 1024, with or without iB behind them; kB, MB and GB too."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _NUMBER.fullmatch(str(value).strip())
        power = None if found is None else _POWERS.get(_letter(found[2].lower()))
        if found is None or power is None:
            self.fail(f"{value!r} is no size; use 64MiB, 1GiB or a number of bytes", param, ctx)
        octets = int(float(found[1]) * 1024**power)
        if octets < self._least:
            self.fail(f"{value!r} is too small; at least {self._least:,} bytes", param, ctx)
        return octets


def _letter(unit: str) -> str:
    return unit.removesuffix("b").removesuffix("i")
