"""Checksums of a derived file, block by block: what makes a zeroed or overwritten page visible.

A derived file has no checksums of its own, and RocketMQ's format has no room for any. So the CRC-32 of each block of
64 KiB is kept beside it, for the part of the file that does not change any more. A block is compared with its
checksum before the first answer that uses it; later answers believe it. Checksums are only ever taken of bytes that
this process wrote, or that were compared with the log: taking them of whatever lies there would make damage permanent.

`Checksums` is a value; `CheckedBlocks` remembers what was compared, and is for any thread.
"""

import zlib
from collections.abc import Callable

import msgspec

BLOCK_BYTES = 64 << 10

Read = Callable[[int, int], bytes]  # count, position


class FileDamaged(Exception):
    """A derived file is not what it was when its checksum was taken."""

    def __init__(self, name: str, at: int) -> None:
        super().__init__(f"{name}: the bytes at {at} are not those that were written")
        self.name, self.at = name, at


class Checksums(msgspec.Struct, frozen=True, array_like=True):
    """CRC-32 of the blocks `first`, `first` + 1, ...; the last one ends at byte `end`, and may be shorter."""

    first: int
    end: int
    crcs: bytes  # four bytes each, big-endian

    def __post_init__(self) -> None:
        blocks = max(-(-self.end // BLOCK_BYTES) - self.first, 0)
        if self.first < 0 or self.end < 0 or len(self.crcs) != 4 * blocks:
            raise ValueError("these are no checksums of blocks")

    @property
    def end_block(self) -> int:
        return self.first + len(self.crcs) // 4

    def crc(self, block: int) -> int:
        at = 4 * (block - self.first)
        return int.from_bytes(self.crcs[at : at + 4], "big")

    def within(self, first: int, end: int) -> "Checksums":
        """Those of the blocks from `first` on that end at or before byte `end`."""
        first = max(first, self.first)
        # The last one covers what is there of its block, and stays if all of that does.
        end = self.end if end >= self.end else end // BLOCK_BYTES * BLOCK_BYTES
        if end <= first * BLOCK_BYTES:
            return NO_CHECKSUMS
        blocks = -(-end // BLOCK_BYTES) - first
        at = 4 * (first - self.first)
        return Checksums(first, end, self.crcs[at : at + 4 * blocks])


NO_CHECKSUMS = Checksums(0, 0, b"")


def take_checksums(read: Read, first: int, end: int) -> Checksums:
    """Checksums of the blocks from `first` on, up to byte `end`. ValueError if the file is shorter."""
    crcs = bytearray()
    for at in range(first * BLOCK_BYTES, end, BLOCK_BYTES):
        count = min(BLOCK_BYTES, end - at)
        data = read(count, at)
        if len(data) < count:
            raise ValueError("the file is shorter than it should be")
        crcs += zlib.crc32(data).to_bytes(4, "big")
    return Checksums(first, end, bytes(crcs)) if crcs else NO_CHECKSUMS


class CheckedBlocks:
    """The checksums of one file, and which blocks were compared with them. Any thread."""

    def __init__(self, name: str, read: Read, checksums: Checksums = NO_CHECKSUMS) -> None:
        self._name, self._read = name, read
        self.checksums = checksums
        self._compared: set[int] = set()  # Only grows, until the checksums are replaced.

    def confirm(self, start: int, end: int) -> None:
        """FileDamaged if bytes of [start, end) are in a block that is not as it was. Bytes without a checksum pass."""
        known = self.checksums
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        for block in range(max(first, known.first), min(last + 1, known.end_block)):
            if block not in self._compared:
                self._compare(known, block)

    def _compare(self, known: Checksums, block: int) -> None:
        at = block * BLOCK_BYTES
        data = self._read(min(BLOCK_BYTES, known.end - at), at)
        if zlib.crc32(data) != known.crc(block) and known is self.checksums:
            raise FileDamaged(self._name, at)
        self._compared.add(block)

    def replace(self, checksums: Checksums) -> None:
        """Other checksums, of the same bytes as far as both cover them."""
        if checksums != self.checksums:
            self.checksums = checksums
            self._compared = {block for block in self._compared if checksums.first <= block < checksums.end_block}

    def forget(self) -> None:
        """Compare all of them anew."""
        self._compared = set()
