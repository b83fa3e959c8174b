"""What a broker asks of a store now and then: cleaning up after topics, and figures of single topics and queues.

None of this is on the way of a message. Put totals by topic are not counted while messages are appended: queue entries
have the sizes of their records, and the caller adds up what came since the last time. Any thread.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from embermq.files import Files
from embermq.model.hosts import Host
from embermq.model.ids import message_id
from embermq.model.properties import PARKING_TOPICS
from embermq.store.append.light_queues import LMQ_PREFIX
from embermq.store.layout.kept_offsets import load_kept_offsets
from embermq.store.log.commit_log import CommitLog
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.services.topic_deletion import KEPT_TOPICS, TopicDeletion

_ENTRIES_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class TopicPuts:
    """Messages of a topic since the store was opened, and the bytes of their records."""

    count: int = 0
    bytes: int = 0


class PutTotals:
    """Put totals by topic, from queue entries. What left the log before it was added up counts without its bytes."""

    def __init__(self, queues: ConsumeQueues, next_offsets: Iterable[tuple[str, int, int]]) -> None:
        """`next_offsets`: where queues went on when the store was opened."""
        self._queues, self._opened_at = queues, next_offsets
        self._seen: dict[tuple[str, int], int] | None = None
        self._totals: dict[str, TopicPuts] = {}
        self._lock = threading.Lock()

    def read(self) -> dict[str, TopicPuts]:
        """The totals of all topics that got messages."""
        with self._lock:
            if self._seen is None:
                self._seen = {(topic, queue_id): after for topic, queue_id, after in self._opened_at}
            for queue in self._queues.all():
                end, key = queue.max_offset, (queue.topic, queue.queue_id)
                start = self._seen.get(key, 0)
                start = start if start <= end else 0  # A deleted topic has begun again.
                if start < end:
                    before = self._totals.get(queue.topic, TopicPuts())
                    sizes = _record_bytes(queue, start, end)
                    self._totals[queue.topic] = TopicPuts(before.count + end - start, before.bytes + sizes)
                    self._seen[key] = end
            return dict(self._totals)


def _record_bytes(queue: ConsumeQueue, start: int, end: int) -> int:
    total, at = 0, max(start, queue.min_offset)
    while at < end:
        entries = queue.entries(at, min(_ENTRIES_AT_ONCE, end - at))
        if not len(entries):
            at = queue.roll_next_file(at)
            continue
        total += int(entries["size"].sum(dtype="int64"))
        at += len(entries)
    return total


def message_ids(queue: ConsumeQueue, start: int, end: int, store_host: Host) -> dict[str, int]:
    """The ids of the messages start..end of a queue, each with its queue offset."""
    found: dict[str, int] = {}
    at = max(start, queue.min_offset)
    end = min(end, queue.max_offset)
    while at < end:
        entries = queue.entries(at, min(_ENTRIES_AT_ONCE, end - at))
        if not len(entries):
            break
        for number, physical_offset in enumerate(entries["physical_offset"].tolist()):
            found[message_id(store_host, physical_offset)] = at + number
        at += len(entries)
    return found


def clean_unused_topics(queues: ConsumeQueues, deletion: TopicDeletion, live: Collection[str]) -> list[str]:
    """Delete every topic that is not `live`; which ones. The store's own topics and light queues stay."""
    unused = [topic for topic in queues.topics() if topic not in live and not _is_kept(topic)]
    for topic in unused:
        deletion.delete(topic)
    return unused


def _is_kept(topic: str) -> bool:
    return topic in KEPT_TOPICS or topic.startswith(LMQ_PREFIX)


def clean_expired_queues(
    root: Path, files: Files, log: CommitLog, queues: ConsumeQueues, make_durable: Callable[[], None]
) -> list[tuple[str, int]]:
    """Remove the files of queues all of whose messages have left the log; which ones. Parked messages stay.

    A queue goes on with the number after its last one all the same: only those go for which that is written down.
    """
    kept = {(topic, queue_id): after for topic, queue_id, after in load_kept_offsets(files, root)}

    def is_expired(queue: ConsumeQueue) -> bool:
        if queue.topic in PARKING_TOPICS or not 0 <= queue.max_physical <= log.min_offset:
            return False
        return kept.get((queue.topic, queue.queue_id), -1) >= queue.max_offset

    removed = queues.discard_where(is_expired)
    if removed:
        make_durable()
    return removed
