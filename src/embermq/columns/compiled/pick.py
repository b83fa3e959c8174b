"""Records at known places, as rows, in one call. Twin: format.pick.

Every place and length is compared with the bytes at hand before it is used.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import I64, READ_BYTES, READ_I64, ROWS, kernel
from embermq.columns.compiled.scan import _record
from embermq.columns.plain.pick import ANY_SIZE
from embermq.columns.rows import N_COLUMNS, Rows, as_bytes_array

_POSITION = 2


@kernel(f"int64({READ_BYTES}, int64, {READ_I64}, {READ_I64}, {ROWS}, {READ_I64}, int64, {I64})")
def _pick(data: Any, base: int, places: Any, sizes: Any, rows: Any, delay_ms: Any, checks: int, found: Any) -> int:
    count = 0
    limit = len(data)
    for i in range(len(places)):
        place, size = places[np.uint64(i)], sizes[np.uint64(i)]
        if place < base or place - base >= limit:
            continue
        at = place - base
        end = limit
        if size != ANY_SIZE:
            if size <= 0 or size > limit - at:
                continue
            end = at + size
        taken = _record(data, base, at, end, rows, count, delay_ms, checks)
        if taken > 0 and (size == ANY_SIZE or taken == size):
            found[np.uint64(count)] = i
            count += 1
    return count


def pick(
    data: Any,
    base: int,
    places: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rows_out: Rows,
    delay_ms: NDArray[np.int64],
    check_crc: bool,
) -> NDArray[np.int64]:
    """One row for each place (a physical offset) at which a record of the given size begins, in the order of
    `places`. Returns the numbers of the places that have one. `base` is the physical offset of data[0].

    Twin: format.pick.pick."""
    raw = as_bytes_array(data)
    assert len(places) == len(sizes) <= len(rows_out), (len(places), len(sizes), len(rows_out))
    assert rows_out.shape[1] == N_COLUMNS, rows_out.shape
    found = np.empty(len(places), np.int64)
    count = _pick(raw, base, places, sizes, rows_out, delay_ms, bool(check_crc) | _POSITION, found)
    return found[:count]
