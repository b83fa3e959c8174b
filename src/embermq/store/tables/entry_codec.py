"""Entries of a config table that are JSON objects, as frozen dataclasses.

The field `read_queue_nums` is `readQueueNums` in the file. A field that is missing or null has its default; fields that
a class does not know (those of newer versions) go into its `others` and are written back. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from embermq.files import Decoded

T = TypeVar("T")
OTHERS = "others"


def _names(kind: type[Any]) -> dict[str, tuple[str, Any]]:
    """By name in the file: name and type of the field."""
    return {_camel(one.name): (one.name, one.type) for one in fields(kind) if one.name != OTHERS}


def _camel(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(word.capitalize() for word in words)


def decode_entry(kind: type[T], document: Any) -> T:
    """An entry of class `kind`; ValueError when a field is missing or of another type."""
    if not isinstance(document, dict):
        raise ValueError(f"is {document!r}, not an object")
    names, known, others = _names(kind), {}, {}
    for name, value in document.items():
        if name not in names:
            others[str(name)] = value
        elif value is not None:
            field_name, expected = names[name]
            if type(value) is not expected:
                raise ValueError(f"has {name} = {value!r}")
            known[field_name] = value
    try:
        return kind(**known, **{OTHERS: others})
    except TypeError as problem:
        raise ValueError(f"lacks a field ({problem})") from None


def encode_entry(entry: Any) -> dict[str, Any]:
    """The object of an entry, its names in the order in which RocketMQ writes them."""
    document = {name: getattr(entry, field_name) for name, (field_name, _) in _names(type(entry)).items()}
    return dict(sorted((document | dict(entry.others)).items()))


def decode_objects(kind: type[T], name_field: str) -> Callable[[dict[Any, Any]], Decoded[dict[str, T]]]:
    """Decode a table from names to objects that repeat their name; entries that make no sense are left out."""

    def decode(table: dict[Any, Any]) -> Decoded[dict[str, T]]:
        found: Decoded[dict[str, T]] = Decoded({})
        for key, document in table.items():
            name = str(key)
            try:
                named = {name_field: name} | document if isinstance(document, dict) else document
                found.value[name] = decode_entry(kind, named)
            except ValueError as problem:
                found.faults.append(f"{name} {problem}")
        return found

    return decode


def encode_objects(entries: Mapping[str, Any]) -> dict[Any, Any]:
    return {name: encode_entry(entry) for name, entry in entries.items()}
