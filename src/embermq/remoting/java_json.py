"""JSON bodies as Java's side writes them (fastjson): read with its extensions, written so that every client reads it.

Beyond JSON, a map's key may be a bare integer (`{0:"addr"}`) or an object (`{{"topic":"T",...}:{...}}`). What is
written has quoted integer keys; a map with object keys is written in Java's own form, because its readers know no
other. Pure.

The reader of the extensions is some hundred times slower than the strict one, so what it reads is bounded: clients'
requests do not use them, only answers of Java's side do.
"""

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec

DEPTH_MAX = 64
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"-?[0-9]+|[A-Za-z_$][A-Za-z0-9_$.]*")
EXTENDED_BYTES_MAX = 64 << 10


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


_SCALAR = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, parse_float=_finite)


def parse_json(body: bytes, extended_bytes_max: int = EXTENDED_BYTES_MAX) -> Any:
    """The value of a body; ValueError when it cannot be read. Bare keys become texts, object keys their JSON text.

    A body that is not strict JSON and longer than `extended_bytes_max` is not read.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        if len(body) > extended_bytes_max:
            raise ValueError(f"not JSON: {problem}") from None
    text = body.decode("utf-8")
    value, at = _Parser(text).value(0, 0)
    if _SPACE.match(text, at).end() != len(text):  # type: ignore[union-attr]
        raise ValueError(f"text after the end, at character {at}")
    return value


def key_object(key: str) -> Any:
    """An object that was a map's key, as its text or in place."""
    return parse_json(key.encode())


class _Parser:
    """A recursive reader for what the strict one refuses."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        if depth > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
        at = self._skip(at)
        match self._text[at : at + 1]:
            case "{":
                return self._map(at + 1, depth)
            case "[":
                return self._list(at + 1, depth)
            case "":
                raise ValueError("the text ends too early")
            case _:
                return self._scalar(at)

    def _map(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self._skip(at)
        while self._text[at : at + 1] != "}":
            key, at = self._key(at, depth)
            at = self._expect(at, ":")
            found[key], at = self.value(at, depth + 1)
            at = self._separator(at, "}")
        return found, at + 1

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self._skip(at)
        while self._text[at : at + 1] != "]":
            item, at = self.value(at, depth + 1)
            found.append(item)
            at = self._separator(at, "]")
        return found, at + 1

    def _key(self, at: int, depth: int) -> tuple[str, int]:
        first = self._text[at : at + 1]
        if first == "{":
            value, at = self.value(at, depth + 1)
            return json.dumps(value, separators=(",", ":"), sort_keys=True), at
        if first == '"':
            value, at = self._scalar(at)
            return str(value), at
        bare = _BARE.match(self._text, at)
        if bare is None:
            raise ValueError(f"no key at character {at}")
        return bare[0], bare.end()

    def _scalar(self, at: int) -> tuple[Any, int]:
        value, at = _SCALAR.raw_decode(self._text, at)
        if isinstance(value, str):
            value.encode()  # Half of a surrogate pair could be read, and never be written again.
        return value, at

    def _separator(self, at: int, end: str) -> int:
        at = self._skip(at)
        if self._text[at : at + 1] == ",":
            return self._skip(at + 1)
        if self._text[at : at + 1] != end:
            raise ValueError(f"',' or '{end}' expected at character {at}")
        return at

    def _expect(self, at: int, what: str) -> int:
        at = self._skip(at)
        if self._text[at : at + 1] != what:
            raise ValueError(f"'{what}' expected at character {at}")
        return at + 1

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()


def write_json(value: Any) -> bytes:
    """The body of a value: maps with text or integer keys, lists, structs. Integer keys are quoted."""
    return msgspec.json.encode(value)


def write_object_keyed(table: Iterable[tuple[Any, Any]]) -> msgspec.Raw:
    """A map whose keys are objects, in Java's own form, to be put inside a value for `write_json`."""
    entries = b",".join(msgspec.json.encode(key) + b":" + msgspec.json.encode(value) for key, value in table)
    return msgspec.Raw(b"{" + entries + b"}")


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Java leaves out what is null."""
    return {name: value for name, value in fields.items() if value is not None}
