"""Host: an address and a port, and its 8- or 20-byte form inside a record.

IPv4: 4 address bytes + i32 port      IPv6: 16 address bytes + i32 port      (big-endian)
"""

import ipaddress
from functools import lru_cache
from typing import NamedTuple


class Host(NamedTuple):
    """A literal IPv4 or IPv6 address and a port."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@lru_cache(maxsize=4096, typed=True)
def pack_host(host: Host) -> bytes:
    """The host as it stands in a record: 8 bytes (IPv4) or 20 (IPv6)."""
    return ipaddress.ip_address(host.address).packed + host.port.to_bytes(4, "big", signed=True)


@lru_cache(maxsize=4096, typed=True)
def unpack_host(packed: bytes) -> Host:
    """The inverse of pack_host; the length tells the family."""
    assert len(packed) in (8, 20), len(packed)
    address = ipaddress.ip_address(packed[:-4])
    return Host(str(address), int.from_bytes(packed[-4:], "big", signed=True))


def parse_host(text: str) -> Host:
    """`1.2.3.4:10911` or `[::1]:10911`; ValueError for anything else."""
    address, _, port = text.rpartition(":")
    return Host(str(ipaddress.ip_address(address.strip("[]"))), int(port))
