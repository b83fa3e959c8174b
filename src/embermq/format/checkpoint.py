"""The checkpoint page: store times up to which each family of files was known to be on disk.

at  size  field
 0     8  commit log             store time of a message, milliseconds
 8     8  consume queues
16     8  index files
24  4072  zero                   (5.x keeps two more numbers here)
"""

import struct

import msgspec

CHECKPOINT_BYTES = 4096
_TIMES = struct.Struct(">qqq")


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """Three store times in milliseconds; 0 when nothing is known."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole page."""
    times = _TIMES.pack(checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms)
    return times.ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(page: bytes) -> Checkpoint | None:
    """The page's times, or None when the page is too short to hold them."""
    return Checkpoint(*_TIMES.unpack_from(page)) if len(page) >= _TIMES.size else None
