"""Hashes of a text of every record. Twin: format.text_hashes.text_hashes.

The twin takes eight bytes of all texts in a step, and so passes over the rows many times; this is one pass.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import I64, READ_BYTES, READ_ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, u8_at, word_at
from embermq.columns.plain.text_hashes import LAST, ODD, SEED, Hashes
from embermq.columns.rows import Rows

_SEED, _ODD, _LAST = (int(number.view(np.int64)) for number in (SEED, ODD, LAST))
_UPPER_35, _UPPER_32 = (1 << 35) - 1, (1 << 32) - 1


@inlined
def _stirred(value: int) -> int:
    value *= _ODD
    return value ^ ((value >> 29) & _UPPER_35)


@inlined
def _hash_of(data: Any, at: int, length: int) -> int:
    found, end = (length + 1) * _SEED, at + length
    while at + 8 <= end:
        found = _stirred(found ^ word_at(data, at))
        at += 8
    if at < end:
        rest = 0
        while end > at:
            end -= 1
            rest = rest << 8 | u8_at(data, end)
        found = _stirred(found ^ rest)
    found ^= (found >> 32) & _UPPER_32
    found *= _LAST
    return found ^ ((found >> 29) & _UPPER_35)


@kernel(f"int64({READ_BYTES}, {READ_ROWS}, int64, int64, {I64})")
def _hash_column(data: Any, rows: Any, at_column: int, length_column: int, out: Any) -> int:
    for row in range(len(rows)):
        at, length = cell(rows, row, at_column), cell(rows, row, length_column)
        if length < 0:
            out[np.uint64(row)] = 0
            continue
        if at < 0 or length > len(data) or at > len(data) - length:
            return row
        out[np.uint64(row)] = _hash_of(data, at, length)
    return len(rows)


def hash_column(data: NDArray[np.uint8], rows: Rows, at_column: int, length_column: int) -> Hashes:
    """The hash of each row's text; NO_TEXT where it has none."""
    out = np.empty(len(rows), np.int64)
    done: int = _hash_column(data, rows, at_column, length_column, out)
    assert done == len(rows), f"row {done}: its text lies outside the data"
    return out.view(np.uint64)
