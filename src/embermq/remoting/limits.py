"""Limits of the network side: everything above the store is bounded. Each has a counter and an answer."""

import msgspec

from embermq.remoting.frames import MAX_FRAME_BYTES


class RemotingLimits(msgspec.Struct, frozen=True):
    """How much a server takes from its peers."""

    frame_bytes: int = MAX_FRAME_BYTES
    connections: int = 20_000
    in_flight_per_connection: int = 20_000  # requests without an answer yet; SYSTEM_BUSY beyond it
    in_flight: int = 200_000  # the same over all connections
    blocking_calls: int = 10_000  # calls that wait for a thread of the pool; SYSTEM_BUSY beyond it
    unread_bytes: int = 512 << 20  # of frames that are not whole yet, over all connections; the next one is closed
    write_pause_bytes: int = 4 << 20  # waiting for a slow reader: nothing more is read from it
    write_limit_bytes: int = 96 << 20  # the connection is closed
    idle_seconds: float = 120.0  # nothing read and nothing written
    frame_seconds: float = 120.0  # from the first to the last byte of one frame
    stalled_seconds: float = 60.0  # how long a peer may leave what was written to it unread
    shutdown_seconds: float = 10.0
