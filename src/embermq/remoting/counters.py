"""What a server counts: one object for all its connections, changed on the loop's thread only."""

import msgspec


class RemotingCounters(msgspec.Struct):
    """Since the start, unless a comment says now."""

    connections: int = 0  # now
    connections_accepted: int = 0
    connections_refused: int = 0  # over the limit
    closed_invalid: int = 0  # frames that cannot be read
    closed_idle: int = 0
    closed_stalled: int = 0  # did not read what was written to them
    requests: int = 0
    in_flight: int = 0  # now
    busy: int = 0  # answered with SYSTEM_BUSY
    unsupported: int = 0
    unread_bytes: int = 0  # now, of frames that are not whole yet
    received_bytes: int = 0
    sent_bytes: int = 0
