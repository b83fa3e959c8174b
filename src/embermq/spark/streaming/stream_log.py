"""A stream without topic options: the offset is a place in each log, and new topics need no discovery.

Driver side, one thread; `LogFollower` answers what the stream reader asks.
"""

from collections.abc import Iterator, Mapping, Sequence

from embermq.inspect import LogMatch
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import AtTime, Earliest
from embermq.spark.planning.plan import StoreRequest
from embermq.spark.planning.read_request import StoreWork, check_segments
from embermq.spark.streaming.stream_limits import shares
from embermq.spark.streaming.stream_offsets import StoreOffset, StreamOffset
from embermq.spark.streaming.stream_stores import FollowedStore


class LogFollower:
    """Follows the logs of some stores."""

    def __init__(self, stores: Sequence[FollowedStore], options: ReadOptions) -> None:
        self._stores, self._options = stores, options

    def initial(self) -> StreamOffset:
        return StreamOffset({store.name: self._offset(store, self._first(store)) for store in self._stores})

    def _first(self, store: FollowedStore) -> int:
        survey = store.survey
        match self._options.start:
            case Earliest():
                return survey.log_min
            case AtTime(_, time_ms):
                return survey.physical_at(time_ms)
            case _:
                return survey.log_end

    def latest(self) -> StreamOffset:
        return StreamOffset({store.name: self._offset(store, store.survey.log_end) for store in self._stores})

    def row_count(self, start: StreamOffset, enough: int) -> int:
        """How many rows a batch would have, as far as it matters."""
        count = 0
        for store in self._stores:
            begin = store.position_after(start.stores.get(store.name))
            count += store.count_rows(begin, store.survey.log_end, enough - count)
        return count

    def until(self, start: StreamOffset, target: StreamOffset | None, *, limited: bool) -> StreamOffset:
        """The end of the next batch: not past `target`, and within the limits of the options."""
        begins = {store.name: store.position_after(start.stores.get(store.name)) for store in self._stores}
        ends = {store.name: self._available(store, begins[store.name], target) for store in self._stores}
        if limited:
            ends = self._limited(begins, ends)
        offsets = dict(start.stores)
        for store in self._stores:
            known, end = offsets.get(store.name), ends[store.name]
            if known is None or end != known.position or store.match(known) is not LogMatch.SAME:
                offsets[store.name] = self._offset(store, end)
        return StreamOffset(offsets)

    def _available(self, store: FollowedStore, begin: int, target: StreamOffset | None) -> int:
        end = store.survey.log_end
        if target is not None:
            known = target.stores.get(store.name)
            end = min(end, known.position) if known is not None else begin
        return max(begin, end)

    def _limited(self, begins: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        options, limited = self._options, dict(ends)
        lags = {name: end - begins[name] for name, end in ends.items() if end > begins[name]}
        stores = {store.name: store for store in self._stores}
        if options.max_bytes_per_trigger is not None:
            for name, size in shares(options.max_bytes_per_trigger, lags).items():
                if size < lags[name]:
                    place = stores[name].survey.record_start(begins[name] + size)
                    limited[name] = min(place, limited[name])
        if options.max_offsets_per_trigger is not None:
            total = sum(lags.values())
            for name, lag in lags.items():
                rows = -(-options.max_offsets_per_trigger * lag // total)
                limited[name] = stores[name].end_of_rows(begins[name], limited[name], rows)
        return limited

    def _offset(self, store: FollowedStore, position: int) -> StoreOffset:
        return StoreOffset(store.identity_at(position), position)

    def works(self, start: StreamOffset, end: StreamOffset) -> Iterator[StoreWork]:
        """What is needed of each store for the batch from `start` to `end`."""
        for store in self._stores:
            known = end.stores.get(store.name)
            if known is None or store.match(known) is not LogMatch.SAME:
                continue
            begin = store.position_after(start.stores.get(store.name))
            if known.position > store.survey.log_end:
                store.lose(f"the log ends at {store.survey.log_end}, and was read up to {known.position}")
            request = StoreRequest(store.name, begin, min(known.position, store.survey.log_end))
            if request.log_start < request.log_end:
                check_segments(store.survey, request, fail_on_data_loss=self._options.fail_on_data_loss)
                yield StoreWork(store.place, store.survey, request, store.selection())

    def progress(self, end: StreamOffset) -> Iterator[tuple[FollowedStore, dict[tuple[str, int], int]]]:
        """Next-to-read of each queue, from a place in the log."""
        for store in self._stores:
            known = end.stores.get(store.name)
            if known is not None:
                yield (
                    store,
                    {
                        (span.topic, span.queue_id): store.survey.offset_from(span.topic, span.queue_id, known.position)
                        for span in store.wanted_queues()
                    },
                )
