"""The JSON of a store's config directory, as RocketMQ reads and writes it: not quite JSON.

Maps with integer keys have them unquoted, all on the line of the opening brace; everything else is on a line of
its own, one tab per level, with no space after the colon:

    {
        "offsetTable":{1:10,2:4
        }
    }

Reading accepts keys with and without quotes. An unquoted integer key becomes an int, so that writing what was
read gives the same text.
"""

import json
import re
from typing import Any

# A string (kept as it is), or the start of a map's entry whose key is a bare integer.
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.DOTALL)
_BARE = "\ufdd0"  # a noncharacter: marks keys that were bare while the text passes through the JSON parser


def parse_config(text: str) -> Any:
    """The value in `text`; ValueError when it cannot be read."""

    def quote(found: re.Match[str]) -> str:
        return found[0] if found[2] is None else f'{found[1]}"{_BARE}{found[2]}"'

    return json.loads(_STRING_OR_BARE_KEY.sub(quote, text), object_pairs_hook=_named, strict=False)


def _named(pairs: list[tuple[str, Any]]) -> dict[int | str, Any]:
    return {int(key[1:]) if key.startswith(_BARE) else key: value for key, value in pairs}


def with_integer_keys(table: dict[Any, Any]) -> dict[int, Any]:
    """A map whose keys must be integers, quoted or not; ValueError when one is none."""
    return {int(key): value for key, value in table.items()}


def format_config(value: Any) -> str:
    """The text of `value`, in RocketMQ's layout. Maps are written in their own order."""
    return _formatted(value, 0)


def _formatted(value: Any, depth: int) -> str:
    indent = "\n" + "\t" * depth
    match value:
        case dict() if value and all(isinstance(key, int) for key in value):
            return "{" + ",".join(f"{key}:{_formatted(v, depth + 1)}" for key, v in value.items()) + indent + "}"
        case dict() if value:
            entries = [f"{indent}\t{_quoted(key)}:{_formatted(v, depth + 1)}" for key, v in value.items()]
            return "{" + ",".join(entries) + indent + "}"
        case dict():
            return "{}"
        case list() if any(isinstance(item, dict | list) for item in value):
            return "[" + ",".join(f"{indent}\t{_formatted(item, depth + 1)}" for item in value) + indent + "]"
        case list():
            return "[" + ",".join(_formatted(item, depth) for item in value) + "]"
        case _:
            return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
