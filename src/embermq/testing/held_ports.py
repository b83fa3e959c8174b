"""Free ports of the loopback interface that stay ours while nothing listens on them.

A socket that is bound and does not listen keeps a port from being given to another process; connections to it are
refused. On Linux another socket of ours may listen on the same port beside it. On other systems nothing is kept, and a
port may be lost between a kill and the restart.
"""

import socket
import sys

LOOPBACK = "127.0.0.1"
TRIES = 50


class HeldPorts:
    """A free port, and those at the given distances from it."""

    def __init__(self, *distances: int) -> None:
        self._sockets: list[socket.socket] = []
        for _ in range(TRIES):
            try:
                self.port = self._hold(0)
                for distance in distances:
                    self._hold(self.port + distance)
            except OSError:
                self.release()
                continue
            break
        else:
            raise OSError(f"no free port in {TRIES} tries that has free neighbours at {distances}")
        if not sys.platform.startswith("linux"):
            self.release()

    def _hold(self, port: int) -> int:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, port))
        return int(held.getsockname()[1])

    def release(self) -> None:
        """Give the ports back."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()
