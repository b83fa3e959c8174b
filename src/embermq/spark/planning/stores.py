"""From `path` and `paths` to stores, each with the name of its broker. Looks, never writes.

A path is a directory (also as file:/...), or a glob (also with {a,b}). A directory must be a store: its log is in it,
or where a broker.conf says (storePathCommitLog): one in the directory, or one that the path names (store_paths.py). Of
what a glob finds, stores are taken and other things left alone, since a data directory holds more than stores. Symbolic
links are followed. A URI (s3://bucket/logs) or a directory is also where `ship` put one store, or several, a folder
each; their names are in their heads.

The broker's name, in this order: brokerName of a broker.conf in the directory or in its config/; the topic that
RocketMQ's broker registers under its own name in config/topics.json; the folder's name, or its parent's where the
folder has the default name `store`. Two stores of one name get a number behind it: `broker-a`, `broker-a-2`.

Driver side, while planning.
"""

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.format.config_json import parse_config
from embermq.inspect import Survey
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.spark.planning.store_paths import LogOptions, files_at, parted
from embermq.spark.shipped.manifests import HEAD, load_head
from embermq.spark.shipped.places import Place, is_address, shown
from embermq.spark.shipped.surveys import ShippedSurvey
from embermq.store.layout import log_places, places_said
from embermq.store.tables import PERM_INHERIT

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_LOG_ELSEWHERE = "if its log lies elsewhere, name its broker.conf with storeConfig (--store-config)"
_NAMED_AFTER_NOTHING = {"store", "rocketmq", ""}


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store of a read: a directory, or (`shipped`) where `ship` put it; then `path` is only for people."""

    path: Path
    broker_name: str
    shipped: Place | None = None
    said: LogOptions = field(default_factory=LogOptions)  # where its log is
    files: RealFiles = field(default_factory=RealFiles, compare=False)  # what to look at it with

    @property
    def source(self) -> str:
        """As a `path` of a read; of a shipped store it may hold credentials."""
        return self.said.added_to(self.path) if self.shipped is None else self.shipped.address

    @property
    def shown(self) -> str:
        """For people."""
        return str(self.path) if self.shipped is None else self.shipped.shown

    def survey(self) -> Survey:
        """A look at it."""
        if self.shipped is not None:
            return ShippedSurvey.open_at(self.shipped)
        return Survey.open(self.path, files=self.files)


def find_stores(paths: Iterable[str], *, shipped: bool = False) -> list[StorePlace]:
    """The stores behind `paths`, in order, each once. StorePathInvalid or OptionInvalid when there is none.

    `shipped`: whether the caller can work with shipped stores; if not, they are refused.
    """
    found: dict[str, StorePlace] = {}
    for text in paths:
        path, said = parted(text)
        parts = expand_braces(path)
        some = _configured(parts, said) if said else [one for part in parts for one in _places(part, shipped)]
        for place in some:
            found.setdefault(place.source, place)
    places: list[StorePlace] = []
    taken: set[str] = set()
    for place in found.values():
        name = plain = place.broker_name
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name)
        places.append(replace(place, broker_name=name))
    return places


def open_survey(source: str) -> Survey:
    """A look at the store directory that a `StorePlace.source` names."""
    path, files = files_at(source)
    return Survey.open(path, files=files)


def _places(text: str, may_be_shipped: bool) -> list[StorePlace]:
    """What one path stands for."""
    if is_address(text):
        found = _shipped_at(Place(text))
        if not found:
            raise StorePathInvalid(
                shown(text), f"no shipped store is here: there is no {HEAD}; put one here with `embermq spark ship`"
            )
    else:
        found = _shipped_in(Path(_local(text)).expanduser().absolute()) or [
            place for directory in _directories(text) for place in _place_of(directory)
        ]
    if not may_be_shipped and any(place.shipped is not None for place in found):
        raise OptionInvalid("path", "this works with store directories, not with shipped stores", value=shown(text))
    return found


def _configured(texts: list[str], said: LogOptions) -> list[StorePlace]:
    """The store whose log is where `said` tells."""
    if is_address(texts[0]):
        raise OptionInvalid("storeConfig", "means nothing for a shipped store: its log is there", value=shown(texts[0]))
    directories = [one for text in texts for one in _directories(text, said)]
    if len(directories) > 1:
        raise OptionInvalid("storeConfig", f"belongs to one store, and the path names {len(directories)}")
    files = said.files(directories[0])
    name = find_broker_name(directories[0], files)
    return [StorePlace(directories[0], name, said=said.absolute(), files=files)]


def _place_of(directory: Path) -> list[StorePlace]:
    if (directory / HEAD).is_file():
        return _shipped_at(Place(str(directory)))
    return [StorePlace(directory, find_broker_name(directory))]


def _shipped_in(path: Path) -> list[StorePlace]:
    """Shipped stores in the folders of a directory that is no store itself."""
    try:
        heads = sorted(path.glob(f"*/{HEAD}")) if path.is_dir() and not _is_store(path) else []
    except PermissionError:
        return []
    return [place for head in heads for place in _shipped_at(Place(str(head.parent)))]


def _shipped_at(place: Place) -> list[StorePlace]:
    """The shipped store at a place, or those in its folders."""
    head = load_head(place)
    if head is not None:
        return [StorePlace(Path(place.shown), head.broker_name, place)]
    children = [(child, load_head(child)) for child in map(place.child, place.folders())]
    return [StorePlace(Path(child.shown), head.broker_name, child) for child, head in children if head is not None]


def expand_braces(text: str) -> list[str]:
    """`/data/{a,b}/store` as the two paths it stands for, as in Hadoop's globs; no such braces: the text itself."""
    found = _BRACES.search(text)
    if found is None or Path(text).exists():
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    return [one for choice in found[1].split(",") for one in expand_braces(before + choice + after)]


