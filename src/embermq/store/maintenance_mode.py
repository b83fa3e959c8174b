"""A store opened to do one thing to it (clean, drop, load), and not to run: nothing is delivered meanwhile.

What is parked still holds its log file, as in a running store. With `emberDelayedDelivery=false` it would not: that is
for a store that never delivers. Whoever opens the store next delivers what is due then. Any thread.
"""

from embermq.store.message_store import MessageStore


class MaintenanceStore(MessageStore):
    """A store that leaves parked messages where they are."""

    def _start_threads(self) -> None:
        self._delayed = None  # Retention was told by now what is parked, and from where on.
        super()._start_threads()
