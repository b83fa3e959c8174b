"""A waker: wakes a thread that waits for sockets. A pair of sockets, because that works on every system.

`ring` from any thread, and cheap when it was rung already; the rest from the one thread that waits.
"""

import socket


class Waker:
    """Readable (`fileno`) from a ring until it is cleared."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)
        self._outside.setblocking(False)
        self._is_rung = False

    def ring(self) -> None:
        if self._is_rung:
            return
        self._is_rung = True
        try:
            self._outside.send(b"!")
        except OSError:
            pass  # Full: it is rung. Closed: nothing waits any more.

    def clear(self) -> None:
        """Forget rings so far; look for what they meant after this call."""
        try:
            while self._inside.recv(64):
                pass
        except OSError:
            pass
        self._is_rung = False

    def fileno(self) -> int:
        return self._inside.fileno()

    def close(self) -> None:
        self._is_rung = True
        self._inside.close()
        self._outside.close()
