"""Raw reads: messages of one queue as the bytes that are stored, gathered into one buffer.

For readers that pass messages on: a broker that answers a pull, a transport. A read costs per call, not per message:
the entries are one slice of the queue, and one compiled call checks every record (magic, lengths, place, checksum, and
that it belongs to its place of the queue) and copies it. Nothing is decoded but the properties a filter asks for.

The answer is that of a fetch: the same messages in the same order with the same status, limits and next offset. Where
an entry or its record is not ordinary (damaged, gone, in a hole of the queue) the whole read is done by `Fetcher.pick`,
one entry after another. Any thread.
"""

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    G_ANY_PLACE,
    G_BILLING,
    G_BYTES,
    G_BYTES_OLD,
    G_BYTES_RECENT,
    G_COUNT,
    G_COUNT_OLD,
    G_COUNT_RECENT,
    G_LAST,
    G_LOG_END,
    G_NEXT,
    G_QUEUE_ID,
    G_QUEUE_OFFSET,
    G_RECENT_FROM,
    N_GATHER_NUMBERS,
    N_PLACE_COLUMNS,
    GatherStop,
    GatherStored,
    Screen,
    gather_stored_for,
    pays,
    screen_for,
)
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.status import FetchStatus
from embermq.settings import StoreSettings
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.windows import Window, window_at
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.entry_matches import EntryMatches
from embermq.store.queues.fetch import BILLING_BYTES, Fetcher, Picked, ReadLimits, entries_max
from embermq.store.queues.filters import GroupFilter, MessageFilter, PropertyFilter, TagFilter
from embermq.store.queues.pending_entries import Entries
from embermq.store.queues.property_screen import screen

_NO_PLACES: NDArray[np.int64] = np.empty((0, N_PLACE_COLUMNS), np.int64)
_NOTHING = Window(np.empty(0, np.uint8), 0)
# So many entries are asked about their properties at a time: of a filter that many messages match, most would be for
# nothing. More, once few of a portion were left.
SCREENED_PORTION, SCREENED_LARGE = 256, 1024
_FEW = 8  # one in so many


class RawRead(msgspec.Struct, frozen=True):
    """What a raw read answers: `count` records in `data`, one after another, as they are stored.

    `next_offset` is where the next read should begin. Each record begins with its size, so that the next one is found.
    """

    status: FetchStatus
    data: memoryview
    count: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool = False
    billing: int = 0


class RawReader:
    """Reads from the queues of one store."""

    def __init__(self, log: CommitLog, fetcher: Fetcher, settings: StoreSettings) -> None:
        self._log, self._fetcher, self._kernels = log, fetcher, settings.kernels
        self._any_place = int(settings.multi_dispatch)
        self._seen = 0  # Records read so far: loading the compiled form pays after some.
        self._gather: GatherStored | None = None  # The compiled form, once it is loaded.
        self._screened = 0
        self._screen: Screen | None = None  # The same.

    def read(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_messages: int,
        limits: ReadLimits,
        wanted: MessageFilter | None,
    ) -> RawRead:
        """Messages of `queue` from `offset` on. A queue that never was behaves as an empty one."""
        log_end = self._log.readable_offset
        answer = None
        if self._fetcher.nothing_at(queue, offset) is None:
            assert queue is not None
            answer = self._read_ordinary(queue, offset, max_messages, limits, log_end, wanted)
        if answer is not None:
            return answer
        return _as_raw(self._fetcher.pick(queue, offset, max_messages, limits, wanted))

    def _read_ordinary(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        limits: ReadLimits,
        log_end: int,
        wanted: MessageFilter | None,
    ) -> RawRead | None:
        """The answer, if all entries that have to be looked at are ordinary."""
        low, high = queue.min_offset, queue.max_offset
        # One entry more than messages: the one that would be one too many is looked at as well.
        most = max(limits.count_recent, 1) + 1 if wanted is None else entries_max(max_messages)
        entries = queue.entries(offset, most)
        if len(entries) == 0:
            return None
        numbers = np.zeros(N_GATHER_NUMBERS, np.int64)
        numbers[G_QUEUE_ID], numbers[G_QUEUE_OFFSET] = queue.queue_id, offset
        numbers[G_ANY_PLACE], numbers[G_LOG_END] = self._any_place, log_end
        numbers[G_RECENT_FROM] = limits.recent_from
        numbers[G_COUNT_RECENT], numbers[G_BYTES_RECENT] = limits.count_recent, limits.bytes_recent
        numbers[G_COUNT_OLD], numbers[G_BYTES_OLD] = limits.count_old, limits.bytes_old
        gathering = _Gathering(self._log, queue, entries, numbers, limits, wanted, self._screen_form)
        if not gathering.run(self._form()):
            return None
        count = int(numbers[G_COUNT])
        self._seen += count
        self._screened += gathering.screened
        return RawRead(
            FetchStatus.FOUND if count else FetchStatus.NO_MATCHED_MESSAGE,
            gathering.stored(),
            count,
            offset + int(numbers[G_NEXT]),
            low,
            high,
            not limits.is_recent(int(numbers[G_LAST])),
            int(numbers[G_BILLING]),
        )

    def _screen_form(self) -> Screen:
        screen = self._screen
        if screen is None:
            is_compiled = pays("screen", self._screened, self._kernels)
            screen = screen_for(self._screened, self._kernels)
            if is_compiled:
                self._screen = screen
        return screen

    def _form(self) -> GatherStored:
        gather = self._gather
        if gather is None:
            is_compiled = pays("stored", self._seen, self._kernels)
            gather = gather_stored_for(self._seen, self._kernels)
            if is_compiled:
                self._gather = gather
        return gather


