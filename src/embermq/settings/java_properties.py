"""The syntax of Java .properties files, the syntax of broker.conf. Pure: text in, entries out.

    # or ! at the start of a line       a comment
    key=value   key: value   key value  one entry; white space around the separator does not count
    ...\\                                a line that ends in an odd number of backslashes continues
    \\t \\n \\r \\f \\uXXXX \\=             escapes; before any other character a backslash just goes

What a key means is not known here; see store_settings.py. Callable from any thread.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")


class PropertyEntry(NamedTuple):
    """One key and its value, and the line (from 1) it starts on."""

    key: str
    value: str
    line: int


class PropertiesSyntaxError(ValueError):
    """The text is no .properties file: only a broken \\uXXXX can cause this."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line, self.reason = line, reason


def parse_properties(text: str) -> list[PropertyEntry]:
    """Every entry in the order of the file, a key that occurs twice included."""
    entries = []
    for line, logical in _logical_lines(text):
        key_end = _key_end(logical)
        value_start = _skip_separator(logical, key_end)
        entries.append(PropertyEntry(_unescape(logical[:key_end], line), _unescape(logical[value_start:], line), line))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines."""
    joined = ""
    started = 0  # The line on which the entry being joined began; 0 when none is.
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        stripped = natural.lstrip(_BLANK)
        if not started and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        started = started or number
        if backslashes % 2:
            joined += stripped[:-1]
            continue
        yield started, joined + stripped
        joined, started = "", 0
    if started:
        yield started, joined


def _key_end(logical: str) -> int:
    """Where the key stops: at the first separator that no backslash protects."""
    at = 0
    while at < len(logical) and logical[at] not in "=:" + _BLANK:
        at += 2 if logical[at] == "\\" else 1
    return min(at, len(logical))


def _skip_separator(logical: str, at: int) -> int:
    """Past blanks, at most one `=` or `:`, and blanks again."""
    while at < len(logical) and logical[at] in _BLANK:
        at += 1
    if at < len(logical) and logical[at] in "=:":
        at += 1
    while at < len(logical) and logical[at] in _BLANK:
        at += 1
    return at


def _unescape(raw: str, line: int) -> str:
    if "\\" not in raw:
        return raw
    units: list[str] = []
    at = 0
    while at < len(raw):
        if raw[at] != "\\" or at + 1 == len(raw):
            units.append(raw[at])
            at += 1
        elif raw[at + 1] == "u":
            digits = _HEX4.match(raw, at + 2)
            if digits is None:
                raise PropertiesSyntaxError(line, f"{raw[at : at + 6]!r}: \\u is followed by four hex digits")
            units.append(chr(int(digits[0], 16)))
            at += 6
        else:
            units.append(_ESCAPES.get(raw[at + 1], raw[at + 1]))
            at += 2
    # Java writes characters beyond U+FFFF as two escapes; joined they are one character again.
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
