"""Property screen: passes over records whose properties do not meet a condition, before anything of them is copied.

Where the properties of the records of a portion of entries lie is found in one call (columns/plain/screen.py), which
also passes over all that contain none of the condition's needles; the condition is asked about those that are left. Any
thread.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from embermq.columns import N_SPAN_COLUMNS, Needles, Screen
from embermq.store.log.windows import Window


def screen(
    form: Screen,
    window: Window,
    entries: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    first: int,
    queue: tuple[int, int],
    needles: Needles,
    condition: Callable[[bytes], bool],
) -> int:
    """Clear in `mask` the entries, from number `first` on, whose record is in `window` and does not meet the condition.
    Returns how many records the condition was asked about.

    `queue`: its id, and the queue offset of entry 0.
    """
    data, base = window
    spans = np.empty((max(len(mask) - first, 0), N_SPAN_COLUMNS), np.int64)
    count = form(data, base, entries, mask, first, queue, needles, spans)
    view = data.data
    for number, start, end in spans[:count].tolist():
        if not condition(bytes(view[start:end])):
            mask[number] = 0
    return count
