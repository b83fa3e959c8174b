"""Answers to sends that were stored: one template for each kind of header, filled in for every frame of a run.

A template has the bytes of a response with gaps for what differs: message id, queue id, queue offset and opaque in this
order (JSON). In the binary form the opaque stands at a fixed place in front of the gaps, each number follows its own
length, and the length of all fields is filled in as well.

`write_replies` is the plain twin of the kernel of that name.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.send_headers import HEAD_BYTES
from embermq.columns.rows import Rows, as_view

JSON_PARTS, BINARY_PARTS = 5, 3
BINARY_OPAQUE_AT, BINARY_FIELDS_AT = 5, 17
BINARY_KIND = 1 << 24
_HEAD = struct.Struct(">iI")
ID_DIGITS = 16  # of the offset; those of the store host stand in the template
# Beyond the template: head, id, three numbers with their lengths.
REPLY_MORE_BYTES = HEAD_BYTES + ID_DIGITS + 3 * 20 + 8


class ReplyTemplate(NamedTuple):
    """The parts of a response between its gaps: those of a JSON header, then those of a binary one."""

    text: NDArray[np.uint8]
    cuts: NDArray[np.int64]  # where each part begins, and the end
    parts: tuple[bytes, ...]  # the same parts one by one

    @classmethod
    def of(cls, json: list[bytes], binary: list[bytes]) -> "ReplyTemplate":
        assert len(json) == JSON_PARTS, json
        assert len(binary) == BINARY_PARTS, binary
        parts = [*json, *binary]
        cuts = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
        return cls(np.frombuffer(b"".join(parts), np.uint8), cuts, tuple(parts))

    def frame(self, opaque: int, is_binary: int, physical: int, queue_id: int, queue_offset: int) -> bytes:
        """The response to one frame."""
        write = _binary_header if is_binary else _json_header
        header = write(self.parts, opaque, physical, queue_id, queue_offset)
        return _HEAD.pack(4 + len(header), len(header) | BINARY_KIND * is_binary) + header

    @property
    def reply_bytes_max(self) -> int:
        """No response is longer."""
        return len(self.text) + REPLY_MORE_BYTES


def write_replies(frames: Rows, placed: Rows, template: ReplyTemplate, out: Any, ends: NDArray[np.int64]) -> int:
    """Write the responses to all frames to `out`, which has room for them; where they end.

    ends[piece] becomes where the responses of that piece end; of a piece without frames, nothing."""
    room, to = as_view(out), 0
    for frame, place in zip(frames.tolist(), placed.tolist(), strict=True):
        whole = template.frame(
            frame[s.F_OPAQUE],
            frame[s.F_IS_BINARY],
            place[r.P_PHYSICAL],
            frame[s.F_QUEUE_ID],
            place[r.P_QUEUE_OFFSET],
        )
        room[to : to + len(whole)] = whole
        to += len(whole)
        ends[frame[s.F_PIECE]] = to
    return to


def _json_header(parts: tuple[bytes, ...], opaque: int, physical: int, queue_id: int, queue_offset: int) -> bytes:
    first, second, third, fourth, last = parts[:JSON_PARTS]
    gaps = (first, physical, second, queue_id, third, queue_offset, fourth, opaque, last)
    return b"%b%016X%b%d%b%d%b%d%b" % gaps


def _binary_header(parts: tuple[bytes, ...], opaque: int, physical: int, queue_id: int, queue_offset: int) -> bytes:
    first, second, third = parts[JSON_PARTS:]
    queue, offset = b"%d" % queue_id, b"%d" % queue_offset
    header = bytearray(first + b"%016X" % physical + second)
    header += struct.pack(">i", len(queue)) + queue + third + struct.pack(">i", len(offset)) + offset
    struct.pack_into(">i", header, BINARY_OPAQUE_AT, opaque)
    struct.pack_into(">i", header, BINARY_FIELDS_AT, len(header) - BINARY_FIELDS_AT - 4)
    return bytes(header)
