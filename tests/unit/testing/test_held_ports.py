"""Ports that stay ours."""

import socket
import sys

import pytest

from embermq.remoting import bind
from embermq.testing.held_ports import LOOPBACK, HeldPorts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ports are held on Linux only")


def test_a_held_port_refuses_and_can_be_listened_on_again_and_again() -> None:
    ports = HeldPorts(-2)
    try:
        for _ in range(3):
            for port in (ports.port, ports.port - 2):
                with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, port)):
                    pass
                with bind(LOOPBACK, port), socket.create_connection((LOOPBACK, port)):
                    pass
    finally:
        ports.release()


def test_nobody_else_gets_it() -> None:
    ports = HeldPorts()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, ports.port))
    ports.release()
    with socket.socket() as other:
        other.bind((LOOPBACK, ports.port))
