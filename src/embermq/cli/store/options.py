"""What several verbs take: the directory, and settings where a store is opened for writing."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from embermq import StoreSettings
from embermq.cli.given import parse_pairs
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.inspect import found_shape
from embermq.settings.names import BROKER_PROPERTIES
from embermq.settings.store_settings import NAMES
from embermq.store.layout import ConfiguredFiles, places_said

F = TypeVar("F", bound=Callable[..., object])

# Whether it can be read the verbs find out, and say so in one line; click would take four.
directory_argument = click.argument("directory", type=click.Path(path_type=Path, readable=False))


def writing_options(command: F) -> F:
    """Give a command `--config FILE` and `--set KEY=VALUE`: parameters `config_file` and `changes`."""
    return config_options("--config", "--settings")(command)


def config_options(*names: str) -> Callable[[F], F]:
    """The same, with `--config` under these names."""
    return lambda command: _with_config(command, names)


def _with_config(command: F, names: tuple[str, ...]) -> F:
    command = click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Setting by its broker.conf name; takes precedence over --config. Repeatable.",
    )(command)
    return click.option(
        *names,
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read settings from this broker.conf.",
    )(command)


def files_with_log(directory: Path, settings: StoreSettings) -> RealFiles:
    """What to look at a store with: its log is where the settings say."""
    logs = {"storePathCommitLog": settings.commit_log_paths}
    logs["readOnlyCommitLogStorePaths"] = settings.commit_log_read_only_paths
    lines = [f"{name}={','.join(map(str, paths))}\n".replace("\\", "\\\\") for name, paths in logs.items() if paths]
    return ConfiguredFiles(directory.resolve(), "".join(lines).encode()) if lines else RealFiles()


def read_settings(config_file: Path | None, changes: Iterable[str]) -> StoreSettings:
    """Settings as --config and --set give them; an unknown name is a usage error."""
    settings = StoreSettings() if config_file is None else StoreSettings.from_file(config_file)
    given = parse_pairs("--set", changes)
    for name in given:
        if name not in NAMES.attributes and name not in BROKER_PROPERTIES:
            near = NAMES.nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            raise click.UsageError(f"--set {name}: there is no such setting{hint} (`embermq settings list` shows all)")
    if not given:
        return settings
    spoken = StoreSettings.from_properties(given)
    attributes = [NAMES.attributes[name] for name in given if name in NAMES.attributes]
    return settings.replace(**{attribute: getattr(spoken, attribute) for attribute in attributes})


def settings_for(directory: Path, config_file: Path | None, changes: Iterable[str]) -> StoreSettings:
    """Settings for writing to a store that may lie there already: its file sizes, and where its log is, unless
    something else is said."""
    spoken = list(changes)
    if config_file is not None:
        return read_settings(config_file, spoken)
    try:
        logs = read_settings(None, spoken).commit_log_paths
        found: dict[str, Any] = {**found_shape(RealFiles(), directory, log_paths=logs).as_settings()}
    except PermissionError as problem:
        is_readable = os.access(directory, os.R_OK | os.X_OK)
        where = problem.filename if is_readable and problem.filename else directory
        raise StorePathInvalid(where, "no permission to read it; check its owner and mode") from problem
    written, read = places_said(RealFiles(), directory)
    if written or read:
        found |= {"commit_log_paths": written, "commit_log_read_only_paths": read}
    mine = {NAMES.attributes.get(pair.partition("=")[0]) for pair in spoken}
    found = {name: size for name, size in found.items() if name not in mine}
    return read_settings(None, spoken).replace(**found)
