"""Gate: how many messages, and bytes of them, may be under way; who wants more waits. Any thread."""

import threading


class Gate:
    """One message always gets through, however large it is."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._count = self._bytes = self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def enter(self, size: int) -> None:
        """Wait until there is room."""
        with self._changed:
            while self._count and (self._count >= self._count_max or self._bytes + size > self._bytes_max):
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            self._count += 1
            self._bytes += size

    def leave(self, size: int) -> None:
        with self._changed:
            self._count -= 1
            self._bytes -= size
            if self._waiting:
                self._changed.notify()
