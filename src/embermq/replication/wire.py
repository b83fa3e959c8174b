"""The frames of RocketMQ's replication connection. Pure.

    report     offset i64                               slave to master
    transfer   offset i64, length i32, bytes            master to slave; length 0: a heartbeat

Big-endian, no checksum, no version, no name of the peer. A transfer never holds bytes of two log files, and may begin
and end inside a record. A slave that has nothing reports 0, and gets the log from the beginning of its last file.
"""

import struct
from collections.abc import Iterator

from embermq.errors import ReplicaMisbehaved

REPORT = struct.Struct(">q")
TRANSFER = struct.Struct(">qi")
# RocketMQ's slave reads into 4 MiB; a master may be set to larger transfers than the usual 32 KiB.
TRANSFER_BYTES_MAX = 16 << 20

assert REPORT.size == 8
assert TRANSFER.size == 12


def encode_report(end: int) -> bytes:
    return REPORT.pack(end)


def encode_heartbeat(physical_offset: int) -> bytes:
    return TRANSFER.pack(physical_offset, 0)


def encode_transfers(physical_offset: int, data: bytes, transfer_bytes: int) -> Iterator[bytes | memoryview]:
    """`data`, the log from `physical_offset` on, as transfers of at most `transfer_bytes`: heads and bodies in turn."""
    view = memoryview(data)
    for start in range(0, len(data), transfer_bytes):
        body = view[start : start + transfer_bytes]
        yield TRANSFER.pack(physical_offset + start, len(body))
        yield body


class TransferReader:
    """Takes transfers out of a stream of bytes. Not thread-safe."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def receive(self, data: bytes | memoryview) -> list[tuple[int, bytes]]:
        """Log bytes by their offset, in the order they came; neighbours are joined, and heartbeats are empty.

        ReplicaMisbehaved for a length that no master sends."""
        self._unread += data
        found: list[tuple[int, list[memoryview]]] = []
        at, end_of_last = 0, -1
        with memoryview(self._unread) as unread:
            while len(unread) - at >= TRANSFER.size:
                offset, length = TRANSFER.unpack_from(unread, at)
                if offset < 0 or not 0 <= length <= TRANSFER_BYTES_MAX:
                    raise ReplicaMisbehaved(f"a transfer of {length:,} bytes at {offset}: this is no replication port")
                end = at + TRANSFER.size + length
                if end > len(unread):
                    break
                body = unread[at + TRANSFER.size : end]
                if length and offset == end_of_last:
                    found[-1][1].append(body)
                else:
                    found.append((offset, [body]))
                end_of_last = offset + length if length else -1
                at = end
            joined = [(offset, b"".join(bodies)) for offset, bodies in found]
            for _offset, bodies in found:
                for body in bodies:
                    body.release()
        del self._unread[:at]
        return joined
