"""Facts read from the bytes of properties, for use inside kernels."""

from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.memory import i32_at, i64_at, u8_at
from embermq.columns.compiled.queue_table import is_same

_DELAY, _WAIT, _MULTI = (
    np.frombuffer(name, np.uint8) for name in (b"DELAY\x01", b"WAIT\x01", b"INNER_MULTI_DISPATCH\x01")
)
_DELAY_NAME, _WAIT_NAME, _MULTI_NAME = _DELAY[:-1], _WAIT[:-1], _MULTI[:-1]
_AT_MS_NAME, _AFTER_MS_NAME, _AFTER_SEC_NAME = (
    np.frombuffer(name, np.uint8) for name in (b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
)
_TRUE_WORD = int.from_bytes(b"true", "big")
_NAME_END, _PAIR_END = b"\x01\x02"
_ONES, _TWOS = 0x0101_0101_0101_0101, 0x0202_0202_0202_0202
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)


@inlined
def has_separator(data: Any, at: int, length: int) -> bool:
    """Is there a byte 1 or 2? Eight at a time: x - 1 & ~x has a top bit where x is a zero byte."""
    end = at + length
    while at + 8 <= end:
        one, two = i64_at(data, at) ^ _ONES, i64_at(data, at) ^ _TWOS
        if (((one - _ONES) & ~one) | ((two - _ONES) & ~two)) & _TOP_BITS != 0:
            return True
        at += 8
    while at < end:
        if u8_at(data, at) == _NAME_END or u8_at(data, at) == _PAIR_END:
            return True
        at += 1
    return False


@inlined
def _ends_with(data: Any, start: int, end: int, name: Any) -> bool:
    return end - start >= len(name) and is_same(data, end - len(name), name, 0, len(name))


@inlined
def _is_true(data: Any, at: int, end: int) -> bool:
    """Is the value that begins at data[at] the text `true`?"""
    if end - at < 4 or i32_at(data, at) != _TRUE_WORD:
        return False
    return end - at == 4 or u8_at(data, at + 4) == _PAIR_END


@inlined
def _is_timer(data: Any, start: int, end: int) -> bool:
    """Does the name that ends at data[end] ask for a delivery time?"""
    return (
        _ends_with(data, start, end, _AT_MS_NAME)
        or _ends_with(data, start, end, _AFTER_MS_NAME)
        or _ends_with(data, start, end, _AFTER_SEC_NAME)
    )


@inlined
def is_meaningful(data: Any, name_at: int, name_len: int, value_at: int, value_len: int) -> bool:
    """The same as `has_meaning` of one property."""
    name_end = name_at + name_len
    return (
        _ends_with(data, name_at, name_end, _DELAY_NAME)
        or _ends_with(data, name_at, name_end, _MULTI_NAME)
        or _is_timer(data, name_at, name_end)
        or (
            _ends_with(data, name_at, name_end, _WAIT_NAME)
            and not (value_len == 4 and i32_at(data, value_at) == _TRUE_WORD)
        )
    )


@inlined
def has_meaning(data: Any, start: int, length: int) -> bool:
    """May one of these properties change what the store does? Looks at names only: before each byte 1.

    Twin: model.properties.has_meaning_to_store."""
    at, end = start, start + length
    while at < end:
        if at + 8 <= end:
            word = i64_at(data, at) ^ _ONES
            if (word - _ONES) & ~word & _TOP_BITS == 0:
                at += 8
                continue
        stop = min(at + 8, end)
        while at < stop:
            at += 1
            if u8_at(data, at - 1) == _NAME_END and (
                _ends_with(data, start, at, _DELAY)
                or (_ends_with(data, start, at, _WAIT) and not _is_true(data, at, end))
                or _ends_with(data, start, at, _MULTI)
                or _is_timer(data, start, at - 1)
            ):
                return True
    return False
