"""The tables of a broker as files under config/, loaded: what the parts of the broker keep their state in.

What could not be read, and was taken from a backup or begun anew, is a finding. Made before anything listens; each
table is then the concern of the part it is given to.
"""

from collections.abc import Callable
from typing import TypeVar

from embermq.broker.admin.overrides import OVERRIDES
from embermq.broker.members import LOCK_OWNERS, ConsumerFilters
from embermq.broker.transactions import TRANSACTIONS
from embermq.clock import Clock
from embermq.files import Files
from embermq.store import MessageStore
from embermq.store.tables import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, ConfigTable, TableFormat

K = TypeVar("K")
V = TypeVar("V")


class ConfigTables:
    """Every table of one broker."""

    def __init__(self, store: MessageStore, clock: Clock, files: Files, filters: ConsumerFilters | None) -> None:
        """`filters`: those of the store, if they are loaded already."""
        self._store, self._clock, self._files = store, clock, files
        self.findings: list[str] = []
        self.topics = self._load(TOPICS)
        self.groups = self._load(GROUPS)
        self.offsets = self._load(CONSUMER_OFFSETS)
        self.overrides = self._load(OVERRIDES)
        self.transactions = self._load(TRANSACTIONS)
        self.lock_owners = self._load(LOCK_OWNERS)
        self.delays = self._table(DELAY_OFFSETS)  # The store's own; a slave takes them from its master.
        self.filters = (
            filters if filters is not None else ConsumerFilters.load(store.path, store.settings, clock, files)
        )
        if self.filters.finding is not None:
            self.findings.append(self.filters.finding)

    def saves(self) -> dict[str, Callable[[], bool]]:
        """What writes each table that changed, by a name for the log."""
        return {
            "topics": self.topics.save,
            "groups": self.groups.save,
            "offsets": self.offsets.save,
            "transactions": self.transactions.save,
            "filters": self.filters.save,
            "locks": self.lock_owners.save,
        }

    def _table(self, shape: TableFormat[K, V]) -> ConfigTable[K, V]:
        return ConfigTable(self._files, self._store.path, shape, self._clock)

    def _load(self, shape: TableFormat[K, V]) -> ConfigTable[K, V]:
        table = self._table(shape)
        finding = table.load()
        if finding is not None:
            self.findings.append(finding)
        return table
