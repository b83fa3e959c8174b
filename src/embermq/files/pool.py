"""Private buffers for segments: the writer stores there, and commit copies to the file.

RocketMQ's transient store pool. A fixed number of buffers of one segment's size, locked in RAM if
the process may. An empty pool is an answer (None), not an error: the segment then writes through its
map. Any thread.
"""

import mmap
import threading

from embermq.files import memory


class TransientPool:
    """A bounded set of equal buffers."""

    def __init__(self, count: int, buffer_bytes: int) -> None:
        self.buffer_bytes = buffer_bytes
        self._lock = threading.Lock()
        self._free = [memoryview(mmap.mmap(-1, buffer_bytes)) for _ in range(count)]
        self.count = count
        self.locked_in_memory = self._lock_all()

    def _lock_all(self) -> bool:
        """All or nothing: a limit reached half way would only take RAM from others."""
        for number, buffer in enumerate(self._free):
            if not memory.lock_memory(buffer):
                for locked in self._free[:number]:
                    memory.unlock_memory(locked)
                return False
        return True

    @property
    def available(self) -> int:
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """A buffer with arbitrary content, or None when all are out."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, buffer: memoryview) -> None:
        with self._lock:
            assert len(buffer) == self.buffer_bytes
            assert len(self._free) < self.count
            self._free.append(buffer)
