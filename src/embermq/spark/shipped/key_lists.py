"""Which keys a shipped part has, and where: hashes in order, so that a look-up reads a block of some KiB and no more.

    8 bytes    magic
    i64        physical offset at which the part begins
    i64        how many entries
    u32        CRC-32 of the 24 bytes before and of the fence
    fence      for each block of 4,096 entries: u32 hash of its first one, u32 CRC-32 of the block
    entries    u32 place, from the beginning of the part on; u32 hash. Ascending by hash, then by place

Little-endian. The hash is that of index files: of topic and key, 31 bits, and different keys may share one. All that
is read is checked: a damaged list is a StoreError, never an answer with rows missing. Driver side; making one is
for the task that ships the part. Layout also in docs/format/shipped.md.
"""

import struct
import zlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.columns import RecordColumns, index_keys_for
from embermq.errors import StoreError
from embermq.format.java import index_key_hash
from embermq.spark.shipped.places import Place

MAGIC = b"EMBKEYS1"
BLOCK_ENTRIES = 4096
KEYS_MAX = 1 << 24  # of one part: 128 MiB of memory while it is shipped
HEAD = struct.Struct("<8sqqI")
ENTRY_BYTES = 8
FENCE_BYTES = 8
BLOCK_BYTES = BLOCK_ENTRIES * ENTRY_BYTES
FIRST_READ_BYTES = 4 << 10  # head and fence of two million keys
RECORD_BYTES_TYPICAL = 2 << 10  # For an estimate of how many records a part has.
_PLACE_END = 1 << 32

Packed = NDArray[np.uint64]


class KeyListMaker:
    """Takes a part as it is scanned."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._size = start, end - start
        self._parts: list[Packed] = []
        self._count = 0
        self._is_too_much = self._size >= _PLACE_END

    def take(self, batch: RecordColumns) -> None:
        if self._is_too_much:
            return
        keys = self._keys(batch)
        self._count += len(keys)
        if self._count > KEYS_MAX:
            self._is_too_much = True
            self._parts.clear()
            return
        hashes, places = keys[:, 0].astype(np.uint64), (keys[:, 1] - self._start).astype(np.uint64)
        self._parts.append((hashes << np.uint64(32)) | places)

    def _keys(self, batch: RecordColumns) -> NDArray[np.int64]:
        """(hash, place, time) of all keys."""
        return index_keys_for(self._size // RECORD_BYTES_TYPICAL)(batch)

    def to_bytes(self) -> bytes | None:
        """The list; None if there are more keys than one can hold. The same part gives the same bytes."""
        if self._is_too_much:
            return None
        entries: Packed = np.concatenate([np.zeros(0, np.uint64), *self._parts])
        entries.sort()
        data = entries.astype("<u8", copy=False).tobytes()
        firsts = (entries[::BLOCK_ENTRIES] >> np.uint64(32)).tolist()
        sums = [zlib.crc32(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
        fence = b"".join(struct.pack("<II", *one) for one in zip(firsts, sums, strict=True))
        bare = HEAD.pack(MAGIC, self._start, len(entries), 0)[:-4]
        return bare + struct.pack("<I", zlib.crc32(bare + fence)) + fence + data


class KeyList:
    """One list at its place. Any thread."""

    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._start = self._count = self._entries_at = 0
        self._fence: NDArray[np.uint32] | None = None  # a row for each block: hash, checksum
        self.bytes_read = 0

    def find(self, topic: str, key: str) -> list[int]:
        """Places of records that may have this key, ascending. StoreError if the list is gone or damaged."""
        try:
            with self._place.open(self._name) as file:
                return self._find(file, index_key_hash(topic, key))
        except FileNotFoundError:
            raise self._wrong("is gone") from None

    def _find(self, file: pa.NativeFile, key_hash: int) -> list[int]:
        if self._fence is None:
            self._load(file)
        assert self._fence is not None
        firsts = self._fence[:, 0]
        # The block before the first that begins with this hash may end with it.
        start = max(0, int(np.searchsorted(firsts, key_hash, "left")) - 1)
        end = int(np.searchsorted(firsts, key_hash, "right"))
        if start >= end:
            return []
        count = min(end * BLOCK_ENTRIES, self._count) - start * BLOCK_ENTRIES
        data = self._read(file, count * ENTRY_BYTES, self._entries_at + start * BLOCK_BYTES)
        for number, at in enumerate(range(0, len(data), BLOCK_BYTES), start):
            if zlib.crc32(data[at : at + BLOCK_BYTES]) != int(self._fence[number, 1]):
                raise self._wrong("is damaged")
        entries = np.frombuffer(data, "<u8")
        low, high = np.searchsorted(entries, np.array([key_hash << 32, (key_hash + 1) << 32], np.uint64))
        places = np.unique(entries[low:high] & np.uint64(_PLACE_END - 1))
        return [self._start + int(place) for place in places]

    def _load(self, file: pa.NativeFile) -> None:
        data = self._read_some(file, FIRST_READ_BYTES, 0)
        if len(data) < HEAD.size:
            raise self._wrong("is damaged")
        magic, self._start, self._count, crc = HEAD.unpack_from(data)
        fence_bytes = -(-self._count // BLOCK_ENTRIES) * FENCE_BYTES
        if magic != MAGIC or not 0 <= self._count <= KEYS_MAX:
            raise self._wrong("is damaged")
        if len(data) < HEAD.size + fence_bytes:
            data += self._read(file, HEAD.size + fence_bytes - len(data), len(data))
        fence = data[HEAD.size : HEAD.size + fence_bytes]
        if zlib.crc32(data[: HEAD.size - 4] + fence) != crc:
            raise self._wrong("is damaged")
        self._entries_at = HEAD.size + fence_bytes
        self._fence = np.frombuffer(fence, "<u4").reshape(-1, 2)

    def _read(self, file: pa.NativeFile, count: int, at: int) -> bytes:
        data = self._read_some(file, count, at)
        if len(data) < count:
            raise self._wrong("is damaged")
        return data

    def _read_some(self, file: pa.NativeFile, count: int, at: int) -> bytes:
        data = self._place.read_at(file, self._name, count, at)
        self.bytes_read += len(data)
        return data

    def _wrong(self, what: str) -> StoreError:
        return StoreError(f"{self._place.named(self._name)}: {what}; restore it, or ship the store anew")
