"""NamesrvSettings: where a name server listens, where it keeps its KV config, and how much it takes.

Declared as the settings of the store are, under RocketMQ's names where RocketMQ has them; the limits are our own. In a
broker.conf, which many tools share, an unknown key is a warning; here it is an error. Values are immutable: usable from
any thread.
"""

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from embermq.errors import SettingsError, SettingsWarning
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.settings.names import BROKER_PROPERTIES, Given, Names
from embermq.settings.values import SettingFacts, Unusable, accept, check_address, parse_text, prop, to_text

ALWAYS_BLACK_LISTED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSettings:
    """Every setting of a name server."""

    listen_address: str = prop("emberListenAddress", "127.0.0.1", "address to listen on", check=check_address)
    listen_port: int = prop("listenPort", 9876, "port to listen on; 0: a free one", most=65535)
    kv_config_path: Path = prop("kvConfigPath", Path("~/namesrv/kvConfig.json"), "file of the KV config")
    config_store_path: Path = prop(
        "configStorePath", Path("~/namesrv/namesrv.properties"), "file of the settings that were changed by request"
    )
    order_messages: bool = prop("orderMessageEnable", False, "routes carry the order config of their topic")
    black_list: str = prop(
        "configBlackList",
        ";".join(ALWAYS_BLACK_LISTED),
        "keys that no request may change, separated by `;`; those of the default always count",
    )
    idle_seconds: int = prop(
        "serverChannelMaxIdleTimeSeconds", 120, "close a connection that is idle for so long", unit="s", least=1
    )
    connections_max: int = prop("emberMaxConnections", 20_000, "most connections", least=1)
    brokers_max: int = prop("emberMaxBrokers", 10_000, "most broker addresses", least=1)
    topics_max: int = prop("emberMaxTopics", 100_000, "most topics", least=1)
    topic_entries_max: int = prop("emberMaxTopicEntries", 1_000_000, "most topics, counted once a broker", least=1)
    register_bytes_max: int = prop(
        "emberMaxRegisterBytes", 64 << 20, "largest body of a registration, after inflating", unit="bytes", least=1024
    )
    kv_entries_max: int = prop("emberMaxKvEntries", 10_000, "most entries of the KV config", least=1)
    kv_bytes_max: int = prop(
        "emberMaxKvBytes", 16 << 20, "largest file of the KV config", unit="bytes", least=1024, most=64 << 20
    )

    def __post_init__(self) -> None:
        for attribute, about in NAMESRV_PROPERTIES.items():
            value = getattr(self, attribute)
            try:
                accepted = accept(_KINDS[attribute], about, value)
            except Unusable as error:
                raise SettingsError(str(error), key=about.name, value=value) from None
            object.__setattr__(self, attribute, accepted)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """From a namesrv.conf; python names come on top. SettingsError names the line."""
        name = os.fspath(path)
        try:
            entries = parse_properties(_decode(Path(name).read_bytes()))
        except OSError as error:
            raise SettingsError(f"cannot be read: {error.strerror or error}", file=name) from None
        except PropertiesSyntaxError as error:
            raise SettingsError(error.reason, file=name, line=error.line) from None
        return cls._load([Given(entry.key, entry.value, name, entry.line) for entry in entries], name, arguments)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **arguments: Any) -> Self:
        """From RocketMQ's names and text values; python names come on top."""
        return cls._load([Given(key, text) for key, text in properties.items()], "", arguments)

    @classmethod
    def _load(cls, given: Sequence[Given], source: str, arguments: Mapping[str, Any]) -> Self:
        values = values_of(given)
        foreign = [entry.key for entry in given if entry.key not in NAMES.attributes]
        if foreign:
            place = f"{source}: " if source else ""
            listed = ", ".join(dict.fromkeys(foreign))
            warnings.warn(f"{place}known, but without effect here: {listed}", SettingsWarning, stacklevel=3)
        return cls(**(values | dict(arguments)))

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)

    def to_properties(self) -> dict[str, str]:
        """RocketMQ's names and text values, as from_properties takes them."""
        return {about.name: to_text(getattr(self, attribute)) for attribute, about in NAMESRV_PROPERTIES.items()}

    @property
    def black_listed(self) -> frozenset[str]:
        """Keys that no request may change."""
        return frozenset(ALWAYS_BLACK_LISTED) | {key.strip() for key in self.black_list.split(";")}


NAMESRV_PROPERTIES: dict[str, SettingFacts] = {
    f.name: f.metadata["property"] for f in dataclasses.fields(NamesrvSettings)
}
NAMES = Names({about.name: attribute for attribute, about in NAMESRV_PROPERTIES.items()})
_KINDS: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(NamesrvSettings)}


def values_of(given: Sequence[Given]) -> dict[str, Any]:
    """Values by attribute; SettingsError for an unknown key, with the nearest name, and for a value of no use.

    Keys that RocketMQ's broker or name server knows and this one does not need are left out.
    """
    values: dict[str, Any] = {}
    for entry in given:
        attribute = NAMES.attributes.get(entry.key)
        if attribute is None:
            if entry.key in BROKER_PROPERTIES:
                continue
            nearest = NAMES.nearest(entry.key)
            hint = f"; did you mean {nearest}?" if nearest else ""
            reason = f"there is no such setting{hint}"
            raise SettingsError(reason, key=entry.key, value=entry.text, file=entry.file, line=entry.line)
        kind, about = _KINDS[attribute], NAMESRV_PROPERTIES[attribute]
        try:
            values[attribute] = accept(kind, about, parse_text(kind, about, entry.text))
        except Unusable as error:
            raise SettingsError(str(error), key=entry.key, value=entry.text, file=entry.file, line=entry.line) from None
    return values


def _decode(data: bytes) -> str:
    """UTF-8, or else what Java takes every .properties file for: Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
