"""Which hashes are there more than once, among millions. Twin: format.repeats.repeated.

Sorting them all takes five times as long. They are brought together by their upper bits first, so that few are looked
at in one go, and each of those is put into a table that stays in the processor's first caches.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import I64, READ_I64, READ_ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell
from embermq.columns.plain.repeats import Pairs
from embermq.columns.plain.text_hashes import Hashes

_TOGETHER = 1024  # about as many in one go
_BITS_MAX = 16
# 2**64 / golden ratio, odd, as a signed number: a product with it has every bit of a hash in its upper bits.
_SPREADING = 0x9E37_79B9_7F4A_7C15 - (1 << 64)


@inlined
def _group(value: int, bits: int) -> int:
    return (value >> (64 - bits)) & ((1 << bits) - 1)


@kernel(f"void({READ_ROWS}, int64, {I64})")
def _count(pairs: Any, bits: int, counts: Any) -> None:
    for i in range(len(pairs)):
        counts[np.uint64(_group(cell(pairs, i, 0), bits))] += 1


@kernel(f"void({READ_ROWS}, int64, {I64}, {I64})")
def _spread(pairs: Any, bits: int, places: Any, out: Any) -> None:
    for i in range(len(pairs)):
        value = cell(pairs, i, 0)
        group = np.uint64(_group(value, bits))
        out[np.uint64(places[group])] = value
        places[group] += 1


@kernel(f"int64({READ_I64}, {READ_I64}, {I64}, {I64}, int64)")
def _find(values: Any, ends: Any, table: Any, found: Any, bits: int) -> int:
    """`table` has 2**bits places, twice as many as the largest group has values; 0 stands for a free one, so the hash 0
    is counted apart. Hashes that differ in a few bits only, wherever those are, get places of their own."""
    mask, count, start = len(table) - 1, 0, 0
    for group in range(len(ends)):
        end, zeros = ends[np.uint64(group)], 0
        if end - start < 2:  # Where the upper bits are all alike, nearly every group is empty: no table to clear.
            start = end
            continue
        for place in range(len(table)):
            table[np.uint64(place)] = 0
        for i in range(start, end):
            value = values[np.uint64(i)]
            place = _group(value * _SPREADING, bits)
            while table[np.uint64(place)] != 0 and table[np.uint64(place)] != value:
                place = (place + 1) & mask
            zeros += value == 0
            if table[np.uint64(place)] == value and (value != 0 or zeros > 1):
                found[np.uint64(count)] = value
                count += 1
            table[np.uint64(place)] = value
        start = end
    return count


def repeated(blocks: Sequence[Pairs]) -> Hashes:
    """Those hashes of all blocks that are there twice or more, in order, each once."""
    total = sum(map(len, blocks))
    bits = min(max((total // _TOGETHER).bit_length(), 1), _BITS_MAX)
    counts = np.zeros(1 << bits, np.int64)
    for block in blocks:
        _count(block, bits, counts)
    ends = np.cumsum(counts)
    places, values = ends - counts, np.empty(total, np.int64)
    for block in blocks:
        _spread(block, bits, places, values)
    table_bits = int(counts.max()).bit_length() + 1
    table = np.empty(1 << table_bits, np.int64)
    found = np.empty(total, np.int64)
    count: int = _find(values, ends, table, found, table_bits)
    return np.unique(found[:count].view(np.uint64))
