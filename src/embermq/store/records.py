"""Reading single records back as messages, and only as messages that check out.

The reference hands out whatever bytes a queue entry points at. Here a record is given to nobody unless it
is whole: magic, lengths, place, and the body's sum. Any thread.
"""

from embermq.format.frame import Frame, decode
from embermq.model.hosts import pack_host
from embermq.model.message import StoredMessage
from embermq.store.commit_log import CommitLog

_SIZE_BYTES = 4


class Records:
    """Messages of one log by physical offset."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def at(self, physical_offset: int, size: int | None = None) -> StoredMessage | None:
        """The message that starts at `physical_offset` (and is `size` bytes long, if given), or None."""
        frame = self.frame_at(physical_offset, size)
        return None if frame is None else as_message(frame)

    def frame_at(self, physical_offset: int, size: int | None = None) -> Frame | None:
        if size is None:
            head = self._log.read(physical_offset, _SIZE_BYTES)
            if len(head) < _SIZE_BYTES:
                return None
            size = int.from_bytes(head, "big", signed=True)
        if size <= 0:
            return None
        data = self._log.read(physical_offset, size)
        if len(data) < size:
            return None
        found = decode(data, 0, size, physical_offset=physical_offset, check_crc=True)
        return found if isinstance(found, Frame) and found.size == size else None

    def store_time(self, physical_offset: int, size: int) -> int:
        """When the record was stored; -1 if it cannot be read."""
        if physical_offset < self._log.min_offset:
            return -1
        frame = self.frame_at(physical_offset, size)
        return -1 if frame is None else frame.store_timestamp


def as_message(frame: Frame) -> StoredMessage:
    """A decoded record as the value users get; bodies are copied out of any buffer."""
    return StoredMessage(
        frame.physical_offset, frame.size, frame.body_crc, frame.queue_id, frame.flag, frame.queue_offset,
        frame.sys_flag, frame.born_timestamp, pack_host(frame.born_host), frame.store_timestamp,
        pack_host(frame.store_host), frame.reconsume_times, frame.prepared_transaction_offset,
        bytes(frame.body), frame.topic, frame.properties,
    )  # fmt: skip
