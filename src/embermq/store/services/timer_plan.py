"""What falls due next in the timer topic: the nearest entries of its queue, in order of their time.

The queue of the timer topic is in order of arrival, and the tag code of an entry is its time. There is no timer and no
object for a parked message: a pass over the entries that wait (20 bytes each, by numpy) picks those that are due within
ten minutes, at most 262,144 of them, the nearest ones; when these are delivered, or the ten minutes are over, the next
pass is made. So what is kept in memory has a bound, however many messages wait, and nothing of it need survive a
restart.

    horizon    every waiting entry that is due before it is in the plan

An entry that arrives meanwhile joins the plan if it is due before the horizon. A tag code below 2^31 is no time but the
hash of a tag: RocketMQ 4.9, which knows nothing of timers, has made this entry; then the record is asked.

Not thread-safe: the thread that delivers.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from embermq.store.services.done_bits import DoneBits

WINDOW_MS = 600_000
PLAN_ENTRIES_MAX = 262_144
# Arrivals are kept apart from the plan until there are so many: each joining copies the plan.
ARRIVED_MAX = 4096
TAG_HASH_MAX = 2**31

PLANNED = np.dtype([("due_ms", "<i8"), ("queue_offset", "<i8"), ("physical_offset", "<i8"), ("size", "<i4")])
Planned = npt.NDArray[np.void]
_NOTHING: Planned = np.zeros(0, PLANNED)


class TimerPlan:
    """The nearest entries of one queue."""

    def __init__(
        self, entries: Callable[[int], npt.NDArray[np.void]], due_ms_of: Callable[[int, int], int], done: DoneBits
    ) -> None:
        """`entries` gives some ENTRY_DTYPE from an offset on, `due_ms_of` the time in the record of an entry."""
        self._entries, self._due_ms_of, self._done = entries, due_ms_of, done
        self._near, self._arrived = _NOTHING, _NOTHING
        self.horizon_ms = 0  # Nothing is planned yet.
        self.read_to = 0  # Entries below this are in the plan, or due later, or done with.

    def make(self, end: int, now_ms: int) -> None:
        """Plan anew, over all entries that wait below `end`."""
        self.horizon_ms = now_ms + WINDOW_MS
        found = [_NOTHING]
        count = 0
        for chunk in self._waiting(self._done.low, end):
            found.append(chunk[chunk["due_ms"] < self.horizon_ms])
            count += len(found[-1])
            if count > 2 * PLAN_ENTRIES_MAX:
                found = [self._nearest(np.concatenate(found))]
                count = len(found[0])
        self._near, self._arrived = _in_order(self._nearest(np.concatenate(found))), _NOTHING

    def add_arrivals(self, end: int) -> None:
        """Take up the entries from `read_to` to `end`."""
        found = [chunk[chunk["due_ms"] < self.horizon_ms] for chunk in self._waiting(self.read_to, end)]
        if any(map(len, found)):
            self._arrived = _in_order(np.concatenate([self._arrived, *found]))
            if len(self._arrived) > ARRIVED_MAX:
                self._near, self._arrived = _in_order(np.concatenate([self._near, self._arrived])), _NOTHING

    def due(self, now_ms: int, most: int) -> Planned:
        """Up to `most` entries that are due, the earliest first. They stay in the plan."""
        near, arrived = (
            part[: min(most, int(np.searchsorted(part["due_ms"], now_ms, "right")))]
            for part in (self._near, self._arrived)
        )
        if not len(arrived):
            return near
        return _in_order(np.concatenate([near, arrived]))[:most]

    def drop(self, offsets: npt.NDArray[np.int64]) -> None:
        """These, from the front of the plan, are done with."""
        self._near, self._arrived = (_without(part, offsets) for part in (self._near, self._arrived))

    def first_due_ms(self) -> int | None:
        """When the next one is due; None if nothing is planned."""
        return min((int(part["due_ms"][0]) for part in (self._near, self._arrived) if len(part)), default=None)

    def __len__(self) -> int:
        return len(self._near) + len(self._arrived)

    def _nearest(self, found: Planned) -> Planned:
        """No more than fit the plan; the horizon moves closer if some do not."""
        if len(found) <= PLAN_ENTRIES_MAX:
            return found
        nearest = found[np.argpartition(found["due_ms"], PLAN_ENTRIES_MAX - 1)[:PLAN_ENTRIES_MAX]]
        self.horizon_ms = int(nearest["due_ms"].max())
        return nearest

    def _waiting(self, start: int, end: int) -> Iterator[Planned]:
        """The entries of start..end that are not done with, in portions."""
        at = start
        while at < end:
            entries = self._entries(at)[: end - at]
            if not len(entries):
                break
            yield self._planned(at, entries)
            at += len(entries)
        self.read_to = at

    def _planned(self, at: int, entries: npt.NDArray[np.void]) -> Planned:
        waiting = np.flatnonzero(self._done.waiting(at, len(entries)))
        chosen = entries[waiting]
        made = np.zeros(len(chosen), PLANNED)
        made["due_ms"], made["queue_offset"] = chosen["tag_code"], waiting + at
        made["physical_offset"], made["size"] = chosen["physical_offset"], chosen["size"]
        for one in np.flatnonzero(made["due_ms"] < TAG_HASH_MAX).tolist():
            made["due_ms"][one] = self._due_ms_of(int(made["physical_offset"][one]), int(made["size"][one]))
        return made


def _in_order(planned: Planned) -> Planned:
    return planned[np.lexsort((planned["queue_offset"], planned["due_ms"]))]


def _without(planned: Planned, offsets: npt.NDArray[np.int64]) -> Planned:
    """Without these, which are among the first ones; the rest is not copied."""
    front = planned[: len(offsets)]
    kept = front[~np.isin(front["queue_offset"], offsets)]
    if not len(kept):
        return planned[len(front) :]
    return np.concatenate([kept, planned[len(front) :]]) if len(kept) < len(front) else planned
