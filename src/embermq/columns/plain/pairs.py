"""Property strings of many messages, made column by column.

A column is one property: its value in each row, as positions and lengths in one byte string; length -1: the row has no
such property. The room of each row is measured first (`measure_pairs`), then each column puts its piece behind those
of the columns before it:

    row_starts[i]: KEYS 0x01 o-17 0x02 TAGS 0x01 paid | next row
                   first column        second column

`put_pairs` is the plain twin of the kernel of this name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import as_view

Numbers = NDArray[np.int64]
_NAME_END, _PAIR_END = 1, 2
ALL_PUT = -1


class ValueColumn(NamedTuple):
    """Texts or bytes of all rows: value i is data[starts[i]:starts[i] + lengths[i]]; length -1: there is none."""

    data: Any
    starts: Numbers
    lengths: Numbers


def measure_pairs(columns: Sequence[tuple[bytes, ValueColumn]], rows: int) -> Numbers:
    """Bytes of the property string of each row, made of these names and values."""
    sizes = np.zeros(rows, np.int64)
    for name, column in columns:
        sizes += np.where(column.lengths >= 0, column.lengths + (len(name) + 2), 0)
    return np.maximum(sizes - 1, 0)  # No separator behind the last one.


def put_pairs(out: Any, row_starts: Numbers, ends: Numbers, name: bytes, column: ValueColumn) -> int:
    """Write a property of each row to out[ends[i]:], and move ends[i] behind it.

    Answers the first row whose value cannot be one (empty, with a separator in it, not in its bytes, or longer than
    there is room), or ALL_PUT."""
    view, data = as_view(out), as_view(column.data)
    for i, (start, length) in enumerate(zip(column.starts.tolist(), column.lengths.tolist(), strict=True)):
        if length < 0:
            continue
        if length == 0 or not 0 <= start <= len(data) - length:
            return i
        value, to = bytes(data[start : start + length]), int(ends[i])
        is_first = to == row_starts[i]
        piece = (b"" if is_first else b"\x02") + name + b"\x01" + value
        if _NAME_END in value or _PAIR_END in value or not 0 <= to <= len(view) - len(piece):
            return i
        view[to : to + len(piece)] = piece
        ends[i] = to + len(piece)
    return ALL_PUT
