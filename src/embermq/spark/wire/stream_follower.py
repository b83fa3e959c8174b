"""The queues of a stream over the wire: what is new in each, limits of a micro-batch, and what was lost.

Pure but for the warnings: it is given what the brokers say of their queues. A queue whose broker does not answer is
left as it is, and gone on with when it does; topics, queues and brokers that came later are read from their beginning.
A queue that is shorter than what was read of it, or begins behind it, has lost messages: DataLost, or one warning.
"""

import logging
from collections.abc import Iterable, Mapping

from embermq.errors import DataLost
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.streaming.stream_limits import shares
from embermq.spark.wire.cluster import QueueName
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.wanted import WireRange

_GO_ON = "set failOnDataLoss=false to go on with what is left"
_ELSEWHERE = "begin anew with another lake and checkpoint"
_log = logging.getLogger(__name__)


def name_of(ends: ReadableQueue) -> QueueName:
    return ends.topic, ends.broker_name, ends.queue_id


class WireFollower:
    """Decides how far a stream goes. One thread."""

    def __init__(self, options: ReadOptions, *, advice: str = _GO_ON, begins_anew: bool = True) -> None:
        """`advice`: what to do about lost messages. A queue that is shorter than what was read of it is read from its
        beginning if losses are accepted, and `begins_anew`."""
        self._options, self._advice, self._begins_anew = options, advice, begins_anew
        self._told: set[str] = set()

    def ranges(
        self, start: WireOffset, ends: Iterable[ReadableQueue], target: WireOffset | None = None
    ) -> dict[QueueName, tuple[int, int]]:
        """What there is to be read of each queue, up to `target`."""
        found = {}
        for one in ends:
            name = name_of(one)
            begin, end = self._begin(start.queues.get(name), one), one.max_offset
            if target is not None:
                end = min(end, target.queues.get(name, begin))
            found[name] = (begin, max(begin, end))
        return found

    def _begin(self, known: int | None, ends: ReadableQueue) -> int:
        """The first offset that was not read."""
        if known is None:
            return ends.min_offset
        if known > ends.max_offset:
            what = f"{ends}: was read up to {known} and ends at {ends.max_offset} now; it was deleted, or cut"
            if not self._begins_anew:
                raise DataLost(f"{what}; {_ELSEWHERE}")
            self.lose(what)
            return ends.min_offset
        if known < ends.min_offset:
            self.lose(f"{ends}: offsets {known} to {ends.min_offset} were deleted before they were read")
        return max(known, ends.min_offset)

    def until(
        self, start: WireOffset, ranges: Mapping[QueueName, tuple[int, int]], *, message_bytes: float | None = None
    ) -> WireOffset:
        """The end of the next batch. `message_bytes`: the size of an average message, where limits count."""
        chosen = dict(ranges) if message_bytes is None else self._limited(ranges, message_bytes)
        queues = dict(start.queues)
        queues.update({name: end for name, (begin, end) in chosen.items() if begin < end or name in queues})
        return WireOffset(queues)

    def _limited(
        self, ranges: Mapping[QueueName, tuple[int, int]], message_bytes: float
    ) -> dict[QueueName, tuple[int, int]]:
        options = self._options
        limits = [] if options.max_offsets_per_trigger is None else [options.max_offsets_per_trigger]
        if options.max_bytes_per_trigger is not None:
            limits.append(max(1, int(options.max_bytes_per_trigger / max(1.0, message_bytes))))
        if not limits:
            return dict(ranges)
        counts = shares(min(limits), {name: end - begin for name, (begin, end) in ranges.items() if end > begin})
        return {name: (begin, begin + counts.get(name, 0)) for name, (begin, _) in ranges.items()}

    def batch(self, start: WireOffset, end: WireOffset, ends: Iterable[ReadableQueue]) -> list[WireRange]:
        """The ranges of the batch from `start` to `end`. Queues that are not seen now are tried all the same: a batch
        that was planned is read as planned."""
        seen = {name_of(one): one for one in ends}
        ranges = []
        for name, stop in sorted(end.queues.items()):
            known = start.queues.get(name)
            if known is not None and known == stop:
                continue
            there = seen.get(name)
            begin = self._batch_begin(known, stop, there)
            if begin < stop:
                ranges.append(WireRange(*name, begin, stop))
        return ranges

    def _batch_begin(self, known: int | None, stop: int, there: ReadableQueue | None) -> int:
        """Where a batch begins that ends at `stop`: it began anew if it was read further before."""
        if there is None:
            return 0 if known is None else known
        if known is None or known > stop:
            return min(there.min_offset, stop)
        if known < there.min_offset:
            self.lose(f"{there}: offsets {known} to {there.min_offset} were deleted before they were read")
            return min(there.min_offset, stop)
        return known

    def lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}; {self._advice}")
        if what not in self._told:
            _log.warning("stream continues: %s", what)
            self._told.add(what)
