"""A store as a broker opens it: with the filters of its consumer groups, whose bits each record gets where the settings
ask for them. Blocks; any thread."""

from pathlib import Path
from typing import NamedTuple

from embermq.broker.members import ConsumerFilters
from embermq.clock import Clock
from embermq.files import Files
from embermq.replication import Replicas
from embermq.settings import StoreSettings
from embermq.store import MessageStore
from embermq.store.services import OldSegment


class OpenedStore(NamedTuple):
    """What a Broker is made of."""

    store: MessageStore
    filters: ConsumerFilters


class SlavesGuard:
    """Keeps expired log files that a connected slave needs, unless it is too far behind or the disk too full."""

    who = "a slave that has not got all of it (haSlaveFallbehindMax)"

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.store: MessageStore | None = None  # None while it is being opened: no slave is connected then.

    def __call__(self, old: OldSegment, /) -> bool:
        if self.store is None or old.is_disk_full or not old.expired:
            return True
        return not self._replicas.needs(old.end, self.store.max_physical)


def open_store(
    root: Path,
    settings: StoreSettings,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    replicas: Replicas | None = None,
) -> OpenedStore:
    """Open the store in `root`, recovered and ready for a Broker. Closed by the caller. `replicas`: the slaves that the
    Broker will send the log to; expired log files wait for them."""
    filters = ConsumerFilters.load(root, settings, clock, files)
    guard = None if replicas is None else SlavesGuard(replicas)
    store = MessageStore.open(
        root,
        settings,
        clock=clock,
        files=files,
        bit_map_for=filters.bits if settings.filter_bits else None,
        retention_guard=guard,
        replicated=replicas is not None,
    )
    if guard is not None:
        guard.store = store
    return OpenedStore(store, filters)
