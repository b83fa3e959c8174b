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
    closed_crowded: int = 0  # had the oldest unfinished frame or unread answer where all of them were over a limit
    requests: int = 0
    in_flight: int = 0  # now
    busy: int = 0  # answered with SYSTEM_BUSY
    pushes_dropped: int = 0  # requests to peers that do not read, or that have too many to answer
    unsupported: int = 0
    bodies_refused: int = 0  # larger than the request may be
    unread_bytes: int = 0  # now, of frames that are not whole yet
    unsent_bytes: int = 0  # seen last, waiting for slow readers
    kept_bytes: int = 0  # now, of requests that wait for their answer
    received_bytes: int = 0
    sent_bytes: int = 0
