"""A store as a broker opens it: with the filters of its consumer groups, whose bits each record gets where the settings
ask for them. Blocks; any thread."""

from pathlib import Path
from typing import NamedTuple

from embermq.broker.members.consumer_filters import ConsumerFilters
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

    def may_go(old: OldSegment) -> bool:
        return replicas is None or not old.expired or not replicas.needs(old.start, old.end)

    store = MessageStore.open(
        root,
        settings,
        clock=clock,
        files=files,
        bit_map_for=filters.bits if settings.filter_bits else None,
        retention_guard=None if replicas is None else may_go,
        replicated=replicas is not None,
    )
    return OpenedStore(store, filters)
