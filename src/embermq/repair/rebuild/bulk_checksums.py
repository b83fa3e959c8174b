"""Checksums by which queue entries and index keys are known again when they are read back from the disk.

A checksum is taken of the numbers that records give, before they become bytes, and once more of the numbers that the
bytes of the finished files give. Each counts by its place, so that what is missing, wrong, exchanged or there twice
makes another checksum; those of neighbouring stretches add up. 64 bits, wrapping; arrays wrap silently. Any process.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from embermq.format.java import wrap_i64

# Odd, so that no number is lost by the multiplication; apart from that, any will do.
_FIRST, _SECOND, _THIRD = 0x1E37_79B9_7F4A_7C15, 0x2545_F491_4F6C_DD1D, 0x1405_7B7E_F767_814F

Numbers = NDArray[np.int64]


def entry_terms(queue_offsets: Numbers, physicals: Numbers, sizes: Numbers, tag_codes: Numbers) -> Numbers:
    """What each entry adds to the checksum of its queue."""
    terms: Numbers = physicals * _FIRST
    terms += sizes * _SECOND
    terms += tag_codes * _THIRD
    terms *= 2 * queue_offsets + 1
    return terms


def key_checksum(keys: Numbers) -> int:
    """Of rows (key hash, physical offset, store time)."""
    terms: Numbers = keys[:, 0] * _FIRST
    terms += keys[:, 2] * _SECOND
    terms *= 2 * keys[:, 1] + 1
    return int(terms.sum())


def added(checksums: Iterable[int]) -> int:
    """The checksum of stretches that together are all."""
    return wrap_i64(sum(checksums))