def find_broker_name(directory: Path, files: Files | None = None) -> str:
    """The name of the broker whose store this is."""
    disk = files or RealFiles()
    for file in (directory / "broker.conf", directory / "config" / "broker.conf"):
        if name := _name_in_broker_conf(file, disk):
            return name
    if name := _name_in_topics(directory / "config" / "topics.json", disk):
        return name
    if directory.name.lower() in _NAMED_AFTER_NOTHING and directory.parent.name:
        return directory.parent.name
    return directory.name or "broker"


def _directories(text: str, said: LogOptions | None = None) -> list[Path]:
    path = Path(_local(text)).expanduser().absolute()
    try:
        if path.exists():
            return [_checked(path, said or LogOptions())]
        if not glob.has_magic(str(path)):
            raise StorePathInvalid(path, "there is no such directory" + _nearest_parent(path))
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        stores = [match for match in matches if _is_store(match, said)]
    except PermissionError as refused:
        raise StorePathInvalid(Path(refused.filename or path), "no permission to read it") from None
    if not stores:
        seen = f"; what it matches is no store: {', '.join(m.name for m in matches[:3])}" if matches else ""
        raise StorePathInvalid(path, f"no store matches{seen or ', nor anything else'}")
    return [store.resolve() for store in stores]


def _checked(path: Path, said: LogOptions) -> Path:
    """A path that is written out must be a store; say what it is instead."""
    if not path.is_dir():
        raise StorePathInvalid(path, "this is a file; a store is a directory")
    if _is_store(path, said):
        return path.resolve()
    if path.name == "commitlog" and _is_store(path.parent):
        raise StorePathInvalid(path, f"this is the log inside a store; give its directory, {path.parent}")
    inner = sorted(child.parent.name for child in path.glob("*/commitlog") if child.is_dir())
    if inner:
        more = f"; use {path / '*'} for all" if len(inner) > 1 else ""
        raise StorePathInvalid(path, f"not a store, but {inner[0]} in it is one{more}")
    (elsewhere, _read) = places_said(said.files(path), path)
    if elsewhere:
        places, conf = ", ".join(map(str, elsewhere)), said.config or "its broker.conf"
        raise StorePathInvalid(path, f"{conf} puts the log at {places}, and there is no such directory")
    names = sorted(child.name for child in path.iterdir())
    shown = f"it holds {', '.join(names[:3])}" if names else "it is empty"
    raise StorePathInvalid(path, f"not a store: there is no commitlog/ in it ({shown}); {_LOG_ELSEWHERE}")


def _is_store(path: Path, said: LogOptions | None = None) -> bool:
    return has_log(path, said.files(path) if said else RealFiles()) or (path / HEAD).is_file()


def has_log(path: Path, files: Files) -> bool:
    """Is there a log: in the directory, or where its broker.conf says?"""
    return any(place.is_dir() for place in log_places(files, path))


def _local(text: str) -> str:
    """The path behind a file: address; other file systems cannot be mapped into memory."""
    scheme, colon, _ = text.partition(":")
    if not colon or not scheme.isalnum() or len(scheme) == 1:
        return text
    if scheme.lower() != "file":
        raise OptionInvalid("path", "an address has two slashes behind its colon: s3://bucket/logs", value=shown(text))
    return unquote(urlsplit(text).path)


def _nearest_parent(path: Path) -> str:
    parent = next((one for one in path.parents if one.exists()), None)
    return f"; the path exists up to {parent}" if parent is not None and parent != path.parent else ""


def _name_in_broker_conf(file: Path, files: Files) -> str | None:
    text = _text_of(file, files)
    if text is None:
        return None
    try:
        entries = parse_properties(text)
    except PropertiesSyntaxError:
        return None
    names = [entry.value.strip() for entry in entries if entry.key == "brokerName" and entry.value.strip()]
    return names[-1] if names else None


def _name_in_topics(file: Path, files: Files) -> str | None:
    """A broker has a topic of its own name: one queue, and the permission to inherit, which topics of users lack."""
    text = _text_of(file, files)
    if text is None:
        return None
    try:
        table = parse_config(text)["topicConfigTable"]
        named = [name for name, topic in table.items() if _is_brokers_own(topic)]
    except (ValueError, KeyError, TypeError, AttributeError):  # Not what RocketMQ writes: no help from here.
        return None
    return str(named[0]) if len(named) == 1 else None


def _is_brokers_own(topic: Any) -> bool:
    return bool(topic["perm"] & PERM_INHERIT) and topic["readQueueNums"] == topic["writeQueueNums"] == 1


def _text_of(file: Path, files: Files) -> str | None:
    """What is in a file that need not be there, and a mistake in it must not stop a read."""
    try:
        return files.read_all(file).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
