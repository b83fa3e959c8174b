"""Arrays that end where memory ends: a kernel that reads or writes one byte too far dies at once."""

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """Room for `size` bytes with a forbidden page behind it."""

    def __init__(self, size: int) -> None:
        self.room = -(-size // PAGE) * PAGE
        self._map = mmap.mmap(-1, self.room + PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        forbidden = ctypes.c_void_p(start + self.room)
        assert _libc.mprotect(forbidden, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def hold(self, data: Any) -> NDArray[np.uint8]:
        """A writable copy of `data` whose last byte is the last one allowed. Valid until the next hold."""
        raw = np.frombuffer(bytes(data), np.uint8)
        array = self._bytes[self.room - len(raw) : self.room]
        array[:] = raw
        return array
