"""Raw appends: the log of a replica, byte for byte that of its master.

    bytes from the master  ->  continue what is here?  ->  records and blanks, sound?  ->  into the log  ->  dispatch

Bytes must begin exactly where the bytes before them ended (`accepted`); if they do not, or are no sound records,
RawBytesInvalid is raised and nothing of them is stored. An empty log begins wherever the first bytes do, at the
beginning of a log file.

The beginning of a record waits in memory until the rest has come: the log itself always ends with a whole record, so
reads, dispatch, recovery and a promotion to master see nothing unusual. A crash, or `drop_unfinished`, loses that
beginning and nothing else; the master is then asked for bytes from the end of the log (`MessageStore.max_physical`),
which is also what a replica may acknowledge (under SYNC_FLUSH its `flushed_offset`).

Any thread; the put lock makes them take turns.
"""

from embermq.errors import AppendRefused, RawBytesInvalid
from embermq.files import Segment
from embermq.format.frame import BLANK_BYTES
from embermq.settings import KernelUse
from embermq.store.append.writer import Writer
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.raw_bytes import RawPiece, RawSplitter


class RawAppends:
    """Stores bytes of a master's log while it is open."""

    def __init__(self, writer: Writer, log: CommitLog, use: KernelUse) -> None:
        self._writer, self._log = writer, log
        self._splitter = RawSplitter(log.segments.segment_bytes, use)
        self._unfinished = bytearray()  # The beginning of a record that follows the end of the log. Put lock.
        self._first = 0  # Where the unfinished record of an empty log begins. Put lock.
        self._needed = BLANK_BYTES  # How many bytes of it there must be for another look. Put lock.
        self._is_open = False  # Put lock.

    def open(self) -> None:
        """Take bytes from now on: the store is a slave."""
        with self._writer.raw_turn():
            self._is_open = True

    def close(self) -> None:
        """Take no more, and forget an unfinished record: the log ends before it."""
        with self._writer.raw_turn():
            self._is_open = False
            self._forget()

    @property
    def accepted(self) -> int:
        """Where the next bytes must begin: the end of the log, and of the record whose rest is still to come."""
        return self._end() + len(self._unfinished)

    def drop_unfinished(self) -> int:
        """Forget a record whose rest will not come, after a lost connection; where the log ends."""
        with self._writer.raw_turn():
            self._forget()
            return self._end()

    def append(self, physical_offset: int, data: bytes) -> int:
        """Store `data`, the master's bytes from `physical_offset` on; where the next ones must begin."""
        with self._writer.raw_turn():
            if not self._is_open:
                raise AppendRefused("bytes of a master's log are taken by a SLAVE that was opened with dispatch=live")
            self._check_place(physical_offset)
            if not data:
                return self.accepted
            if self._log.segments.last is None and not self._unfinished:
                self._first = physical_offset
            if len(self._unfinished) + len(data) < self._needed:
                self._unfinished += data
                return self.accepted
            self._store(bytes(self._unfinished) + bytes(data))
            return self.accepted

    def _check_place(self, physical_offset: int) -> None:
        if self._log.segments.last is None and not self._unfinished:
            segment_bytes = self._log.segments.segment_bytes
            if physical_offset < 0 or physical_offset % segment_bytes:
                raise RawBytesInvalid(
                    physical_offset,
                    f"an empty log begins with a log file, at a multiple of {segment_bytes:,}",
                )
        elif physical_offset != self.accepted:
            raise RawBytesInvalid(physical_offset, f"the log here goes on at {self.accepted}")

    def _store(self, data: bytes) -> None:
        """Store what is whole and keep the rest. If a log file cannot be made, what was stored before stays."""
        base = self._end()
        split = self._splitter.split(data, base)
        self._forget()
        for piece in split.pieces:
            self._put(data, piece, base + piece.start)
        self._unfinished += data[split.rest :]
        self._needed = split.needed
        self._first = base + split.rest

    def _put(self, data: bytes, piece: RawPiece, physical_offset: int) -> None:
        """The first 8 bytes are stored last, as with every record (writer.py)."""
        segment = self._log.active
        if segment is None or segment.is_full:
            segment = self._log.roll(physical_offset)
        at = physical_offset - segment.start
        assert at == segment.wrote
        content = memoryview(data)[piece.start : piece.end]
        if not piece.is_blank or any(content[BLANK_BYTES:]):
            segment.target[at + BLANK_BYTES : at + len(content)] = content[BLANK_BYTES:]
        segment.target[at : at + BLANK_BYTES] = content[:BLANK_BYTES]
        self._advance(segment, at + len(content), piece.store_timestamp)

    def _advance(self, segment: Segment, end: int, store_timestamp: int) -> None:
        if store_timestamp:
            segment.store_timestamp = store_timestamp
        segment.wrote = end

    def _end(self) -> int:
        return self._log.wrote_offset if self._log.segments.last is not None else self._first

    def _forget(self) -> None:
        self._unfinished.clear()
        self._needed = BLANK_BYTES
