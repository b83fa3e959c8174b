"""Consumer groups of a broker: what each may do, made on first use where that is allowed. Threads as in topics.py."""

from collections.abc import Callable, Mapping

from embermq.model.names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX, is_group_name
from embermq.settings import BrokerSettings
from embermq.store.tables import ConfigTable, DataVersion, GroupConfig


class GroupTable:
    """The group table."""

    def __init__(
        self, table: ConfigTable[str, GroupConfig], settings: Callable[[], BrokerSettings], changed: Callable[[], None]
    ) -> None:
        self._table, self._settings, self._changed = table, settings, changed
        self.refused = 0
        table.put_all({name: GroupConfig(name) for name in PREDEFINED_GROUPS if name not in table})

    @property
    def version(self) -> DataVersion:
        return self._table.version

    def find(self, group: str) -> GroupConfig | None:
        """The group's configuration, made on first use if the settings allow that."""
        found = self._table.get(group)
        if found is not None or not is_group_name(group):
            return found
        if not self._settings().auto_create_groups and not group.startswith(SYSTEM_GROUP_PREFIX):
            return None
        if not self.has_room:
            self.refused += 1
            return None
        made = GroupConfig(group)
        self.put(made)
        return made

    def known(self, group: str) -> GroupConfig | None:
        """The group's configuration, if it has one."""
        return self._table.get(group)

    @property
    def has_room(self) -> bool:
        """Whether one more may be made."""
        return len(self._table) < self._settings().names_max

    def all(self) -> dict[str, GroupConfig]:
        return self._table.entries()

    def document(self) -> str:
        return self._table.text()

    def put(self, config: GroupConfig) -> None:
        self._table.put(config.group_name, config)
        self._changed()

    def remove(self, group: str) -> bool:
        removed = self._table.remove(group) is not None
        if removed:
            self._changed()
        return removed

    def take_all(self, configs: Mapping[str, GroupConfig], version: DataVersion) -> None:
        """On a slave: make the table that of its master, under its version."""
        self._table.assign(configs, version)
        self._changed()

    def save(self) -> bool:
        return self._table.save()
