"""Checking the links of an index file. Twin: format.links.check_links."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import READ_BYTES, kernel
from embermq.columns.compiled.parts.memory import i32_at
from embermq.columns.plain.links import NONE, LinkCheck
from embermq.columns.rows import as_bytes_array
from embermq.format.index import ENTRY_BYTES


@kernel(f"UniTuple(int64, 3)({READ_BYTES}, int64, int32[::1])")
def _check_links(entries: Any, first_number: int, newest: Any) -> tuple[int, int, int]:
    wrong, first, expected = 0, NONE, NONE
    slots = len(newest)
    for k in range(len(entries) // ENTRY_BYTES):
        at = k * ENTRY_BYTES
        key_hash = i32_at(entries, at)
        should_be = NONE
        slot = np.uint64(0)
        if key_hash >= 0:
            slot = np.uint64(key_hash % slots)
            should_be = newest[slot]
            newest[slot] = first_number + k
        if key_hash < 0 or i32_at(entries, at + 16) != should_be:
            if wrong == 0:
                first, expected = first_number + k, should_be
            wrong += 1
    return wrong, first, expected


def check_links(entries: Any, first_number: int, newest: NDArray[np.int32]) -> LinkCheck:
    """Compare the links of consecutive entries, the first of which has number `first_number`, with what they
    should be. `newest` has, for each slot, the number of its newest entry so far (0: none), and is brought up to
    date. An entry with an impossible hash is wrong.

    Twin: format.links.check_links. Some 100 times as fast: 180 M entries/s with half a million slots, 90 M/s with
    the 5 M slots of a file of default size."""
    assert len(newest) > 0
    return LinkCheck(*_check_links(as_bytes_array(entries), first_number, newest))
