"""What a name server counts beside its connections; changed on the loop's thread only."""

import msgspec


class NamesrvCounters(msgspec.Struct):
    """Since the start."""

    registrations: int = 0
    registrations_refused: int = 0  # over a limit, or with a wrong checksum
    brokers_expired: int = 0
    brokers_disconnected: int = 0
