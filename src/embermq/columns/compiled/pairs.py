"""Property strings column by column. Twin: plain.pairs.put_pairs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.encode import is_inside
from embermq.columns.compiled.parts.compiling import BYTES, I64, READ_BYTES, READ_I64, kernel
from embermq.columns.compiled.parts.memory import copy_bytes, put_i8
from embermq.columns.compiled.parts.property_text import has_separator
from embermq.columns.plain.pairs import ALL_PUT, ValueColumn
from embermq.columns.rows import as_bytes_array

_NAME_END, _PAIR_END = 1, 2


@kernel(f"int64({BYTES}, {READ_I64}, {I64}, {READ_BYTES}, {READ_BYTES}, {READ_I64}, {READ_I64})", nogil=False)
def _put_pairs(out: Any, row_starts: Any, ends: Any, name: Any, data: Any, starts: Any, lengths: Any) -> int:
    for i in range(len(lengths)):
        row = np.uint64(i)
        length, start, to = lengths[row], starts[row], ends[row]
        if length < 0:
            continue
        if length == 0 or not is_inside(start, length, len(data), len(data)) or has_separator(data, start, length):
            return i
        is_later = to != row_starts[row]
        if not is_inside(to, is_later + len(name) + 1 + length, len(out), len(out)):
            return i
        if is_later:
            put_i8(out, to, _PAIR_END)
            to += 1
        copy_bytes(out, to, name, 0, len(name))
        to += len(name)
        put_i8(out, to, _NAME_END)
        copy_bytes(out, to + 1, data, start, length)
        ends[row] = to + 1 + length
    return ALL_PUT


def put_pairs(
    out: NDArray[np.uint8], row_starts: NDArray[np.int64], ends: NDArray[np.int64], name: bytes, column: ValueColumn
) -> int:
    """Write a property of each row to out[ends[i]:], and move ends[i] behind it; the first bad row, or ALL_PUT.

    Twin: plain.pairs.put_pairs. Some 10 ns a row."""
    assert len(row_starts) == len(ends) == len(column.starts) == len(column.lengths)
    return _put_pairs(
        out,
        row_starts,
        ends,
        np.frombuffer(name, np.uint8),
        as_bytes_array(column.data),
        np.ascontiguousarray(column.starts),
        np.ascontiguousarray(column.lengths),
    )
