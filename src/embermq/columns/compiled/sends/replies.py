"""Answers to the sends of a run. Twin: plain.replies.write_replies."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import BYTES, I64, READ_BYTES, READ_I64, READ_ROWS, inlined, kernel
from embermq.columns.compiled.parts.json_text import put_hex, put_number
from embermq.columns.compiled.parts.memory import cell, copy_bytes, put_i32
from embermq.columns.plain import replies as p
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.replies import ReplyTemplate
from embermq.columns.plain.send_headers import HEAD_BYTES
from embermq.columns.rows import Rows


@inlined
def _put_part(out: Any, to: int, text: Any, cuts: Any, number: int) -> int:
    start = cuts[np.uint64(number)]
    length = cuts[np.uint64(number + 1)] - start
    copy_bytes(out, to, text, start, length)
    return to + length  # type: ignore[no-any-return]


@inlined
def _put_sized_number(out: Any, to: int, number: int) -> int:
    """Decimal digits behind their length."""
    end = put_number(out, to + 4, number)
    put_i32(out, to, end - to - 4)
    return end


@inlined
def _put_json(
    out: Any, to: int, text: Any, cuts: Any, opaque: int, physical: int, queue_id: int, queue_offset: int
) -> int:
    to = put_hex(out, _put_part(out, to, text, cuts, 0), physical, p.ID_DIGITS)
    to = put_number(out, _put_part(out, to, text, cuts, 1), queue_id)
    to = put_number(out, _put_part(out, to, text, cuts, 2), queue_offset)
    to = put_number(out, _put_part(out, to, text, cuts, 3), opaque)
    return _put_part(out, to, text, cuts, 4)


@inlined
def _put_binary(
    out: Any, to: int, text: Any, cuts: Any, opaque: int, physical: int, queue_id: int, queue_offset: int
) -> int:
    start = to
    to = put_hex(out, _put_part(out, to, text, cuts, p.JSON_PARTS), physical, p.ID_DIGITS)
    to = _put_sized_number(out, _put_part(out, to, text, cuts, p.JSON_PARTS + 1), queue_id)
    to = _put_sized_number(out, _put_part(out, to, text, cuts, p.JSON_PARTS + 2), queue_offset)
    put_i32(out, start + p.BINARY_OPAQUE_AT, opaque)
    put_i32(out, start + p.BINARY_FIELDS_AT, to - start - p.BINARY_FIELDS_AT - 4)
    return to


_TYPES = f"{READ_ROWS}, {READ_ROWS}, {READ_BYTES}, {READ_I64}, {BYTES}, {I64}"


@kernel(f"int64({_TYPES})", nogil=False)
def _write_replies(frames: Any, placed: Any, text: Any, cuts: Any, out: Any, ends: Any) -> int:
    to = 0
    for i in range(len(frames)):
        opaque, queue_id = cell(frames, i, s.F_OPAQUE), cell(frames, i, s.F_QUEUE_ID)
        physical, queue_offset = cell(placed, i, r.P_PHYSICAL), cell(placed, i, r.P_QUEUE_OFFSET)
        start, kind = to + HEAD_BYTES, 0
        if cell(frames, i, s.F_IS_BINARY) == 0:
            end = _put_json(out, start, text, cuts, opaque, physical, queue_id, queue_offset)
        else:
            end = _put_binary(out, start, text, cuts, opaque, physical, queue_id, queue_offset)
            kind = p.BINARY_KIND
        put_i32(out, to, 4 + end - start)
        put_i32(out, to + 4, (end - start) | kind)
        ends[np.uint64(cell(frames, i, s.F_PIECE))] = end
        to = end
    return to


def write_replies(
    frames: Rows, placed: Rows, template: ReplyTemplate, out: NDArray[np.uint8], ends: NDArray[np.int64]
) -> int:
    """Write the responses to all frames to `out`, which has room for them; where they end.

    Twin: plain.replies.write_replies."""
    assert len(frames) == len(placed), (len(frames), len(placed))
    assert len(out) >= len(frames) * template.reply_bytes_max, len(out)
    assert len(frames) == 0 or 0 <= frames[:, s.F_PIECE].min() <= frames[:, s.F_PIECE].max() < len(ends), ends
    end: int = _write_replies(frames, placed, template.text, template.cuts, out, ends)
    return end
