"""Which entries of a queue are done with: one bit each, from the first that is not.

    low = 1003    bits from 1000: 1 1 1 0 1 1 0 ...     1003 and 1006 are waiting; so is everything after the bits

As text, for timerOffset.json: the offset of the first bit, and the bits packed by zlib, in base64. A million entries,
all waiting or all done but for a few, take some hundred bytes there, and 125,000 bytes in memory.

Not thread-safe; `low` may be read by any thread.
"""

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embermq.files import Files
from embermq.store.tables import TIMER_OFFSETS, load_entries

Offsets = npt.NDArray[np.int64]
_GROW_BYTES = 4096


class DoneBits:
    """The done entries of one queue."""

    def __init__(self, low: int = 0) -> None:
        self._base = low // 8 * 8  # The offset of the first bit.
        self._bits = np.zeros(0, np.uint8)  # Bit k of byte n stands for offset base + 8 n + k.
        self.low = self._base  # The first offset that is not done; everything below it is.
        self.raise_to(low)

    def mark(self, offsets: Offsets) -> None:
        """These are done with now."""
        fresh = offsets[offsets >= self.low]
        if not len(fresh):
            return
        places = fresh - self._base
        self._reserve(int(places.max()) // 8 + 1)
        np.bitwise_or.at(self._bits, places // 8, np.left_shift(1, places % 8).astype(np.uint8))
        self._advance()

    def raise_to(self, offset: int) -> None:
        """Everything below `offset` is done with: it was deleted, say."""
        if offset <= self.low:
            return
        self._reserve((offset - self._base) // 8 + 1)
        whole, rest = divmod(offset - self._base, 8)
        self._bits[:whole] = 0xFF
        self._bits[whole] |= (1 << rest) - 1
        self._advance()

    def waiting(self, start: int, count: int) -> npt.NDArray[np.bool_]:
        """Which of `count` offsets from `start` on are not done with."""
        offsets = np.arange(start, start + count, dtype=np.int64)
        found: npt.NDArray[np.bool_] = offsets >= self.low
        inside = found & (offsets < self._base + 8 * len(self._bits))
        places = offsets[inside] - self._base
        found[inside] = self._bits[places // 8] >> (places % 8).astype(np.uint8) & 1 == 0
        return found

    def cut_to(self, end: int) -> None:
        """The queue ends at `end`: what was after it is not done with."""
        places = end - self._base
        if places < 0:
            self._base, self._bits = end // 8 * 8, np.zeros(0, np.uint8)
            self.low = self._base
            self.raise_to(end)
            return
        if places < 8 * len(self._bits):
            self._bits = self._bits[: places // 8 + 1].copy()
            self._bits[-1] &= (1 << places % 8) - 1
        self.low = min(self.low, end)

    def _reserve(self, size: int) -> None:
        if size > len(self._bits):
            grown = np.zeros(max(size, 2 * len(self._bits), _GROW_BYTES), np.uint8)
            grown[: len(self._bits)] = self._bits
            self._bits = grown

    def _advance(self) -> None:
        """Move `low` past what is done, and let go of the bits below it."""
        at = (self.low - self._base) // 8
        open_bytes = np.flatnonzero(self._bits[at:] != 0xFF)
        at = at + int(open_bytes[0]) if len(open_bytes) else len(self._bits)
        low = self._base + 8 * at
        if at < len(self._bits):
            byte = int(self._bits[at])
            low += (~byte & byte + 1).bit_length() - 1  # The lowest bit that is not set.
        self.low = low
        if at >= _GROW_BYTES:
            self._bits, self._base = self._bits[at:].copy(), self._base + 8 * at

    # -- as text ---------------------------------------------------------------------------------------------

    def encode(self) -> tuple[int, str]:
        """The offset of the first bit, and the bits."""
        used = np.flatnonzero(self._bits)
        last = int(used[-1]) + 1 if len(used) else 0
        return self._base, base64.b64encode(zlib.compress(self._bits[:last].tobytes(), 1)).decode()

    def as_entries(self) -> dict[str, int | str]:
        """The table of timerOffset.json."""
        base, bits = self.encode()
        return {"base": base, "done": bits}

    @classmethod
    def of_entries(cls, entries: Mapping[str, int | str]) -> "DoneBits":
        """ValueError for a table that cannot be of this kind."""
        return cls.decode(int(entries["base"]), str(entries["done"])) if entries else cls()

    @classmethod
    def decode(cls, base: int, text: str) -> "DoneBits":
        """ValueError for what `encode` cannot have given."""
        if base < 0 or base % 8:
            raise ValueError(f"the first bit stands for {base}, not for a multiple of 8")
        try:
            bits = zlib.decompress(base64.b64decode(text, validate=True))
        except zlib.error as problem:
            raise ValueError(f"the bits cannot be unpacked: {problem}") from None
        made = cls(base)
        made._bits = np.frombuffer(bits, np.uint8).copy()
        made._advance()
        return made


def load_done_bits(files: Files, root: Path) -> DoneBits:
    """What timerOffset.json says; of a file that cannot be understood, that nothing is done with."""
    try:
        return DoneBits.of_entries(load_entries(files, root, TIMER_OFFSETS))
    except ValueError:
        return DoneBits()
