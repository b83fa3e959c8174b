"""Addresses on a server's command line: read, resolved, and taken before anything else is done."""

import ipaddress
import socket
from collections.abc import Iterable

from embermq.cli.serving import NotStarted, parse_listen
from embermq.errors import RemotingError
from embermq.remoting import bind

LOOPBACK = "127.0.0.1"
FREE_PORT_TRIES = 20


def parse_name_servers(addresses: Iterable[str]) -> None:
    """NotStarted unless each is HOST:PORT."""
    for address in addresses:
        _host, port = parse_listen(address, "name server")
        if port == 0:
            raise NotStarted(f"name server {address!r}: port 0 cannot be connected to")


def resolve(option: str, host: str) -> str:
    """The address of a host name; an address is itself."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise NotStarted(f"{option} {host}: the name cannot be resolved: {reason}") from None
    return str(found[0][4][0])


def is_any(address: str) -> bool:
    """Whether to listen there means to listen on all addresses of the machine."""
    return ipaddress.ip_address(address).is_unspecified


def own_address(listen_address: str) -> str:
    """What to advertise: the address listened on, or, listening on all, the one this machine sends from."""
    if not is_any(listen_address):
        return listen_address
    v6 = ":" in listen_address
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: it only has the kernel choose a route.
            probe.connect(("2001:db8::1" if v6 else "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "::1" if v6 else LOOPBACK


def bind_both(host: str, port: int, *, fast: bool) -> tuple[socket.socket, socket.socket | None]:
    """The main port, and the one two below it; NotStarted if one cannot be had. Of free ports, two that fit."""
    failure = ""
    for _ in range(FREE_PORT_TRIES if port == 0 else 1):
        try:
            main = bind(host, port)
        except RemotingError as problem:
            raise NotStarted(f"{problem}; choose another address with --listen") from None
        taken = main.getsockname()[1]
        if not fast or taken <= 2:
            return main, None
        try:
            return main, bind(host, taken - 2)
        except RemotingError as problem:
            main.close()
            failure = f"{problem}; clients may use the port two below listenPort (--set emberFastPort=false: without)"
    raise NotStarted(failure)


def bind_replication(host: str, port: int | None, main_port: int, *, must: bool) -> socket.socket | None:
    """The replication port: `port`, or the one above the main port. NotStarted if it cannot be had and a setting relies
    on it (`must`, or a port that was asked for); otherwise None: no slave can follow this broker."""
    try:
        return bind(host, main_port + 1 if port is None else port)
    except (RemotingError, OverflowError) as problem:
        if must or port is not None:
            raise NotStarted(f"{problem}; choose another replication port with --set haListenPort=PORT") from None
    return None
