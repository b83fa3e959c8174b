"""One broker.conf, split into the settings of the store and those of the broker.

Where a value may come from, later wins:

    defaults  <  broker.conf  <  environment (EMBERMQ_<property>)  <  changes (--set)

A key that is no setting at all is a SettingsError with the nearest name: a broker that starts with a misspelt setting
does something else than its operator believes. What RocketMQ knows and this broker does not need is one warning.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embermq.errors import SettingsError, SettingsWarning
from embermq.settings import broker_settings, store_settings
from embermq.settings.broker_settings import BrokerSettings
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.settings.names import BROKER_PROPERTIES, Given, Names
from embermq.settings.store_settings import StoreSettings
from embermq.settings.values import BrokerRole, SettingFacts, Unusable, accept, parse_text

# The store's declaration says that a broker uses them; this one does.
_USED_BY_BROKER = frozenset(
    {
        "broker_id",
        "filter_bits",
        "filter_consumers",
        "filter_dead_ms",
        "filter_error_percent_max",
        "filter_properties",
        "filter_retries",
        "ha_behind_bytes_max",
        "ha_heartbeat_interval_ms",
        "ha_housekeeping_interval_ms",
        "ha_listen_port",
        "ha_master_address",
        "ha_transfer_bytes",
        "slave_timeout_ms",
    }
)
_NOT_YET = "not used by this broker yet"

# As `mqbroker -m` shows them, and where this broker listens.
IMPORTANT = (
    "namesrvAddr",
    "emberListenAddress",
    "listenPort",
    "brokerIP1",
    "brokerName",
    "brokerClusterName",
    "brokerId",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "rejectTransactionMessage",
    "storePathRootDir",
    "storePathCommitLog",
    "flushIntervalCommitLog",
    "commitIntervalCommitLog",
    "flushCommitLogTimed",
    "deleteWhen",
    "fileReservedTime",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "accessMessageInMemoryMaxRatio",
    "messageIndexEnable",
    "haMasterAddress",
    "brokerRole",
    "flushDiskType",
    "cleanFileForciblyEnable",
    "transientStorePoolEnable",
)

_BROKER_NAMES = {about.name: attribute for attribute, about in broker_settings.PROPERTIES.items()}
NAMES = Names(store_settings.NAMES.attributes | _BROKER_NAMES)


class BrokerConf(NamedTuple):
    """The settings of a broker and of its store, and which of them were given, by Python name."""

    store: StoreSettings
    broker: BrokerSettings
    given: frozenset[str]

    def to_properties(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """RocketMQ's names and text values, all or those of `names`."""
        everything = self.broker.to_properties() | self.store.to_properties()
        return everything if names is None else {name: everything[name] for name in names}


def read_broker_conf(
    file: str | os.PathLike[str] | None = None,
    changes: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConf:
    """Settings from a broker.conf, from variables and from changes by RocketMQ's names. SettingsError says where."""
    written = [] if file is None else _read(os.fspath(file))
    changed = [Given(key, text, "--set") for key, text in (changes or {}).items()]
    for entry in (*written, *changed):
        _refuse_unknown(entry)
    variables = NAMES.variables(environment or {})
    spoken = {NAMES.attributes[entry.key]: entry for entry in written if entry.key in NAMES.attributes}
    spoken |= variables.known
    spoken |= {NAMES.attributes[entry.key]: entry for entry in changed if entry.key in NAMES.attributes}
    store_values, broker_values = _values(spoken)
    store = _with_role(StoreSettings(**store_values))
    conf = BrokerConf(store, BrokerSettings(**broker_values), frozenset(spoken))
    _warn([*written, *changed], [entry.key for entry in variables.near_misses], conf)
    return conf


def _read(name: str) -> list[Given]:
    try:
        entries = parse_properties(store_settings.decode(Path(name).read_bytes()))
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror or error}", file=name) from None
    except PropertiesSyntaxError as error:
        raise SettingsError(error.reason, file=name, line=error.line) from None
    return [Given(entry.key, entry.value, name, entry.line) for entry in entries]


def _refuse_unknown(entry: Given) -> None:
    if entry.key in NAMES.attributes or entry.key in BROKER_PROPERTIES:
        return
    nearest = NAMES.nearest(entry.key)
    hint = f"; did you mean {nearest}?" if nearest else ""
    reason = f"there is no such setting{hint}"
    raise SettingsError(reason, key=entry.key, value=entry.text, file=entry.file, line=entry.line)


def _values(spoken: Mapping[str, Given]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of the store and of the broker, by Python name."""
    store: dict[str, Any] = {}
    broker: dict[str, Any] = {}
    for attribute, entry in spoken.items():
        if attribute in store_settings.PROPERTIES:
            store[attribute] = _value(store_settings.KINDS[attribute], store_settings.PROPERTIES[attribute], entry)
        else:
            text = broker_settings.listed(broker_settings.PROPERTIES[attribute].name, entry.text)
            about = broker_settings.PROPERTIES[attribute]
            broker[attribute] = _value(broker_settings.KINDS[attribute], about, entry._replace(text=text))
    return store, broker


def _value(kind: Any, about: SettingFacts, entry: Given) -> Any:
    try:
        return accept(kind, about, parse_text(kind, about, entry.text))
    except Unusable as error:
        raise SettingsError(str(error), key=entry.key, value=entry.text, file=entry.file, line=entry.line) from None


def _with_role(store: StoreSettings) -> StoreSettings:
    """A master has id 0 whatever is written, as in RocketMQ; a slave needs an id of its own."""
    if store.role is not BrokerRole.SLAVE:
        return store.replace(broker_id=0)
    if store.broker_id == 0:
        raise SettingsError("a SLAVE needs an id above 0", key="brokerId", value=store.broker_id)
    return store


def _warn(given: Sequence[Given], near_misses: Sequence[str], conf: BrokerConf) -> None:
    """One warning for everything that was given and has no effect."""
    default = StoreSettings()
    foreign = [entry.key for entry in given if entry.key not in NAMES.attributes]
    idle = []
    for attribute in sorted(conf.given & store_settings.PROPERTIES.keys() - _USED_BY_BROKER):
        about = store_settings.PROPERTIES[attribute]
        if about.no_effect and getattr(conf.store, attribute) != getattr(default, attribute):
            why = _NOT_YET if about.no_effect == store_settings.NO_BROKER else about.no_effect
            idle.append(f"{about.name} ({why})")
    unknown = [f"{name} (did you mean {NAMES.nearest(name)}?)" for name in near_misses]
    parts = [
        f"{title}: {', '.join(dict.fromkeys(names))}"
        for title, names in (
            ("unknown variables", unknown),
            ("known, but without effect here", foreign),
            ("accepted without effect", idle),
        )
        if names
    ]
    if parts:
        warnings.warn("; ".join(parts), SettingsWarning, stacklevel=3)
