"""Limits of the network side: everything above the store is bounded. Each has a counter and an answer."""

import msgspec

from embermq.remoting.frames import MAX_FRAME_BYTES


class RemotingLimits(msgspec.Struct, frozen=True):
    """How much a server takes from its peers."""

    frame_bytes: int = MAX_FRAME_BYTES
    connections: int = 20_000
    in_flight_per_connection: int = 20_000  # requests without an answer yet; SYSTEM_BUSY beyond it
    in_flight: int = 200_000  # the same over all connections
    kept_bytes: int = 256 << 20  # of requests that wait for their answer, over all connections; SYSTEM_BUSY beyond it
    blocking_calls: int = 10_000  # calls that wait for a thread of the pool; SYSTEM_BUSY beyond it
    pending_calls: int = 4096  # calls to a peer that it has not answered; no more are sent to it
    unread_bytes: int = 256 << 20  # of frames that are not whole yet, over all connections; the oldest are closed
    unsent_bytes: int = 512 << 20  # waiting for slow readers, over all connections; those that wait longest are closed
    write_pause_bytes: int = 4 << 20  # waiting for a slow reader: none of its requests is read or served meanwhile
    write_limit_bytes: int = 96 << 20  # the connection is closed
    turn_seconds: float = 0.001  # for the requests of one connection; those of others come next
    idle_seconds: float = 120.0  # nothing read and nothing written
    frame_seconds: float = 120.0  # from the first to the last byte of one frame
    stalled_seconds: float = 60.0  # how long a peer may leave what was written to it unread
    shutdown_seconds: float = 10.0
