"""The first offset of a queue that was stored at a time or later.

A broker's own search (SEARCH_OFFSET_BY_TIMESTAMP) answers the nearest message, before or after, the last one for a
later time, and any of several that were stored in the same millisecond. Its answer is where the search begins: in steps
that double, then by halves. Store times are taken to ascend with offsets, as everywhere. No I/O here: times are asked
for through a callable.
"""

from collections.abc import Awaitable, Callable

# The store time of the message at an offset, or of the next one there is; None if there is none.
TimeOf = Callable[[int], Awaitable[int | None]]


async def first_at(time_ms: int, low: int, high: int, hint: int, time_of: TimeOf) -> int:
    """The first offset in [low, high) stored at or after `time_ms`; `high` if there is none."""
    if low >= high:
        return low

    async def is_late(offset: int) -> bool:
        found = await time_of(offset)
        return found is None or found >= time_ms

    # Everything before `early` was stored before the time; what is at `late`, at or after it.
    early, late, step = low, high, 1
    at = min(max(hint, low), high - 1)
    if await is_late(at):
        late = at
        while late > low:
            at = max(low, late - step)
            if not await is_late(at):
                early = at + 1
                break
            late, step = at, step * 2
    else:
        early = at + 1
        while early < high:
            at = min(high - 1, early + step - 1)
            if await is_late(at):
                late = at
                break
            early, step = at + 1, step * 2
    while early < late:
        middle = (early + late) // 2
        if await is_late(middle):
            late = middle
        else:
            early = middle + 1
    return late
