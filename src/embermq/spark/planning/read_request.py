"""From options, filters and stores to what is needed of each store: the input of the plan, and a Selection.

Everything that can be wrong with a read shows here, on the driver, before a task starts: a topic that was never written
to, offsets that are gone, log files that are missing or may not be read. Looks at the stores through their Surveys and
writes nothing.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from embermq.columns import C_STORE_TIME, I64_MAX, I64_MIN, Selection, is_system_topic
from embermq.errors import DataLost, OptionInvalid, StorePathInvalid, TopicUnknown
from embermq.inspect import QueueSpan, Survey
from embermq.model.properties import MULTI_DISPATCH
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import (
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    ReadableQueue,
    check_names,
    nearest_names,
    resolve,
)
from embermq.spark.planning.plan import QueueRequest, StoreRequest
from embermq.spark.planning.pushdown import Pushed, Span
from embermq.spark.planning.size_samples import sampled
from embermq.spark.planning.stores import StorePlace
from embermq.spark.planning.topic_incarnations import newest_lives
from embermq.store.layout import CONSUME_QUEUE
from embermq.store.log import DamagedRange
from embermq.store.queues import LIGHT_PREFIX

# Clocks are set back now and then: a filter on time takes log files for so much newer than they begin. Rows themselves
# are compared exactly.
CLOCK_SLACK_MS = 3_600_000
_TRIMMED_QUEUES_MAX = 256
_KEY_LOOKUPS_MAX = 100
_LIGHT_QUEUE = LIGHT_PREFIX.decode()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreWork:
    """One store of a read: where it is, a look at it, what is needed of it and how to tell."""

    place: StorePlace
    survey: Survey
    request: StoreRequest
    selection: Selection


def find_works(places: Sequence[StorePlace], options: ReadOptions, pushed: Pushed) -> list[StoreWork]:
    """What is needed of every store. Raises what is wrong with the options, now that the stores are seen."""
    finders = [NeedFinder(place, place.survey(), options, pushed) for place in places]
    if wants_queues(options, pushed):
        for place in places:
            _check_queue_folder(place)
        check_topics([(finder.place, finder.spans()) for finder in finders], options)
        return [finder.by_queue() for finder in finders]
    return [finder.by_log() for finder in finders]


def wants_queues(options: ReadOptions, pushed: Pushed) -> bool:
    """Whether queues have to be looked at: else the log as it is answers."""
    limited = any(isinstance(limit, AtOffsets | AtTimes) for limit in (options.start, options.end))
    words = (options.tags, options.keys, pushed.tags, pushed.keys)
    return options.has_topics or limited or pushed.names_queues or any(one is not None for one in words)


def check_topics(found: Sequence[tuple[StorePlace, Sequence[QueueSpan]]], options: ReadOptions) -> None:
    """Topics, queues and offsets that options name must be somewhere in the stores."""
    where = ", ".join(place.shown for place, _ in found[:3]) + (" ..." if len(found) > 3 else "")
    shown = [
        ends_of(place, span)
        for place, spans in found
        for span in spans
        if options.include_system_topics or not is_system_topic(span.topic)
    ]
    topics = {ends.topic for ends in shown}
    for topic in options.topics or ():
        if topic not in topics:
            if is_system_topic(topic) and not options.include_system_topics:
                raise OptionInvalid("topic", f"{topic} is a system topic; set includeSystemTopics=true to read it")
            if topic.startswith(_LIGHT_QUEUE) or any(_has_queue(place, topic) for place, _ in found):
                raise OptionInvalid(
                    "topic",
                    f"{topic} has no messages of its own in {where}; those that go to it from other topics lie there:"
                    f" read them where array_contains(split(properties['{MULTI_DISPATCH}'], ','), '{topic}')",
                )
            raise TopicUnknown(topic, where, nearest_names(topic, topics))
    wanted = {topic for topic in topics if options.wants_topic(topic)}
    if options.topic_pattern is not None and not wanted:
        some = ", ".join(sorted(topics)[:10])
        raise OptionInvalid("subscribePattern", f"matches no topic of {where}: {some}", value=options.topic_pattern)
    _check_queues(shown, wanted, options)
    for limit in (options.start, options.end):
        check_names(limit, shown, where)


def _check_queue_folder(place: StorePlace) -> None:
    """StorePathInvalid, which names it, if the queues of a store may not be read. There need not be any."""
    folder = place.path / CONSUME_QUEUE
    if place.shipped is None and folder.exists() and not os.access(folder, os.R_OK | os.X_OK):
        raise StorePathInvalid(folder, "no permission to read it; check its owner and mode")


def _has_queue(place: StorePlace, topic: str) -> bool:
    """Is there a queue of this name, of whatever messages?"""
    return place.shipped is None and (place.path / CONSUME_QUEUE / topic).is_dir()


def _check_queues(shown: Sequence[ReadableQueue], wanted: set[str], options: ReadOptions) -> None:
    for topic, ids in (options.queues.by_topic or {}).items():
        there = {ends.queue_id for ends in shown if ends.topic == topic}
        if missing := sorted(ids - there):
            raise OptionInvalid("queues", f"topic {topic} has no queue {missing[0]}; its queues: {_listed(there)}")
    if options.queues.every_topic is not None:
        there = {ends.queue_id for ends in shown if ends.topic in wanted}
        if missing := sorted(options.queues.every_topic - there):
            raise OptionInvalid("queues", f"no wanted topic has a queue {missing[0]}; there is {_listed(there)}")


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def ends_of(place: StorePlace, span: QueueSpan) -> ReadableQueue:
    return ReadableQueue(span.topic, place.broker_name, span.queue_id, span.min_offset, span.max_offset)


class NeedFinder:
    """Finds out what is needed of one store."""

    def __init__(self, place: StorePlace, survey: Survey, options: ReadOptions, pushed: Pushed) -> None:
        self.place, self._survey, self._options, self._pushed = place, survey, options, pushed

    def spans(self) -> list[QueueSpan]:
        return list(self._survey.queues().values())

    def by_log(self) -> StoreWork:
        """Whatever there is, between two places of the log; a time means a place here."""
        survey, options = self._survey, self._options
        asked = self._asked()
        start, end = asked.start, asked.end
        if isinstance(options.start, AtTime):
            start = max(start, survey.physical_at(options.start.time_ms))
        elif isinstance(options.start, Latest):
            start = end
        if isinstance(options.end, AtTime):
            end = min(end, survey.physical_at(options.end.time_ms))
        log = self._filtered(Span(start, end))
        selection = self._selection()
        if not options.include_system_topics:
            selection = newest_lives(selection, survey.deleted_topics())
        return self._work(StoreRequest(self.place.broker_name, log.start, log.end), selection)

    def by_queue(self) -> StoreWork:
        """Offsets of queues."""
        log = self._filtered(self._asked())
        request = StoreRequest(self.place.broker_name, log.start, log.end)
        ranges = self._ranges(log)
        because = only_log_because(self._survey, self._options)
        if self._options.include_system_topics:
            return self._work(replace(request, log_because=because), self._selection_with_system(ranges))
        queues = {(span.topic, span.queue_id): (wanted.start, wanted.end) for span, wanted in ranges}
        selection = newest_lives(replace(self._selection(), queues=queues), self._survey.deleted_topics())
        requests = [
            QueueRequest(span.topic, span.queue_id, wanted.start, wanted.end, span.first_physical, span.end_physical)
            for span, wanted in ranges
        ]
        places = self._places(ranges, selection.keys)
        if places is not None:
            return self._work(replace(request, queues=tuple(requests), places=places), selection)
        if because:
            return self._work(replace(request, queues=tuple(requests), log_because=because), selection)
        with_sizes, because = sampled(self.place, requests, selection.tags)
        return self._work(replace(request, queues=with_sizes, log_because=because), selection)

    def _work(self, request: StoreRequest, selection: Selection) -> StoreWork:
        if self._pushed.is_empty or request.log_end < request.log_start:
            request = replace(request, log_end=request.log_start, queues=(), places=None)
        elif request.places is None:
            request = replace(request, extents=self._extents(selection))
        check_segments(self._survey, request, fail_on_data_loss=self._options.fail_on_data_loss)
        return StoreWork(self.place, self._survey, request, selection)

    def _extents(self, selection: Selection) -> tuple[tuple[int, int], ...] | None:
        # Prepared records are in no queue, and may be wanted with those of the system.
        queues = None if selection.include_system else selection.queues
        keys = None if selection.include_system else selection.keys  # Rolled-back ones are in no index either.
        extents = self._survey.extents(queues, selection.begin_ms, selection.end_ms, keys)
        return None if extents is None else tuple(extents)

    def _selection(self) -> Selection:
        """All that does not depend on queues."""
        options, pushed = self._options, self._pushed
        times, physical = pushed.times_ms, pushed.physical.meet(self._named_places())
        return Selection(
            tags=_both(options.tags, pushed.tags),
            keys=frozenset(options.keys) if options.keys is not None else pushed.keys,
            begin_ms=None if times.is_all else times.start,
            end_ms=None if times.is_all else times.end,
            physical_start=None if physical.is_all else physical.start,
            physical_end=None if physical.is_all else physical.end,
            include_system=options.include_system_topics,
        )

    def _named_places(self) -> Span:
        start, end = self._options.physical_start, self._options.physical_end
        everything = Span()
        return Span(everything.start if start is None else start, everything.end if end is None else end)

    def _selection_with_system(self, ranges: Sequence[tuple[QueueSpan, Span]]) -> Selection:
        """Prepared and rolled-back records have a topic and a queue id, but no offset of their own: in a read of whole
        queues, names decide, and neither offsets nor places that a queue has."""
        options, pushed, selection = self._options, self._pushed, self._selection()
        if not isinstance(options.start, Earliest) or not isinstance(options.end, Latest):
            queues = {(span.topic, span.queue_id): (wanted.start, wanted.end) for span, wanted in ranges}
            return replace(selection, queues=queues)
        offsets = pushed.queue_offsets
        selection = replace(
            selection,
            topics=pushed.topics,
            queue_ids=_both(options.queues.every_topic, pushed.queue_ids),
            queue_offset_start=None if offsets.is_all else offsets.start,
            queue_offset_end=None if offsets.is_all else offsets.end,
        )
        named = [span for span in self.spans() if self._is_named(span)]
        if options.queues.by_topic is not None:
            return replace(selection, queues={(span.topic, span.queue_id): (I64_MIN, I64_MAX) for span in named})
        if options.has_topics:
            selection = replace(selection, topics=_both({span.topic for span in named}, pushed.topics))
        return selection

    def _is_named(self, span: QueueSpan) -> bool:
        """Whether options want this queue, going by topic and queue id alone."""
        options = self._options
        if is_system_topic(span.topic) and not options.include_system_topics:
            return False
        return options.wants_topic(span.topic) and options.queues.has(span.topic, span.queue_id)

    def _asked(self) -> Span:
        """The log, or the part of it that options name; it begins at a record."""
        survey, options = self._survey, self._options
        start, end = survey.log_min, survey.log_end
        if options.physical_start is not None:
            if options.physical_start < survey.log_min and options.fail_on_data_loss:
                raise DataLost(
                    f"{self.place.shown}: the log begins at {survey.log_min:,}, and was to be read from"
                    f" {options.physical_start:,} on; what lies between is gone (retention?). Set failOnDataLoss=false"
                    " to read what is left"
                )
            if options.physical_start > survey.log_min:
                start = survey.record_start(min(options.physical_start, end))
        return Span(start, max(start, end if options.physical_end is None else min(end, options.physical_end)))

    def _filtered(self, log: Span) -> Span:
        """The part of a range of the log that filters leave; it begins at a record."""
        survey, times, physical = self._survey, self._pushed.times_ms, self._pushed.physical
        start = log.start
        # The end of a time is no end of the log: after a clock was set back there are records from before it anywhere.
        # The parts of a shipped store are known by all their times, and its extents leave out what can be.
        if survey.has_queue_files and times.start > Span().start and not times.is_empty:
            start = max(start, _first_file(survey, times.start - CLOCK_SLACK_MS))
        if physical.start > start:
            start = survey.record_start(min(physical.start, survey.log_end))
        return Span(start, max(start, min(log.end, physical.end)))

    def _ranges(self, log: Span) -> list[tuple[QueueSpan, Span]]:
        """Wanted offsets of every wanted queue that has some."""
        survey, pushed = self._survey, self._pushed
        ranges = []
        for span in self.spans():
            topic, queue_id = span.topic, span.queue_id
            if not self._is_named(span):
                continue
            # Options are resolved, and their mistakes shown, before filters leave anything out.
            start, end = self._resolved(span)
            if pushed.topics is not None and topic not in pushed.topics:
                continue
            if pushed.queue_ids is not None and queue_id not in pushed.queue_ids:
                continue
            wanted = Span(start, end).meet(pushed.queue_offsets)
            if not wanted.is_empty and span.first_physical < log.end and log.start < span.end_physical:
                ranges.append((span, wanted))
        few = survey.has_queue_files and len(ranges) <= _TRIMMED_QUEUES_MAX
        if few and (log.start > survey.log_min or log.end < survey.log_end):
            trimmed = [(span, self._trimmed(span, wanted, log)) for span, wanted in ranges]
            return [(span, wanted) for span, wanted in trimmed if not wanted.is_empty]
        return ranges

    def _resolved(self, span: QueueSpan) -> tuple[int, int]:
        return resolve(
            self._options.start,
            self._options.end,
            ends_of(self.place, span),
            offset_at=lambda time_ms: self._survey.offset_at(span.topic, span.queue_id, time_ms),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _trimmed(self, span: QueueSpan, wanted: Span, log: Span) -> Span:
        """Offsets whose records can lie in a part of the log: places ascend with offsets."""

        def first_from(physical_offset: int) -> int:
            low, high = wanted.start, wanted.end
            while low < high:
                middle = (low + high) // 2
                entry = self._survey.entries(span.topic, span.queue_id, middle, middle + 1)
                if len(entry) and int(entry["physical_offset"][0]) < physical_offset:
                    low = middle + 1
                else:
                    high = middle
            return low

        start = first_from(log.start) if log.start > span.first_physical else wanted.start
        return Span(start, first_from(log.end) if log.end < span.end_physical else wanted.end)

    def _places(self, ranges: Sequence[tuple[QueueSpan, Span]], keys: frozenset[str] | None) -> tuple[int, ...] | None:
        """Where records with these keys can lie, if an index knows them all."""
        topics = sorted({span.topic for span, _ in ranges})
        if keys is None or len(topics) * len(keys) > _KEY_LOOKUPS_MAX:
            return None
        found: set[int] = set()
        for topic in topics:
            for key in keys:
                places = self._survey.find_key(topic, key, -1, Span().end)
                if places is None:
                    return None
                found.update(places)
        return tuple(sorted(found))


def _first_file(survey: Survey, time_ms: int) -> int:
    """The beginning of the first log file that may have records stored at a time or later.

    That is the one before the first that begins so late, or before one that begins earlier than it did: there the
    clock was set back, and the file may have anything. All are looked at, in order: bisection would need times that
    ascend. A clock that was ahead for less than a file, and set back in the same, is not seen.
    """
    found, newest_ms = survey.log_min, I64_MIN
    for segment in survey.segments:
        place = survey.record_start(max(segment.start, survey.log_min)) if segment.start < survey.log_end else None
        begun_ms = None if place is None else _time_at(survey, place)
        if place is None or begun_ms is None:
            continue
        if begun_ms >= time_ms or begun_ms < newest_ms:
            return found
        found, newest_ms = place, begun_ms
    return found


def _time_at(survey: Survey, place: int) -> int | None:
    """When the record at a place was stored."""
    for scanned in survey.scan(place, place + 1, check_crc=False, rows_max=1):
        if not isinstance(scanned, DamagedRange):
            return int(scanned.rows[0, C_STORE_TIME])
    return None


def _both(option: Iterable[T] | None, pushed: frozenset[T] | None) -> frozenset[T] | None:
    """What options and filters both want; None says nothing."""
    if option is None or pushed is None:
        return frozenset(option) if option is not None else pushed
    return frozenset(option) & pushed


def only_log_because(survey: Survey, options: ReadOptions) -> str:
    """Why queue files are of no use, whatever is in them; empty if they may be."""
    if options.include_system_topics:
        # And entries of parked records have the time they are due where others have the hash of their tag.
        return "records of the system are wanted, and not all of them are in a queue"
    if not survey.has_queue_files:
        return "there are no queue files in a shipped store"
    if options.on_corrupt == "rows":
        # Queues of different slices can have lost records to one stretch of damage: each would report it.
        return "damage is wanted as rows, and lies in no queue"
    return ""


def check_segments(survey: Survey, request: StoreRequest, *, fail_on_data_loss: bool) -> None:
    """Files of the wanted part must be there and readable."""
    at = request.log_start
    for segment in survey.segments:
        if segment.end <= at or segment.start >= request.log_end:
            continue
        if segment.start > at and fail_on_data_loss:
            raise DataLost(
                f"{survey.path}: bytes {at} to {segment.start} of the log are missing: a log file was removed;"
                " set failOnDataLoss=false to read what is left"
            )
        if survey.has_queue_files and not os.access(segment.path, os.R_OK):
            raise StorePathInvalid(segment.path, "no permission to read it; check its owner and mode")
        at = segment.end
