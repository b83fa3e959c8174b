"""Settings that an administrator changed on the running broker: kept in config/emberBroker.json, applied at each start.

    {"dataVersion":{...},"settings":{"brokerPermission":"4"}}

They win over broker.conf, which is the operator's file and never written. Only keys of the allow-list are taken: a
file that names another one, or a value that cannot be used, is reported, and the rest applies.
"""

import logging
from collections.abc import Mapping
from typing import Any

from embermq.errors import SettingsError
from embermq.files import Decoded
from embermq.settings import BrokerSettings
from embermq.store.tables import ConfigTable, DataVersion, TableFormat

log = logging.getLogger(__name__)

# What a request may change: switches and limits that take effect at once. Never a path, an address that the broker
# connects to, a class, a command or a credential.
CHANGEABLE = {
    "brokerPermission": "permission",
    "autoCreateTopicEnable": "auto_create_topics",
    "autoCreateSubscriptionGroup": "auto_create_groups",
    "traceOn": "trace_on",
    "rejectTransactionMessage": "reject_transactions",
    "shortPollingTimeMills": "short_polling_ms",
    "notifyConsumerIdsChangedEnable": "notify_ids_changed",
    "slaveReadEnable": "slave_read",
    "storeReplyMessageEnable": "store_replies",
    "startAcceptSendRequestTimeStamp": "accept_sends_from_ms",
    "registerNameServerPeriod": "register_period_ms",
    "registerBrokerTimeoutMills": "register_timeout_ms",
}


def _decode(table: dict[Any, Any]) -> Decoded[dict[str, str]]:
    found: Decoded[dict[str, str]] = Decoded({})
    for key, text in table.items():
        if key in CHANGEABLE and isinstance(text, str):
            found.value[key] = text
        else:
            found.faults.append(f"{key} cannot be set here")
    return found


OVERRIDES: TableFormat[str, str] = TableFormat("emberBroker.json", "settings", _decode, dict, is_versioned=True)


class Overrides:
    """The changed settings of one broker."""

    def __init__(self, table: ConfigTable[str, str]) -> None:
        self._table = table

    @property
    def version(self) -> DataVersion:
        return self._table.version

    def apply(self, settings: BrokerSettings) -> BrokerSettings:
        """The settings with everything that was changed; what cannot be used is left out, and logged."""
        for key, text in self._table.entries().items():
            try:
                settings = changed(settings, {key: text})
            except SettingsError as problem:
                log.warning("event=override_unusable reason=%r", str(problem))
        return settings

    def keep(self, changes: Mapping[str, str]) -> None:
        """Remember changes; durable after `save`."""
        self._table.put_all(changes)

    def save(self) -> bool:
        """Any thread; OSError."""
        return self._table.save()


def changed(settings: BrokerSettings, changes: Mapping[str, str]) -> BrokerSettings:
    """Settings with other texts for some keys of the allow-list; SettingsError for a text that cannot be used."""
    properties = {key: text for key, text in changes.items() if key in CHANGEABLE}
    read = BrokerSettings.from_properties(properties)
    return settings.replace(**{CHANGEABLE[key]: getattr(read, CHANGEABLE[key]) for key in properties})
