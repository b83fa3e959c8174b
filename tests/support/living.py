"""A small store that is open for writing, and what can happen to it while somebody looks at it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from embermq import Message, MessageStore
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock

HOUR_MS = 3_600_000
TOPICS = ("apples", "pears", "plums")
STAYS = "apples"  # Is never deleted.
GOES = "pears"
SMALL: dict[str, Any] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 20 * 16,
    "index_slots_max": 16,
    "index_entries_max": 40,
    "delete_segment_pause_ms": 0,
    "delete_queue_pause_ms": 0,
    "delayed_delivery": False,
}


class LivingStore:
    """Two hours of messages in a few log, queue and index files; the first hour's may expire."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._clock = ManualClock()
        self._builder = StoreBuilder(root, clock=self._clock, **SMALL)
        self.store: MessageStore = self._builder.open()
        self._count = 0
        self._between_ms = 0
        for _ in range(2):
            self._between_ms = self._clock.now_ms()
            self._clock.advance(ms=HOUR_MS)
            self.fill(60)

    def fill(self, count: int, topics: tuple[str, ...] = TOPICS) -> None:
        for number in range(self._count, self._count + count):
            body = f"{number}".encode() * (1 + number % 60)
            topic, queue_id = topics[number % len(topics)], number % 2
            self.store.append(Message(topic, body, tags=f"t{number % 3}", keys=f"k{number}", queue_id=queue_id))
        self._count += count
        self.store.wait_for_dispatch()

    def close(self) -> None:
        if not self.store.closed:
            self.store.close()

    # -- what happens ------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Retention takes the files of the first hour."""
        assert self.store.delete_expired(before_ms=self._between_ms + HOUR_MS).segments

    def delete_topic(self) -> None:
        assert self.store.delete_topic(GOES)

    def begin_topic_again(self) -> None:
        self.delete_topic()
        self.fill(20, (GOES,))

    def grow(self) -> None:
        """New log, queue and index files."""
        self.fill(80)

    def reopen(self) -> None:
        self.store.close()
        self.store = self._builder.open()
        self.fill(5)

    def stop(self) -> None:
        self.store.close()

    def rebuild(self) -> None:
        """Queues and index are swapped for new ones."""
        self.store.close()
        rebuild(self.root, self._builder.settings, clock=self._clock)
        self.store = self._builder.open()

    def everything(self) -> None:
        self.begin_topic_again()
        self.grow()
        self.expire()

    @property
    def happenings(self) -> dict[str, Callable[[], None]]:
        return {
            "retention": self.expire,
            "deletion": self.delete_topic,
            "new life": self.begin_topic_again,
            "growth": self.grow,
            "restart": self.reopen,
            "stop": self.stop,
            "rebuild": self.rebuild,
            "everything": self.everything,
        }
