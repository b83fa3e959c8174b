"""Unique ids: the ids that producers give their messages (property UNIQ_KEY), in RocketMQ's form. Any thread.

    address (4 or 16 bytes), process id (2), number of this process (4), ms since the month began (4), counter (2)

As 32 or 56 hexadecimal digits. `mqadmin` reads the time of a message from its id, to look for it.
"""

import ipaddress
import os
import random
from datetime import datetime
from itertools import count

from embermq.client.settings import ClientSettings, own_address
from embermq.clock import Clock, SystemClock


class UniqueIds:
    """Ids that no other process makes."""

    def __init__(self, address: str, clock: Clock | None = None, pid: int | None = None) -> None:
        self._clock = clock or SystemClock()
        pid = os.getpid() if pid is None else pid
        packed = ipaddress.ip_address(address).packed + (pid & 0xFFFF).to_bytes(2, "big") + random.randbytes(4)
        self._prefix = packed.hex().upper()
        self._counter = count()  # `next` is one step to the interpreter: threads get different numbers
        self._month = self._month_of(self._clock.now_ms())

    def next(self) -> str:
        now_ms = self._clock.now_ms()
        begin, end = self._month
        if not begin <= now_ms < end:
            begin, _end = self._month = self._month_of(now_ms)
        return f"{self._prefix}{now_ms - begin & 0xFFFFFFFF:08X}{next(self._counter) & 0xFFFF:04X}"

    @staticmethod
    def _month_of(now_ms: int) -> tuple[int, int]:
        """When the month of a time began and ends, by the local calendar."""
        first = datetime.fromtimestamp(now_ms // 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        year, month = divmod(first.month, 12)
        following = first.replace(year=first.year + year, month=month + 1)
        return int(first.timestamp()) * 1000, int(following.timestamp()) * 1000


def new_ids(client: ClientSettings) -> UniqueIds:
    """Ids of a client, distinct from those of others by the address from which it reaches the cluster."""
    return UniqueIds(own_address(client.name_servers[0]))
