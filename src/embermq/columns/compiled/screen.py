"""Screening records by their properties, one entry after another. Twin: plain.screen.

Every place and length is compared with the bytes at hand before it is used.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import BYTES, READ_BYTES, READ_I64, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import i16_at, i32_at, i64_at, set_cell, u8_at
from embermq.columns.plain.screen import N_SPAN_COLUMNS, Needles
from embermq.columns.rows import Rows, as_bytes_array
from embermq.format.frame import BODY_AT, FIXED_BYTES, MESSAGE_MAGIC
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.model.flags import HOST_V6_MASK, PREPARED

_WORD = 8


@inlined
def _properties_at(data: Any, base: int, place: int, size: int, queue_id: int, queue_offset: int) -> int:
    """Where the properties of a record begin, if it is the one an entry of this queue stands for; -1 if it is not."""
    at = place - base
    if (
        i32_at(data, at) != size
        or i32_at(data, at + 4) != MESSAGE_MAGIC
        or i32_at(data, at + 12) != queue_id
        or i64_at(data, at + 20) != queue_offset
        or i64_at(data, at + 28) != place
        or i32_at(data, at + 36) & (HOST_V6_MASK | PREPARED) != 0
    ):
        return -1
    body_len = i32_at(data, at + 84)
    if body_len < 0 or body_len > size - FIXED_BYTES:
        return -1
    topic_at = at + BODY_AT + body_len
    length_at = topic_at + 1 + u8_at(data, topic_at)
    if length_at + 2 > at + size:
        return -1
    properties_len = i16_at(data, length_at) & 0xFFFF
    return length_at + 2 if length_at + 2 + properties_len == at + size else -1


@inlined
def _contains(data: Any, start: int, end: int, text: Any, text_at: int, text_end: int) -> bool:
    length = text_end - text_at
    if length >= _WORD:
        word = i64_at(text, text_at)
        at = start
        while at <= end - length:
            if i64_at(data, at) == word:
                k = _WORD
                while k < length and u8_at(data, at + k) == u8_at(text, text_at + k):
                    k += 1
                if k == length:
                    return True
            at += 1
        return False
    letter = u8_at(text, text_at)
    at = start
    while at <= end - length:
        if u8_at(data, at) == letter:
            k = 1
            while k < length and u8_at(data, at + k) == u8_at(text, text_at + k):
                k += 1
            if k == length:
                return True
        at += 1
    return False


@kernel(f"int64({READ_BYTES}, int64, {READ_BYTES}, {BYTES}, int64, int64, int64, {READ_BYTES}, {READ_I64}, {ROWS})")
def _screen(
    data: Any,
    base: int,
    entries: Any,
    mask: Any,
    first: int,
    queue_id: int,
    queue_offset: int,
    texts: Any,
    ends: Any,
    spans: Any,
) -> int:
    count = 0
    total = min(len(entries) // ENTRY_BYTES, len(mask))
    for i in range(first, total):
        if u8_at(mask, i) == 0:
            continue
        place = i64_at(entries, i * ENTRY_BYTES)
        size = i32_at(entries, i * ENTRY_BYTES + 8)
        if size < FIXED_BYTES or place < base or place - base > len(data) - size:
            continue
        start = _properties_at(data, base, place, size, queue_id, queue_offset + i)
        if start < 0:
            continue
        end = place - base + size
        is_left = len(ends) == 0
        text_at = 0
        for k in range(len(ends)):
            if not is_left:
                is_left = _contains(data, start, end, texts, text_at, ends[np.uint64(k)])
            text_at = ends[np.uint64(k)]
        if is_left:
            set_cell(spans, count, 0, i)
            set_cell(spans, count, 1, start)
            set_cell(spans, count, 2, end)
            count += 1
        else:
            mask[np.uint64(i)] = 0
    return count


def screen(
    data: NDArray[np.uint8],
    base: int,
    entries: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    first: int,
    queue: tuple[int, int],
    needles: Needles,
    spans: Rows,
) -> int:
    """Twin: plain.screen.screen."""
    assert spans.shape[1] == N_SPAN_COLUMNS, spans.shape
    assert len(spans) >= len(mask) - first, (len(spans), len(mask), first)
    assert first >= 0, first
    texts, ends = needles
    raw, listed = as_bytes_array(data), as_bytes_array(entries)
    return int(_screen(raw, base, listed, mask, first, queue[0], queue[1], texts, ends, spans))
