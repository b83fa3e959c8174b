"""A stream with topic options: the offset is next-to-read of each queue, on each broker.

Queues that come into being while the stream runs are read from their beginning. A queue whose offsets began anew
(its topic was deleted and made again) is lost data; with failOnDataLoss off it is read from its new beginning. It is
known by its places: what was read lies before the record that the store's identity remembers, and all that a new
incarnation has lies behind it. So the identity is taken where the newest record that was read ends; and when it is
taken anew, a queue that is not there is forgotten: if it comes again, that is another incarnation.

Driver side, one thread; `QueueFollower` answers what the stream reader asks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from embermq.inspect import Identity, LogMatch, QueueSpan
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import Latest, resolve
from embermq.spark.planning.plan import QueueRequest, StoreRequest
from embermq.spark.planning.read_request import StoreWork, check_segments, check_topics, ends_of, only_log_because
from embermq.spark.planning.size_samples import sampled
from embermq.spark.planning.topic_incarnations import newest_lives
from embermq.spark.streaming.stream_limits import shares
from embermq.spark.streaming.stream_offsets import QueueName, StoreOffset, StreamOffset
from embermq.spark.streaming.stream_stores import FollowedStore

# A batch that lies within so much log is read in order without a look at queue files: the newest entries are not in
# them yet, and looking at a thousand queues takes longer than passing what is not wanted.
NEAR_BYTES = 64 << 20
_SAMPLED_QUEUES = 8
_SAMPLED_ENTRIES = 32
# Of so many queues it is looked up where the last record that was read ends. Of further ones, if there are, where the
# next one begins is near enough.
_EXACT_QUEUES_MAX = 32


class QueueFollower:
    """Follows queues of some stores."""

    def __init__(self, stores: Sequence[FollowedStore], options: ReadOptions) -> None:
        self._stores, self._options = stores, options

    def initial(self) -> StreamOffset:
        """Where the options say. A topic that is named must be there; what a pattern may match can come later."""
        options = self._options
        if options.topic_pattern is None:
            check_topics([(store.place, list(store.survey.queues().values())) for store in self._stores], options)
        queues = {}
        for store in self._stores:
            for span in store.wanted_queues():
                queues[_name(store, span)] = self._first(store, span)
        return StreamOffset(self._identities(queues), queues)

    def _first(self, store: FollowedStore, span: QueueSpan) -> int:
        options = self._options
        first, _ = resolve(
            options.start,
            Latest(),
            ends_of(store.place, span),
            offset_at=lambda time_ms: store.survey.offset_at(span.topic, span.queue_id, time_ms),
            fail_on_data_loss=options.fail_on_data_loss,
            streaming=True,
        )
        return first

    def _identities(self, queues: Mapping[QueueName, int]) -> dict[str, StoreOffset]:
        return {store.name: self._identity(store, queues) for store in self._stores}

    def _identity(self, store: FollowedStore, queues: Mapping[QueueName, int]) -> StoreOffset:
        # Not at the end of the log: what was not read yet may still be lost in a crash, and the stream loses nothing.
        end = _read_end(store, queues)
        identity = store.identity_at(end)
        if Identity.parse(identity).last is None and end > store.survey.log_min:
            identity = store.identity_at(store.survey.log_end)  # A record too long to be remembered: take a later one.
        return StoreOffset(identity)

    def latest(self) -> StreamOffset:
        ends = {_name(store, span): span.max_offset for store in self._stores for span in store.wanted_queues()}
        return StreamOffset(self._identities(ends), ends)

    def row_count(self, start: StreamOffset, enough: int) -> int:
        ranges = [self._range(store, span, start, None) for store in self._stores for span in store.wanted_queues()]
        return sum(max(0, end - begin) for begin, end in ranges)

    def until(self, start: StreamOffset, target: StreamOffset | None, *, limited: bool) -> StreamOffset:
        """The end of the next batch: not past `target`, and within the limits of the options."""
        assert start.queues is not None
        ranges = {
            _name(store, span): self._range(store, span, start, target)
            for store in self._stores
            for span in store.wanted_queues()
        }
        if limited:
            ranges = self._limited(ranges)
        queues = dict(start.queues)
        queues.update({name: end for name, (begin, end) in ranges.items() if begin < end or name in queues})
        stores = dict(start.stores)
        for store in self._stores:
            # By rows and not by offsets: a queue that began anew may be read up to the very offset it had before.
            has_rows = any(begin < end for name, (begin, end) in ranges.items() if name[1] == store.name)
            known = stores.get(store.name)
            if self._is_new_identity_due(store, known, has_rows=has_rows):
                others = {name: end for name, end in queues.items() if name[1] == store.name and name not in ranges}
                for name in _outdated(store, others, known):
                    del queues[name]
                stores[store.name] = self._identity(store, queues)
        return StreamOffset(stores, queues)

    def _is_new_identity_due(self, store: FollowedStore, known: StoreOffset | None, *, has_rows: bool) -> bool:
        if known is None or store.match(known) is not LogMatch.SAME:
            return True
        # A store that is being recovered does not show all that was read: nothing that is missing is forgotten.
        return has_rows and not store.survey.is_behind(known.identity)

    def _range(
        self, store: FollowedStore, span: QueueSpan, start: StreamOffset, target: StreamOffset | None
    ) -> tuple[int, int]:
        """What is there to be read of one queue, up to `target`."""
        begin, end = self._begin(store, span, start), span.max_offset
        if target is not None:
            assert target.queues is not None
            end = min(end, target.queues.get(_name(store, span), begin))
        return begin, max(begin, end)

    def _begin(self, store: FollowedStore, span: QueueSpan, start: StreamOffset) -> int:
        """The first offset that was not read."""
        assert start.queues is not None
        known, store_known = start.queues.get(_name(store, span)), start.stores.get(store.name)
        if known is None or store_known is None:
            return span.min_offset
        match = store.match(store_known)
        if match is LogMatch.OTHER:
            return span.min_offset
        ends = ends_of(store.place, span)
        if known > span.max_offset:
            if match is LogMatch.CUT:
                return span.max_offset
            if store.survey.is_behind(store_known.identity):
                return known
            store.lose(f"{ends}: was read up to {known} and ends at {span.max_offset} now; it was deleted, or cut")
            return span.min_offset
        if match is LogMatch.SAME and _began_anew(span, known, store_known):
            store.lose(f"{ends}: was read up to {known}, and has begun anew since; its topic was deleted")
            return span.min_offset
        if known < span.min_offset:
            store.lose(f"{ends}: offsets {known} to {span.min_offset} were deleted before they were read")
        return max(known, span.min_offset)

    # -- limits ------------------------------------------------------------------------------------------------

    def _limited(self, ranges: Mapping[QueueName, tuple[int, int]]) -> dict[QueueName, tuple[int, int]]:
        options = self._options
        limits = [] if options.max_offsets_per_trigger is None else [options.max_offsets_per_trigger]
        if options.max_bytes_per_trigger is not None:
            limits.append(max(1, int(options.max_bytes_per_trigger / self._record_bytes(ranges))))
        if not limits:
            return dict(ranges)
        counts = shares(min(limits), {name: end - begin for name, (begin, end) in ranges.items() if end > begin})
        return {name: (begin, begin + counts.get(name, 0)) for name, (begin, _) in ranges.items()}

    def _record_bytes(self, ranges: Mapping[QueueName, tuple[int, int]]) -> float:
        """The size of an average record, from samples of the queues that are behind the most."""
        surveys = {store.name: store.survey for store in self._stores}
        behind = sorted(ranges, key=lambda name: ranges[name][0] - ranges[name][1])[:_SAMPLED_QUEUES]
        sizes = [1.0]
        for topic, broker_name, queue_id in behind:
            begin, end = ranges[topic, broker_name, queue_id]
            entries = surveys[broker_name].entries(topic, queue_id, begin, min(end, begin + _SAMPLED_ENTRIES))
            sizes += [float(size) for size in entries["size"].tolist()]
        return sum(sizes) / max(1, len(sizes) - 1)

    # -- reading -----------------------------------------------------------------------------------------------

    def works(self, start: StreamOffset, end: StreamOffset) -> Iterator[StoreWork]:
        """What is needed of each store for the batch from `start` to `end`."""
        assert end.queues is not None
        for store in self._stores:
            known = end.stores.get(store.name)
            if known is not None and store.match(known) is LogMatch.SAME:
                requests = list(self._needs(store, start, end.queues, known))
                if requests:
                    yield self._work(store, requests)

    def _needs(
        self, store: FollowedStore, start: StreamOffset, ends: Mapping[QueueName, int], end_known: StoreOffset
    ) -> Iterator[QueueRequest]:
        spans = store.survey.queues()
        for (topic, broker_name, queue_id), end in ends.items():
            if broker_name != store.name:
                continue
            span = spans.get((topic, queue_id))
            if span is None:
                if (start.queues or {}).get((topic, broker_name, queue_id), 0) < end:
                    store.lose(f"{topic} queue {queue_id} on {broker_name}: it was deleted before it was read")
                continue
            if _began_anew(span, end, end_known):  # Since the batch was planned: the next one has the new rows.
                store.lose(f"{ends_of(store.place, span)}: has begun anew before it was read up to {end}")
                continue
            begin = self._begin(store, span, start)
            begin = begin if begin <= end else span.min_offset  # It began anew.
            if end > span.max_offset:
                store.lose(f"{ends_of(store.place, span)}: ends at {span.max_offset}, and was to be read up to {end}")
            end = min(end, span.max_offset)
            if begin < end:
                first, last = store.survey.place_range(topic, queue_id, begin, end)
                yield QueueRequest(topic, queue_id, begin, end, first, last)

    def _work(self, store: FollowedStore, requests: Sequence[QueueRequest]) -> StoreWork:
        first = min(request.first_physical for request in requests)
        last = max(request.end_physical for request in requests)
        request = StoreRequest(store.name, first, last, tuple(requests))
        queues = {(one.topic, one.queue_id): (one.start, one.end) for one in requests}
        if last - first <= NEAR_BYTES:
            request = replace(request, log_because="the newest part of the log is wanted")
        elif because := only_log_because(store.survey, self._options):
            extents = store.survey.extents(queues, None, None)
            request = replace(request, log_because=because, extents=None if extents is None else tuple(extents))
        else:
            with_sizes, because = sampled(store.place, requests, store.selection().tags)
            request = replace(request, queues=with_sizes, log_because=because)
        check_segments(store.survey, request, fail_on_data_loss=self._options.fail_on_data_loss)
        selection = newest_lives(replace(store.selection(), queues=queues), store.survey.deleted_topics())
        return StoreWork(store.place, store.survey, request, selection)

    def progress(self, end: StreamOffset) -> Iterator[tuple[FollowedStore, dict[tuple[str, int], int]]]:
        assert end.queues is not None
        for store in self._stores:
            yield (
                store,
                {
                    (topic, queue_id): queue_offset
                    for (topic, broker_name, queue_id), queue_offset in end.queues.items()
                    if broker_name == store.name
                },
            )


def _name(store: FollowedStore, span: QueueSpan) -> QueueName:
    return span.topic, store.name, span.queue_id


def _began_anew(span: QueueSpan, known: int, read: StoreOffset) -> bool:
    """Was a queue read up to `known`, and does all it has lie behind what was read? No note of a deletion is needed:
    Apache RocketMQ leaves none."""
    last = Identity.parse(read.identity).last
    return last is not None and known > span.min_offset and span.first_physical > last.physical_offset


def _outdated(store: FollowedStore, queues: Mapping[QueueName, int], known: StoreOffset | None) -> list[QueueName]:
    """Queues that are not there, or not of the incarnation that was read up to `known`. Others may be those that the
    options leave out now: they are gone on with when they are wanted again."""
    spans = store.survey.queues()
    match = LogMatch.OTHER if known is None else store.match(known)
    outdated = []
    for name, queue_offset in queues.items():
        span = spans.get((name[0], name[2]))
        is_anew = span is not None and known is not None and _began_anew(span, queue_offset, known)
        if span is None or match is LogMatch.OTHER or (is_anew and match is LogMatch.SAME):
            outdated.append(name)
    return outdated


def _read_end(store: FollowedStore, queues: Mapping[QueueName, int]) -> int:
    """Where the newest record before some queue offsets ends; where the log begins if there is none."""
    survey, end, behind = store.survey, store.survey.log_min, []
    for (topic, queue_id), span in survey.queues().items():
        known = queues.get((topic, store.name, queue_id), span.min_offset)
        if known >= span.max_offset > span.min_offset:
            end = max(end, span.end_physical)
        elif known > span.min_offset:
            behind.append((*survey.place_range(topic, queue_id, known - 1, known), span, known))
    behind.sort(key=lambda one: one[1], reverse=True)
    for number, (first, limit, span, known) in enumerate(behind):
        if limit <= end:
            break
        is_exact = survey.has_queue_files and number < _EXACT_QUEUES_MAX
        end = max(end, _end_before(store, span, known, first, limit) if is_exact else limit)
    return end


def _end_before(store: FollowedStore, span: QueueSpan, queue_offset: int, first: int, limit: int) -> int:
    """Where the record before a queue offset ends, by its entry if that is in [first, limit); else `limit`."""
    entry = store.survey.entries(span.topic, span.queue_id, queue_offset - 1, queue_offset)
    place = int(entry[0]["physical_offset"]) if len(entry) else limit
    return min(place + int(entry[0]["size"]), limit) if first <= place < limit else limit
