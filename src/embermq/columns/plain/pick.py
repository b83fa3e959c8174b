"""Records at known places, as rows: the plain twin of kernels.pick.

For readers that know from a queue or an index where records lie and do not want to pass what lies between them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import Rows, as_view

ANY_SIZE = -1  # the record itself says how long it is


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
    `places`. Returns the numbers of the places that have one. `base` is the physical offset of data[0]."""
    limit = len(as_view(data))
    assert len(places) == len(sizes) <= len(rows_out), (len(places), len(sizes), len(rows_out))
    found: list[int] = []
    for i, (place, size) in enumerate(zip(places.tolist(), sizes.tolist(), strict=True)):
        at = place - base
        end = limit if size == ANY_SIZE else at + size
        if not 0 <= at < end <= limit:
            continue
        row = rows_out[len(found) : len(found) + 1]
        count, stop, _ = scan_rows(data, base, at, end, row, delay_ms, check_crc, True)
        if count and size in (ANY_SIZE, stop - at):
            found.append(i)
    return np.array(found, np.int64)
