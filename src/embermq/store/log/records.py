"""Reading single records back as messages, and only as messages that check out.

RocketMQ hands out whatever bytes a queue entry points at. Here a record is handed out only if it
is whole: magic, lengths, place, and the body's checksum. Any thread.
"""

from typing import NamedTuple

from embermq.format.frame import BLANK_BYTES, MESSAGE_MAGIC, MESSAGE_MAGIC_V2, Frame, decode, size_and_magic
from embermq.format.frame_message import as_message
from embermq.model.message import StoredMessage
from embermq.store.log.commit_log import CommitLog

# Up to this size a record is read at once. A damaged queue entry may claim any: then the record's own head is asked.
TRUSTED_BYTES = 64 << 10


class Record(NamedTuple):
    """A record that checks out, and the stored bytes it was read from."""

    frame: Frame
    data: bytes


class Records:
    """Messages of one log by physical offset."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def at(self, physical_offset: int, size: int | None = None) -> StoredMessage | None:
        """The message that starts at `physical_offset` (and is `size` bytes long, if given), or None."""
        frame = self.frame_at(physical_offset, size)
        return None if frame is None else as_message(frame)

    def frame_at(self, physical_offset: int, size: int | None = None) -> Frame | None:
        record = self.record_at(physical_offset, size)
        return None if record is None else record.frame

    def record_at(self, physical_offset: int, size: int | None = None) -> Record | None:
        if size is None or size > TRUSTED_BYTES:
            own = self._own_size(physical_offset)
            if own is None or (size is not None and own != size):
                return None
            size = own
        if size <= 0:
            return None
        data = self._log.read(physical_offset, size)
        if len(data) < size:
            return None
        found = decode(data, 0, size, physical_offset=physical_offset, check_crc=True)
        return Record(found, data) if isinstance(found, Frame) and found.size == size else None

    def _own_size(self, physical_offset: int) -> int | None:
        """What a record says of its size; None if none begins here. Noise may claim any size, so the magic must fit."""
        head = self._log.read(physical_offset, BLANK_BYTES)
        if len(head) < BLANK_BYTES:
            return None
        size, magic = size_and_magic(head, 0)
        return size if magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) else None

    def store_time(self, physical_offset: int, size: int) -> int:
        """When the record was stored; -1 if it cannot be read."""
        if physical_offset < self._log.min_offset:
            return -1
        frame = self.frame_at(physical_offset, size)
        return -1 if frame is None else frame.store_timestamp
