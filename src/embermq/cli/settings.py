"""`embermq settings`: what can be set, what a setting means, and whether a broker.conf sets it well."""

import warnings
from pathlib import Path
from typing import Any

import click

from embermq.cli.output import NamedValue, NamedValues, Output, Rows, TableColumn, output_option, show_yes
from embermq.errors import SettingsError, SettingsWarning
from embermq.settings import StoreSettings
from embermq.settings.store_settings import NAMES, PROPERTIES, SECTIONS
from embermq.settings.values import to_text


@click.group()
def settings() -> None:
    """List, explain and check settings."""


@settings.command("list")
@click.option("--section", default="", help="Only sections whose title contains this text.")
@output_option
def list_settings(output: Output, section: str) -> None:
    """List every setting with its default.

    \b
    embermq settings list --section retention
    embermq settings list --output json | jq '.retention[].name'
    """
    columns = (
        TableColumn("name", "setting"),
        TableColumn("default", "default"),
        TableColumn("unit", "unit"),
        TableColumn("help", "what for"),
    )
    found = False
    for title, attributes in _sections():
        if section.lower() not in title.lower():
            continue
        found = True
        rows = [_row(attribute) for attribute in attributes]
        output.show(Rows(_key(title), title, columns, rows))
    if not found:
        titles = ", ".join(title for title, _ in SECTIONS)
        raise click.UsageError(f"no section is called {section!r}; there are: {titles}")


def _sections() -> list[tuple[str, list[str]]]:
    """Titles, each with the python names of its settings."""
    starts = {attribute: title for title, attribute in SECTIONS}
    sections: list[tuple[str, list[str]]] = []
    for attribute in PROPERTIES:
        if attribute in starts:
            sections.append((starts[attribute], []))
        sections[-1][1].append(attribute)
    return sections


def _key(title: str) -> str:
    return title.lower().replace("'", "").replace(" ", "_")


def _default(attribute: str) -> str:
    return to_text(getattr(StoreSettings(), attribute))


def _row(attribute: str) -> tuple[str, str, str, str]:
    about = PROPERTIES[attribute]
    note = f" (accepted without effect: {about.no_effect})" if about.no_effect else ""
    return about.name, _default(attribute), about.unit, about.help + note


@settings.command()
@click.argument("key")
@output_option
def explain(output: Output, key: str) -> None:
    """Explain one setting, by its broker.conf name, its Python name or its environment variable.

    \b
    embermq settings explain flushDiskType
    embermq settings explain fileReservedTime
    """
    attribute = _attribute(key)
    about = PROPERTIES[attribute]
    kind: Any = type(getattr(StoreSettings(), attribute))
    facts = [
        NamedValue("name", "in broker.conf", about.name),
        NamedValue("attribute", "in Python", f"StoreSettings({attribute}=...)"),
        NamedValue("variable", "in the environment", f"EMBERMQ_{about.name}"),
        NamedValue("help", "what for", about.help),
        NamedValue("default", "default", _default(attribute)),
        NamedValue("unit", "unit", about.unit or None),
    ]
    if kind is int:
        note = "; a number outside is moved to the nearest end" if about.clamped else ""
        facts.append(NamedValue("range", "range", f"{about.least:,} to {about.most:,}{note}"))
    elif hasattr(kind, "__members__"):
        facts.append(NamedValue("values", "values", ", ".join(kind)))
    facts.append(NamedValue("has_effect", "has an effect", not about.no_effect, show_yes))
    if about.no_effect:
        facts.append(NamedValue("why_not", "why not", about.no_effect))
    output.show(NamedValues("setting", "", facts))


def _attribute(key: str) -> str:
    """The python name of a setting given by any of its names."""
    if key in PROPERTIES:
        return key
    if key in NAMES.attributes:
        return NAMES.attributes[key]
    variable = NAMES.variables({key: ""}).known
    if variable:
        return next(iter(variable))
    nearest = NAMES.nearest(key)
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise SettingsError(f"there is no setting {key!r}{hint} (`embermq settings list` shows all)")


@settings.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--strict", is_flag=True, help="Fail, too, when a key is unknown or has no effect.")
@output_option
def check(output: Output, file: Path, strict: bool) -> None:
    """Check a broker.conf: every value is usable, and every key is heard.

    \b
    embermq settings check conf/broker.conf
    embermq settings check conf/broker.conf --strict     for scripts: exit code 1 if a key is not heard
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SettingsWarning)
        found = StoreSettings.from_file(file)
    changed = found.to_properties(changed_only=True)
    rows = [
        (name, value, _default(NAMES.attributes[name]), PROPERTIES[NAMES.attributes[name]].unit)
        for name, value in changed.items()
    ]
    columns = (
        TableColumn("name", "setting"),
        TableColumn("value", "value"),
        TableColumn("default", "default"),
        TableColumn("unit", "unit"),
    )
    output.show(Rows("changed", "differs from the default", columns, rows))
    unheard = [str(warning.message) for warning in caught if issubclass(warning.category, SettingsWarning)]
    output.show(Rows("warnings", "warnings", (TableColumn("text", "not heard"),), [(text,) for text in unheard]))
    if unheard and strict:
        click.get_current_context().exit(1)
