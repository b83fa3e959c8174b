"""Settings by request (25, 26): read all, change those of the allow-list. The loop's thread; saving on another.

RocketMQ 4.9 changed whatever a request named, among it the directory from which it runs commands (CVE-2023-33246).
Here a request changes nothing but the keys of `CHANGEABLE` (overrides.py), all of its keys or none.
"""

import asyncio
from collections.abc import Callable

from embermq.broker.admin.overrides import CHANGEABLE, Overrides, changed
from embermq.broker.admin.shapes import failed
from embermq.broker.answers import Later
from embermq.errors import SettingsError
from embermq.remoting import Call, NoHeader, Reply, RequestCode, ResponseCode, Row, write_json
from embermq.settings import BrokerSettings, PropertiesSyntaxError, parse_properties
from embermq.store import MessageStore

# Settings that EmberMQ does not have and mqadmin's exportConfigs cannot do without.
FIXED = {"filterServerNums": "0", "useTLS": "false"}
# Refused whatever the configured black list says, as RocketMQ 4.9.8 does.
BLACK_LIST = frozenset(("configBlackList", "brokerConfigPath", "rocketmqHome"))


class ConfigurationAdmin:
    """Answers about settings."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        overrides: Overrides,
        take: Callable[[BrokerSettings], None],
        later: Later,
    ) -> None:
        """`take` makes new settings those of the broker."""
        self._settings, self._store, self._overrides = settings, store, overrides
        self._take, self._later = take, later

    def rows(self) -> list[Row]:
        note = "only switches and limits of an allow-list are changed, and broker.conf is not written"
        return [
            self._later.row(RequestCode.UPDATE_BROKER_CONFIG, NoHeader, self.change, note=note),
            Row(RequestCode.GET_BROKER_CONFIG, NoHeader, self.show),
        ]

    async def change(self, call: Call[NoHeader]) -> Reply:
        try:
            asked = {entry.key: entry.value for entry in parse_properties(call.body.decode("utf-8"))}
        except (UnicodeDecodeError, PropertiesSyntaxError) as problem:
            return failed(f"the settings cannot be read: {problem}")
        if (objection := self._objection(asked)) is not None:
            return objection
        try:
            settings = changed(self._settings(), asked)
        except SettingsError as problem:
            return failed(str(problem))
        self._overrides.keep({key: text.strip() for key, text in asked.items()})
        await asyncio.to_thread(self._overrides.save)
        self._take(settings)
        return Reply()

    def _objection(self, asked: dict[str, str]) -> Reply | None:
        black_list = BLACK_LIST | {key.strip() for key in self._settings().config_black_list.split(";")}
        if forbidden := sorted(asked.keys() & black_list):
            return failed(f"Can not update config in black list: {', '.join(forbidden)}", ResponseCode.NO_PERMISSION)
        if fixed := sorted(asked.keys() - CHANGEABLE.keys()):
            names = ", ".join(fixed)[:500]
            return failed(
                f"cannot be changed while the broker runs: {names}; these can: {', '.join(CHANGEABLE)}",
                ResponseCode.NO_PERMISSION,
            )
        return None

    def show(self, _call: Call[NoHeader]) -> Reply:
        properties = FIXED | self._store.settings.to_properties() | self._settings().to_properties()
        lines = [f"{key}={_one_line(text)}" for key, text in sorted(properties.items())]
        version = write_json(self._overrides.version.to_document()).decode()
        return Reply(ext={"version": version}, body="\n".join([*lines, ""]).encode())


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
