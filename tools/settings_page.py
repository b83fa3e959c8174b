"""Writes docs/settings.md from the declarations in embermq.settings; run by `make docs`.

A test renders the page again and compares, so the page cannot fall behind the code.
"""

import dataclasses
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

from embermq.settings.names import ENVIRONMENT_PREFIX
from embermq.settings.store_settings import PROPERTIES, SECTIONS, StoreSettings
from embermq.settings.values import INT_MAX, SettingFacts, to_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

INTRODUCTION = f"""\
# Settings

Written by `make docs` from `src/embermq/settings/store_settings.py`; change it there.

Each setting has the name Apache RocketMQ 4.9 gives it in `broker.conf` (first column) and a Python name
(second column):

```python
StoreSettings(segment_bytes=64 << 20, flush=FlushDisk.SYNC)  # Python names, Python values
StoreSettings.from_properties({{"flushDiskType": "SYNC_FLUSH"}})  # RocketMQ's names, text values
StoreSettings.from_file("broker.conf", environment=os.environ, flush_interval_ms=100)
```

Where several places name the same setting, the later one in this list wins: default, file, environment,
argument. A variable of the environment is called `{ENVIRONMENT_PREFIX}` and the property, in any case and
with underscores wherever you like: `{ENVIRONMENT_PREFIX}FLUSH_DISK_TYPE=SYNC_FLUSH`.

The file has the syntax of Java's `.properties` files: `key=value` or `key: value`, comments with `#` or `!`,
a backslash at the end of a line continues it, `\\uXXXX` is a character. It is read as UTF-8, or as Latin-1
when it is not valid UTF-8.

A value that cannot be used is a `SettingsError` with file, line, key and value. Unknown keys (with
the nearest known name), keys that only a broker or name server needs, and changed settings that have no
effect here are reported in one `SettingsWarning`.
"""


def render() -> str:
    """The whole page."""
    starts = {attribute: title for title, attribute in SECTIONS}
    lines = [INTRODUCTION]
    for field in dataclasses.fields(StoreSettings):
        if field.name in starts:
            header = "| Property | Python name | Default | Accepted | What it is for |\n|---|---|---|---|---|"
            lines.append(f"\n## {starts[field.name]}\n\n{header}\n")
        lines.append(_row(field, PROPERTIES[field.name]) + "\n")
    return "".join(lines)


def _row(field: dataclasses.Field[Any], about: SettingFacts) -> str:
    default = to_text(field.default)
    shown = f"`{default}`" if default else "none"
    help_text = about.help + (f" (no effect: {about.no_effect})" if about.no_effect else "")
    return f"| `{about.name}` | `{field.name}` | {shown} | {_accepted(field.type, about)} | {help_text} |"


def _accepted(kind: Any, about: SettingFacts) -> str:
    if kind is bool:
        return "`true`, `false`"
    if kind is int:
        numbers = f"{about.least} to {about.most}" if about.most < INT_MAX else f"at least {about.least}"
        return f"{numbers} {about.unit}".strip()
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{member}`" for member in kind)
    if kind == tuple[Path, ...]:
        return "paths"
    if kind == tuple[str, ...]:
        return "names"
    return "a path" if kind is Path else "text"


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
