"""A store as a broker opens it: with the filters of its consumer groups, whose bits each record gets where the settings
ask for them. Blocks; any thread."""

from pathlib import Path
from typing import NamedTuple

from embermq.broker.consumer_filters import ConsumerFilters
from embermq.clock import Clock
from embermq.files import Files
from embermq.settings import StoreSettings
from embermq.store import MessageStore


class OpenedStore(NamedTuple):
    """What a Broker is made of."""

    store: MessageStore
    filters: ConsumerFilters


def open_store(
    root: Path, settings: StoreSettings, *, clock: Clock | None = None, files: Files | None = None
) -> OpenedStore:
    """Open the store in `root`, recovered and ready for a Broker. Closed by the caller."""
    filters = ConsumerFilters.load(root, settings, clock, files)
    bits = filters.bits if settings.filter_bits else None
    return OpenedStore(MessageStore.open(root, settings, clock=clock, files=files, bit_map_for=bits), filters)
