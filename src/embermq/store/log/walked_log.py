"""The log walked once, to find records by topic, queue id and queue offset where a queue file does not know them.

The log is cut into blocks of a few MiB. A block is walked when it is first asked for: the heads of its records give,
for each queue, the queue offsets and where they lie. The blocks used last are kept, so that all damaged entries of all
queues that lead to one part of the log cost one walk over it. Places are hints: the caller reads the record there, with
its checksum. Any thread.
"""

import struct
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from typing import NamedTuple

from embermq.format.frame import FIXED_BYTES, HOST_V6_EXTRA, MESSAGE_MAGIC, MESSAGE_MAGIC_V2
from embermq.model.flags import BORN_HOST_V6, STORE_HOST_V6, has_queue_entry
from embermq.store.log.commit_log import CommitLog

BLOCK_BYTES = 4 << 20
RECORDS_KEPT_MAX = 2_000_000  # 16 bytes each.
_WINDOW_BYTES = 1 << 20
_HEAD = struct.Struct(">ii4xi4xqqi")  # size, magic, queue id, queue offset, physical offset, sysFlag
_BODY_LENGTH_AT = 84  # with two IPv4 hosts
_LENGTH = struct.Struct(">i")
_STEM = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)[:3]
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)

QueueName = tuple[bytes, int]  # Topic and queue id.


class _Offsets(NamedTuple):
    """The records of one queue in a block, by queue offset."""

    offsets: "array[int]"
    places: "array[int]"


class _Block(NamedTuple):
    queues: dict[QueueName, _Offsets]
    records: int
    end: int  # Where the walk ended: less than the block's end if the log did.


class WalkedLog:
    """Blocks of one log, walked when they are asked for."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._records = 0
        self.walked_bytes = 0

    def next_of(self, topic: str, queue_id: int, offsets: range, start: int, end: int) -> tuple[int, int] | None:
        """Queue offset and place of the record of a queue that has the lowest of some queue offsets, in the first block
        of [start, end) that has any."""
        queue = topic.encode(), queue_id
        while start < end:
            block_start = start - start % BLOCK_BYTES
            found = _lowest(self._block(block_start).queues.get(queue), offsets, start, end)
            if found is not None:
                return found
            start = block_start + BLOCK_BYTES
        return None

    def _block(self, start: int) -> _Block:
        with self._lock:
            block = self._blocks.get(start)
            log_end = self._log.readable_offset
            if block is not None and block.end < min(start + BLOCK_BYTES, log_end):
                self._forget(start)  # The log has grown since.
                block = None
            if block is None:
                block = self._walk(start, min(start + BLOCK_BYTES, log_end))
                self._blocks[start] = block
                self._records += block.records
            self._blocks.move_to_end(start)
            while self._records > RECORDS_KEPT_MAX and len(self._blocks) > 1:
                self._forget(next(iter(self._blocks)))
            return block

    def _forget(self, start: int) -> None:
        self._records -= self._blocks.pop(start).records

    def _walk(self, start: int, end: int) -> _Block:
        """The records that begin in [start, end) and have a place in a queue."""
        queues: dict[QueueName, _Offsets] = {}
        at = max(start, self._log.min_offset)
        while at < end:
            segment = self._log.segments.find(at)
            if segment is None:
                at = max(self._log.next_segment_start(at), at + 1)
                continue
            file_end = min(segment.end, self._log.readable_offset)
            while at < min(end, file_end):
                at += self._step(at, min(end, file_end), file_end, queues)
        return _Block(
            {name: _in_order(offsets) for name, offsets in queues.items()},
            sum(len(offsets.offsets) for offsets in queues.values()),
            end,
        )

    def _step(self, at: int, end: int, file_end: int, queues: dict[QueueName, _Offsets]) -> int:
        """Take what one window holds; how far that leads, which is never nowhere."""
        data = self._read(at, min(_WINDOW_BYTES, file_end - at))
        if len(data) < FIXED_BYTES:
            return file_end - at
        passed = _take_heads(data, at, end - at, queues)
        if passed == 0:  # A record that is longer than the window, or a wrong length.
            size = _LENGTH.unpack_from(data)[0]
            if size <= file_end - at:
                data = self._read(at, size)
                passed = _take_heads(data, at, 1, queues)
        return passed or _next_head(data, at, 1)

    def _read(self, at: int, count: int) -> bytes:
        self.walked_bytes += count
        return self._log.read(at, count)


def _take_heads(data: bytes, base: int, stop: int, queues: dict[QueueName, _Offsets]) -> int:
    """Note the records that begin in data[:stop]; where they end, or where one begins that the data cuts."""
    at, last_head = 0, len(data) - FIXED_BYTES
    while at < stop:
        if at > last_head:
            return at
        size, magic, queue_id, queue_offset, place, sys_flag = _HEAD.unpack_from(data, at)
        if magic not in _MAGICS or place != base + at or size < FIXED_BYTES:
            at = _next_head(data, base, at + 1)
            continue
        if at + size > len(data):
            return at
        topic = _topic(data, at, magic, sys_flag)
        if topic and has_queue_entry(sys_flag):
            offsets = queues.get((topic, queue_id))
            if offsets is None:
                offsets = queues[topic, queue_id] = _Offsets(array("q"), array("q"))
            offsets.offsets.append(queue_offset)
            offsets.places.append(place)
        at += size
    return at


def _next_head(data: bytes, base: int, at: int) -> int:
    """Where something begins, at or behind a position, that could be a record of this place; if nothing does, where a
    head may begin that the data cuts."""
    found = data.find(_STEM, at + 4)
    while found >= 0:
        at = found - 4
        if at + _HEAD.size > len(data) or _HEAD.unpack_from(data, at)[4] == base + at:
            return at
        found = data.find(_STEM, found + 1)
    return max(at, len(data) - 6)


def _topic(data: bytes, at: int, magic: int, sys_flag: int) -> bytes:
    """The topic of a record that is all there; nothing if its lengths cannot be."""
    v6_hosts = bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6)
    length_at = at + _BODY_LENGTH_AT + HOST_V6_EXTRA * v6_hosts
    if length_at + 4 > len(data):
        return b""
    length_at += 4 + max(_LENGTH.unpack_from(data, length_at)[0], 0)
    wide = 2 if magic == MESSAGE_MAGIC_V2 else 1
    return data[length_at + wide : length_at + wide + int.from_bytes(data[length_at : length_at + wide], "big")]


def _lowest(known: _Offsets | None, offsets: range, start: int, end: int) -> tuple[int, int] | None:
    if known is None:
        return None
    for number in range(bisect_left(known.offsets, offsets.start), len(known.offsets)):
        if known.offsets[number] >= offsets.stop:
            return None
        if start <= known.places[number] < end:
            return known.offsets[number], known.places[number]
    return None


def _in_order(offsets: _Offsets) -> _Offsets:
    """By queue offset: damage may have changed one, and a deleted topic begins again at 0."""
    if all(before < after for before, after in zip(offsets.offsets, offsets.offsets[1:], strict=False)):
        return offsets
    pairs = sorted(zip(offsets.offsets, offsets.places, strict=True))
    return _Offsets(array("q", (pair[0] for pair in pairs)), array("q", (pair[1] for pair in pairs)))
