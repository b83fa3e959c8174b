"""Lists of texts and of bytes as columns, read in place. Twins: plain.values.join_texts, plain.values.join_bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import BYTES, I64, READ_I64, inlined, kernel
from embermq.columns.compiled.parts.memory import copy_bytes
from embermq.columns.compiled.parts.objects import (
    K_BYTES,
    K_NONE,
    K_TEXT,
    MEMORY,
    bytes_of,
    find_layout,
    is_a,
    known_at,
    list_item,
    text_of,
)
from embermq.columns.plain import values as plain
from embermq.columns.plain.pairs import ValueColumn

_NOT_JOINED = -1
_NO_VALUE = -1
_LAYOUT = find_layout()


@inlined
def _value(values: int, known: Any, kind: int, i: int) -> Any:
    """Address and length of a value; without one, length -1; address -1: it is something else."""
    value = list_item(values, i)
    if kind == K_TEXT and value == known_at(known, K_NONE):
        return 0, _NO_VALUE
    if not is_a(value, known, kind):
        return _NOT_JOINED, 0
    start, length = text_of(value) if kind == K_TEXT else bytes_of(value)
    return (start, length) if start != 0 else (_NOT_JOINED, length)


@kernel(f"int64(int64, {READ_I64}, int64, {I64})", nogil=False)
def _measure(values: int, known: Any, kind: int, lengths: Any) -> int:
    total = 0
    for i in range(len(lengths)):
        start, length = _value(values, known, kind, i)
        if start == _NOT_JOINED:
            return _NOT_JOINED
        lengths[np.uint64(i)] = length
        total += max(length, 0)
    return total


@kernel(f"int64(int64, {READ_I64}, int64, {READ_I64}, {BYTES})", nogil=False)
def _copy(values: int, known: Any, kind: int, lengths: Any, out: Any) -> int:
    """Another thread may have changed the list since it was measured: nothing is taken for granted."""
    used = 0
    for i in range(len(lengths)):
        start, length = _value(values, known, kind, i)
        if start == _NOT_JOINED or length != lengths[np.uint64(i)] or length > len(out) - used:
            return _NOT_JOINED
        if length > 0:
            copy_bytes(out, used, MEMORY, start, length)
            used += length
    return used


def join_bytes(values: Sequence[Any]) -> ValueColumn | None:
    """A column of bytes. Twin: plain.values.join_bytes."""
    if _LAYOUT is None or values.__class__ is not list:
        return plain.join_bytes(values)
    return _joined(values, K_BYTES)


def join_texts(values: Sequence[Any]) -> ValueColumn | None:
    """A column of texts in UTF-8; a row without one (None) has length -1. Twin: plain.values.join_texts."""
    if _LAYOUT is None or values.__class__ is not list:
        return plain.join_texts(values)
    return _joined(values, K_TEXT)


def _joined(values: Sequence[Any], kind: int) -> ValueColumn | None:
    lengths = np.empty(len(values), np.int64)
    total = _measure(id(values), _LAYOUT, kind, lengths)
    if total < 0:
        return None
    out = np.empty(total, np.uint8)
    if _copy(id(values), _LAYOUT, kind, lengths, out) != total:
        return None
    return plain.column_of(out, lengths)
