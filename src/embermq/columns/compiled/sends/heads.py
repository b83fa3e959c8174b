"""Whole frames of sends and of ends of transactions, for use inside kernels: their size, their header, and whether it
has everything it must have.
"""

from typing import Any

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.memory import cell, i32_at, set_cell, u8_at
from embermq.columns.compiled.sends.header import (
    H_CODE,
    H_FIELDS,
    H_FLAG,
    N_HEADER_COLUMNS,
    read_binary,
    read_json,
)
from embermq.columns.plain import send_headers as s

_HEADER_BYTES_MASK = 0xFF_FFFF
_BAD = -1


@inlined
def frame_size(data: Any, at: int, end: int, frame_bytes_max: int) -> int:
    """The size of the whole frame at data[at], -1 if there is none."""
    if end - at < s.HEAD_BYTES:
        return _BAD
    size = 4 + i32_at(data, at)
    if size < s.HEAD_BYTES or size > frame_bytes_max or size > end - at:
        return _BAD
    if i32_at(data, at + 4) & _HEADER_BYTES_MASK > size - s.HEAD_BYTES:
        return _BAD
    return size  # type: ignore[no-any-return]


@inlined
def read_header(data: Any, at: int, head: Any) -> int:
    """Read the header of the whole frame at data[at]; where its body begins, -1 if it is not familiar."""
    for column in range(N_HEADER_COLUMNS):
        set_cell(head, 0, column, 0)
    kind, header_at = u8_at(data, at + 4), at + s.HEAD_BYTES
    body_at = header_at + (i32_at(data, at + 4) & _HEADER_BYTES_MASK)
    if kind == 0:
        is_read = read_json(data, header_at, body_at, head)
    else:
        is_read = kind == 1 and read_binary(data, header_at, body_at, head)
    return body_at if is_read else _BAD


@inlined
def is_familiar_end(head: Any) -> bool:
    """Is this an end of a transaction, with everything it must have?"""
    flag = cell(head, 0, H_FLAG)
    return (  # type: ignore[no-any-return]
        cell(head, 0, H_CODE) == s.END
        and (flag == 0 or flag == s.ONEWAY)
        and cell(head, 0, H_FIELDS) & s.END_REQUIRED == s.END_REQUIRED
    )


@inlined
def is_familiar(head: Any) -> bool:
    """Is everything there that a send must have, and an answer wanted?"""
    return cell(head, 0, H_FLAG) == 0 and cell(head, 0, H_FIELDS) & s.REQUIRED == s.REQUIRED  # type: ignore[no-any-return]
