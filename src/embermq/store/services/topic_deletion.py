"""Deleting a topic: its queues go, its numbers begin at 0 again, and its records leave with their log files.

The log stays as it is, so between the topic's old records and those of a new incarnation there is one place, and
everybody has to see the same one:

    writer       under the put lock: the next message of each queue is number 0; the log ends here
    dispatcher   has given everything below this place to the queues, and nothing above, when it removes them
    the note     the topic and the place (deleted_topics.py), durable before the call returns

Readers in the middle of such a queue find it empty. `delete` may come from any thread.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from embermq.errors import StoreError
from embermq.files import Bell, Files
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, PARKING_TOPICS
from embermq.store.append.writer import Writer
from embermq.store.layout.deleted_topics import load_deleted_topics, save_deleted_topics
from embermq.store.log.commit_log import CommitLog
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.services.dispatch import Dispatcher
from embermq.store.services.housekeeping import Housekeeping
from embermq.store.services.retention import Retention

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
# What the store itself needs: parked messages, and transactions that are not decided yet.
KEPT_TOPICS = PARKING_TOPICS | {HALF_TOPIC, OP_TOPIC}


class TopicDeletion:
    """Deletes topics of one running store, one at a time."""

    def __init__(
        self,
        root: Path,
        files: Files,
        commit_log: CommitLog,
        writer: Writer,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        housekeeping: Housekeeping,
        retention: Retention,
        flush_log: Callable[[], int],
    ) -> None:
        self._root, self._files, self._log = root, files, commit_log
        self._writer, self._dispatcher, self._queues = writer, dispatcher, queues
        self._housekeeping, self._retention, self._flush_log = housekeeping, retention, flush_log
        self._one_at_a_time = threading.Lock()

    def delete(self, topic: str) -> int:
        """Remove the queues of a topic; how many there were. OSError if the disk refuses; another call goes on."""
        if topic in KEPT_TOPICS:
            raise StoreError(f"topic {topic!r} belongs to the store itself and cannot be deleted")
        with self._one_at_a_time:
            ends: list[int] = []
            removed: list[int] = []
            done = Bell()

            def remove() -> None:
                try:
                    removed.append(self._remove(topic))
                finally:
                    done.ring()

            def cut(end: int) -> None:
                ends.append(end)
                self._dispatcher.at(end, remove)

            self._writer.forget_topic(topic, cut)
            self._flush_log()  # The dispatcher may need it to come so far, and the note speaks of this place.
            self._note(topic, ends[0])
            self._wait(topic, done)
            if not removed:
                raise StoreError(f"the queue files of topic {topic!r} could not be removed; the log says why")
            self._retention.forget_topic(topic)
            self._housekeeping.make_durable()
            log.info("topic deleted topic=%s queues=%d physical_offset=%d", topic, removed[0], ends[0])
            return removed[0]

    def _remove(self, topic: str) -> int:
        """Called by the dispatcher, between two records."""
        queue_ids = self._queues.ids_of(topic)
        for queue_id in queue_ids:
            self._queues.discard(topic, queue_id)
        return len(queue_ids)

    def _note(self, topic: str, end: int) -> None:
        deleted = load_deleted_topics(self._files, self._root)
        kept = {name: place for name, place in deleted.items() if place > self._log.min_offset}
        save_deleted_topics(self._files, self._root, kept | {topic: end})

    def _wait(self, topic: str, done: Bell) -> None:
        waited = 0.0
        while not done.wait(0.05):
            self._dispatcher.wake()
            waited += 0.05
            if waited > PATIENCE_SECONDS:
                raise StoreError(f"queues are far behind the log: topic {topic!r} goes as soon as they have caught up")