class _Gathering:
    """One read over ordinary entries, on one thread."""

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        entries: Entries,
        numbers: NDArray[np.int64],
        limits: ReadLimits,
        wanted: MessageFilter | None,
        screen_form: Callable[[], Screen],
    ) -> None:
        self._log, self._topic, self._numbers, self._wanted = log, queue.topic_bytes, numbers, wanted
        self._total, self._entries = len(entries), np.frombuffer(entries.data, np.uint8)
        self._matches = EntryMatches(queue, entries, wanted)
        self._count_max = max(limits.count_recent, limits.count_old, 1)
        self._bytes_max = max(limits.bytes_recent, limits.bytes_old)
        self._places = _NO_PLACES if wanted is None else np.empty((self._count_max, N_PLACE_COLUMNS), np.int64)
        self._window, self._window_for = _NOTHING, -1
        self.out = _NOTHING.data
        # With multi dispatch a record may stand in several queues: the screen would not know it.
        self._condition: Callable[[bytes], bool] | None = None
        self._portion = SCREENED_PORTION
        self._screened = 0  # The condition was asked about the entries below this one.
        self.screened = 0  # How many were.
        if isinstance(wanted, GroupFilter | PropertyFilter) and not numbers[G_ANY_PLACE]:
            self._condition, self._needles, self._screen_form = wanted.matches_record, wanted.needles, screen_form()

    def run(self, gather: GatherStored) -> bool:
        """Gather until the limits, or the entries, end; False if one of them is not ordinary."""
        numbers = self._numbers
        while True:
            next_entry, before = int(numbers[G_NEXT]), int(numbers[G_COUNT])
            if next_entry >= self._matches.asked:
                if next_entry == self._total:
                    return True
                self._matches.ask()
            entries, mask = self._asked()
            if not len(self.out):
                self._begin(next_entry, entries, mask)
            seen, chosen = entries, mask
            if self._condition is not None:
                seen, chosen = self._screen(next_entry, entries, mask)
            data, base = self._window
            stop = gather(data, base, seen, chosen, self._topic, numbers, self.out, self._places)
            if self._wanted is not None and numbers[G_COUNT] > before and self._take_back(self._wanted, before):
                continue  # What was full may not be full any more.
            if stop is GatherStop.FULL:
                return True
            if stop is GatherStop.ELSEWHERE and not self._go_to(int(numbers[G_NEXT]), entries, mask):
                return False
            if stop is GatherStop.ODD:
                return False
            if stop is GatherStop.NO_ROOM:
                self._make_room(int(numbers[G_NEXT]))

    def _asked(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The entries the filter was asked about, and its answers."""
        asked = self._matches.asked
        if self._wanted is None or asked == self._total:
            return self._entries, self._matches.mask
        return self._entries[: asked * ENTRY_BYTES], self._matches.mask[:asked]

    def _screen(
        self, next_entry: int, entries: NDArray[np.uint8], mask: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The next portion of the entries, without those whose properties the filter does not want."""
        assert self._condition is not None
        if next_entry >= self._screened:
            end = self._screened = min(next_entry + self._portion, len(mask))
            queue = int(self._numbers[G_QUEUE_ID]), int(self._numbers[G_QUEUE_OFFSET])
            listed, chosen = entries[: end * ENTRY_BYTES], mask[:end]
            asked = screen(
                self._screen_form, self._window, listed, chosen, next_entry, queue, self._needles, self._condition
            )
            self.screened += end - next_entry
            self._portion = SCREENED_LARGE if asked * _FEW <= end - next_entry else SCREENED_PORTION
        return entries[: self._screened * ENTRY_BYTES], mask[: self._screened]

    def _begin(self, first: int, entries: NDArray[np.uint8], mask: NDArray[np.uint8]) -> None:
        """The bytes of the log that are needed first, and a buffer for what can be expected."""
        last = min(self._total, first + self._count_max) - 1
        if len(mask):
            candidates = np.flatnonzero(mask[first:])[: self._count_max]
            if not len(candidates):
                return
            first, last = first + int(candidates[0]), first + int(candidates[-1])
        # What lies between the two is a bound, and mostly close: memory that is never touched costs little.
        end = sum(self._place_size(last))
        expected = min(end - self._place_size(first)[0], self._bytes_max)
        self.out = np.empty(max(0, expected), np.uint8)
        self._go_to(first, entries, mask)

    def _place_size(self, entry: int) -> tuple[int, int]:
        place, size, _ = ENTRY.unpack_from(self._entries.data, entry * ENTRY_BYTES)
        return place, size

    def stored(self) -> memoryview:
        """What was gathered. A buffer that is much larger would be kept in memory with it."""
        filled = int(self._numbers[G_BYTES])
        view: memoryview = self.out.data[:filled]
        return view if 2 * filled >= len(self.out) else memoryview(bytes(view))

    def _go_to(self, entry: int, entries: NDArray[np.uint8], mask: NDArray[np.uint8]) -> bool:
        """Get the bytes that hold the record of an entry; False if they are at hand already, or cannot be had."""
        if entry == self._window_for:
            return False
        ahead = self._count_max if self._condition is None else self._portion
        found = window_at(self._log, entries.data, mask.data, entry, ahead)
        if found is None:
            return False
        self._window, self._window_for, self._screened = found, entry, entry
        return True

    def _make_room(self, entry: int) -> None:
        """For the record of an entry: it is whole, and larger than what was expected, or than the limit."""
        filled = int(self._numbers[G_BYTES])
        larger = np.empty(filled + max(self._place_size(entry)[1], filled), np.uint8)
        larger[:filled] = self.out[:filled]
        self.out = larger

    def _take_back(self, wanted: MessageFilter, first: int) -> bool:
        """Drop the records, from number `first` on, that the filter does not want; False if it wants all."""
        numbers, out = self._numbers, self.out
        gathered = self._places[first : int(numbers[G_COUNT])].tolist()
        view = out.data
        kept, end = first, gathered[0][0]
        by_tag = wanted.matches_tag if isinstance(wanted, TagFilter) else None  # The kernel has found the tag already.
        for start, size, properties_at, properties_len, tag_at, tag_len in gathered:
            if by_tag is not None:
                is_wanted = tag_len >= 0 and by_tag(bytes(view[tag_at : tag_at + tag_len]))
            else:
                is_wanted = wanted.matches_record(bytes(view[properties_at : properties_at + properties_len]))
            if not is_wanted:
                numbers[G_BILLING] -= -(-size // BILLING_BYTES)
                continue
            if end < start:
                out[end : end + size] = out[start : start + size]
            kept, end = kept + 1, end + size
        has_dropped = kept < int(numbers[G_COUNT])
        numbers[G_COUNT], numbers[G_BYTES] = kept, end
        return has_dropped


def _as_raw(picked: Picked) -> RawRead:
    return RawRead(
        picked.status,
        memoryview(b"".join([record.data for record in picked.records])),
        len(picked.records),
        picked.next_offset,
        picked.min_offset,
        picked.max_offset,
        picked.suggest_slave,
        sum(-(-record.frame.size // BILLING_BYTES) for record in picked.records),
    )
