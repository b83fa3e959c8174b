"""Settings that all clients have: names, account, TLS, time-outs. Pure.

`ClientOptions` are the keyword arguments of producers and consumers, `ClientSettings` the same with their defaults.
"""

import os
import socket
import ssl
import time
from collections.abc import Sequence
from itertools import count
from typing import TypedDict

import msgspec

from embermq.client.credentials import Credentials

_instances = count()


class ClientOptions(TypedDict, total=False):
    """Keyword arguments that every client takes."""

    namespace: str
    credentials: Credentials | None
    tls: ssl.SSLContext | bool
    client_id: str
    call_timeout: float
    route_seconds: float
    heartbeat_seconds: float


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client names itself, and how long it waits."""

    name_servers: tuple[str, ...]
    namespace: str = ""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | bool = False  # True: the system's certificate authorities
    client_id: str = ""
    call_timeout: float = 3.0  # seconds, for everything that has no time-out of its own
    route_seconds: float = 30.0  # between refreshes of the routes
    heartbeat_seconds: float = 30.0

    def tls_context(self) -> ssl.SSLContext | None:
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return ssl.create_default_context() if self.tls else None


def new_client_id(name_servers: Sequence[str]) -> str:
    """`ip@pid#number`: unique among all clients of a cluster, as rebalancing needs it."""
    return f"{own_address(name_servers[0])}@{os.getpid()}#{time.time_ns()}{next(_instances)}"


def own_address(peer: str) -> str:
    """The address from which this machine would reach a peer; loopback if that cannot be said. Nothing is sent."""
    host, _, port = peer.rpartition(":")
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
