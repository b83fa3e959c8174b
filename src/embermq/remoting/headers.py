"""Typed headers: a request's extFields as a struct, and a struct as extFields.

A header is a msgspec struct whose fields carry their wire names (`rename="camel"`). Texts become numbers and booleans;
a boolean is true for `true` in any letter case, and for `1`, which old C++ clients send; everything else is false, as
in Java. Fields that a struct does not name are ignored. Pure.
"""

from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec

from embermq.errors import HeaderInvalid

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

H = TypeVar("H", bound=msgspec.Struct)


class NoHeader(msgspec.Struct, frozen=True):
    """A request without header fields."""


def decode_header(kind: type[H], ext: dict[str, str] | None) -> H:
    """The header of a request; HeaderInvalid names the field that is missing or cannot be read."""
    fields: dict[str, Any] = ext or {}
    for name in _boolean_names(kind):
        if name in fields:
            if fields is ext:
                fields = dict(fields)
            fields[name] = is_true(fields[name])
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _explained(problem) from None


def encode_header(header: msgspec.Struct) -> dict[str, str]:
    """The extFields of a header: every value a text, absent where it is None."""
    fields: dict[str, str] = {}
    for info in msgspec.structs.fields(header):
        value = getattr(header, info.name)
        if value is not None:
            fields[info.encode_name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return fields


def is_true(text: str) -> bool:
    """A boolean as Java reads it, and as C++ 1.x writes it."""
    return text == "1" or text.lower() == "true"


@cache
def _boolean_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    hints = get_type_hints(kind)
    booleans = {name for name, hint in hints.items() if hint is bool or bool in get_args(hint)}
    return tuple(info.encode_name for info in msgspec.structs.fields(kind) if info.name in booleans)


def _explained(problem: msgspec.ValidationError) -> HeaderInvalid:
    """msgspec says `Object missing required field `topic`` or `Expected `int`, got `str` - at `$.queueId``."""
    text = str(problem)
    if "missing required field" in text:
        return HeaderInvalid(text.rpartition("field `")[2].rstrip("`"), "is missing")
    reason, _, place = text.partition(" - at `$.")
    return HeaderInvalid(place.rstrip("`") or "?", reason.replace("`", ""))
