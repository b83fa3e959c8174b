"""The pulse of a store: how fast it grows and how far behind each part of it is, seen from outside.

A `Watch` looks again and again; two looks give rates. Ours says itself, in its state page, how far the log is
durable and the queues are written. Of a store of RocketMQ the queues are looked at, and the checkpoint, which
holds times and not places. Reads only. One thread.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from embermq.files import DiskUsage, RealFiles
from embermq.format.names import segment_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.inspect.lookup import message_at
from embermq.inspect.overview import checkpoint_of, writer_process
from embermq.inspect.snapshot import QueueSpan, Survey
from embermq.inspect.store_shape import found_shape
from embermq.settings import StoreSettings
from embermq.store.layout import CONSUME_QUEUE
from embermq.store.services import ScrubState, load_scrub_state


@dataclass(frozen=True, slots=True)
class Glance:
    """One look. Places are physical offsets."""

    seconds: float  # of a clock that only goes forward
    log_min: int
    log_end: int
    topics: dict[str, int]  # topic -> messages it ever had
    queues: int
    dispatched: int  # queues have everything below
    flushed: int | None  # durable below; None if unknown
    checkpoint_behind_ms: int | None  # the log's time in the checkpoint, behind the newest message
    newest_store_ms: int | None
    segments: int
    spare_segments: int  # made ahead, still empty
    disk: DiskUsage
    writer_pid: int | None
    scrub: ScrubState = field(default_factory=ScrubState)  # as it was last written down

    @property
    def messages(self) -> int:
        return sum(self.topics.values())

    @property
    def dispatch_behind_bytes(self) -> int:
        return max(0, self.log_end - self.dispatched)

    @property
    def flush_behind_bytes(self) -> int | None:
        return None if self.flushed is None else max(0, self.log_end - self.flushed)


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened between two looks, per second."""

    messages: float
    bytes: float
    topics: dict[str, float]  # those that got messages, the busiest first


def rates_between(before: Glance, after: Glance) -> Rates:
    """Rates; a store that was replaced or cut in between counts as still."""
    seconds = max(after.seconds - before.seconds, 1e-6)
    grown = {topic: count - before.topics.get(topic, 0) for topic, count in after.topics.items()}
    topics = {topic: count / seconds for topic, count in grown.items() if count > 0}
    busiest = dict(sorted(topics.items(), key=lambda item: (-item[1], item[0])))
    return Rates(sum(topics.values()), max(0, after.log_end - before.log_end) / seconds, busiest)


class Watch:
    """A store that is looked at again and again. StorePathInvalid if there is none."""

    def __init__(self, path: Path) -> None:
        self._survey = Survey.open(path)
        self._path = path
        self._queue_file_bytes: int | None = None

    def look(self) -> Glance:
        """How things are now."""
        survey = self._survey
        survey.refresh()
        spans = survey.queues()
        topics: dict[str, int] = {}
        for (topic, _), span in spans.items():
            topics[topic] = topics.get(topic, 0) + span.max_offset
        page = survey.state_page
        newest = self._newest_store_ms(spans)
        checkpoint = checkpoint_of(self._path)
        behind = None
        if checkpoint is not None and checkpoint.log_ms and newest is not None:
            behind = max(0, newest - checkpoint.log_ms)
        return Glance(
            seconds=time.monotonic(),
            log_min=survey.log_min,
            log_end=survey.log_end,
            topics=topics,
            queues=len(spans),
            dispatched=page.queues_written if page is not None else self._dispatched(spans),
            flushed=page.flushed if page is not None else None,
            checkpoint_behind_ms=behind,
            newest_store_ms=newest,
            segments=len(survey.segments),
            spare_segments=sum(1 for segment in survey.segments if segment.start >= max(survey.log_end, 1)),
            disk=RealFiles().usage(self._path),
            writer_pid=writer_process(self._path),
            scrub=load_scrub_state(RealFiles(), self._path),
        )

    def _newest_store_ms(self, spans: dict[tuple[str, int], QueueSpan]) -> int | None:
        """Store time of the newest message of any queue."""
        newest = max(spans.values(), key=lambda span: span.end_physical, default=None)
        if newest is None or newest.min_offset == newest.max_offset:
            return None
        end = newest.max_offset
        entries = self._survey.entries(newest.topic, newest.queue_id, end - 1, end)
        message = message_at(self._survey, int(entries[0]["physical_offset"])) if len(entries) else None
        return None if message is None else message.store_timestamp

    # -- a store of RocketMQ ------------------------------------------------------------------------------

    def _dispatched(self, spans: dict[tuple[str, int], QueueSpan]) -> int:
        """Up to where RocketMQ has written queue entries: it does so in the order of the log."""
        newest = sorted(spans.values(), key=lambda span: span.end_physical, reverse=True)
        if not newest:
            return self._survey.log_end
        if self._has_entry(newest[0], newest[0].max_offset - 1):
            return self._survey.log_end
        return max((self._filed_end(span) for span in newest), default=self._survey.log_min)

    def _filed_end(self, span: QueueSpan) -> int:
        """The end of the newest record of a queue that is in its files."""
        low, high = span.min_offset, span.max_offset
        while low < high:  # Entries are there up to some place, and not from there on.
            middle = (low + high) // 2
            if self._has_entry(span, middle):
                low = middle + 1
            else:
                high = middle
        entries = self._survey.entries(span.topic, span.queue_id, low - 1, low)
        if low == span.min_offset or not len(entries):
            return self._survey.log_min
        return int(entries[0]["physical_offset"]) + int(entries[0]["size"])

    def _has_entry(self, span: QueueSpan, queue_offset: int) -> bool:
        if self._queue_file_bytes is None:
            shape = found_shape(RealFiles(), self._path, survey=self._survey)
            self._queue_file_bytes = shape.queue_file_bytes or StoreSettings().queue_file_bytes
        place = queue_offset * ENTRY_BYTES
        start = place // self._queue_file_bytes * self._queue_file_bytes
        path = self._path / CONSUME_QUEUE / span.topic / str(span.queue_id) / segment_name(start)
        try:
            file = RealFiles().open(path, False)
            try:
                raw = file.pread(ENTRY_BYTES, place - start)
            finally:
                file.close()
        except OSError:
            return False
        return len(raw) == ENTRY_BYTES and int.from_bytes(raw[8:12], "big", signed=True) > 0
