"""SendRun: frames of sends in what many connections gave, as the rows of a packed batch, and the answers to them.

    run.lay(pieces)          bytes of each connection, and its packed host; half messages with them or not
    run.read()               rows up to the first unfamiliar frame of each piece; PLACE: `wanted` is to be let in
    store the batch          run.rows, run.data, run.properties
    run.replies(placed)      responses, by piece

or, of a few:

    run.one_by_one()         messages, each to be stored by itself
    run.reply(...)           the response to each

Rows and properties lie in memory that the next `lay` uses again. One thread.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.operations import SendLoops
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.replies import ReplyTemplate
from embermq.columns.plain.sends import SendStop
from embermq.columns.rows import Rows
from embermq.model.properties import HALF_TOPIC

# A longer run is stored in parts of so many messages: no thread waits long for the put lock.
FRAMES_MAX = 1024
# Property strings are no longer than the frames they come from, but for what each gets; no more than this in one go.
PROPERTIES_BYTES_MAX = 4 << 20
PLACES_MAX = 1 << 16
# Of the two pairs that a half message gets: what is not in its frame already.
REAL_PLACE_BYTES = len(s.REAL_TOPIC_NAME) + len(s.REAL_QUEUE_NAME) + 4
_HALF_TOPIC = HALF_TOPIC.encode()
# Of no more frames than this, counting in arrays takes longer than counting one by one.
FEW_FRAMES = 64


class SendPiece(NamedTuple):
    """Unread bytes of one connection."""

    buffer: bytes
    at: int
    host: bytes  # of the connection, packed


class FrameOf(NamedTuple):
    """How to answer one frame of a run."""

    opaque: int
    is_binary: bool
    piece: int
    queue_id: int


class ShortSend(NamedTuple):
    """One message of a run that is stored by itself, and how to answer it."""

    opaque: int
    is_binary: int
    piece: int
    place: int
    queue_id: int
    is_half: int
    flag: int
    sys_flag: int
    born_time: int
    reconsume_times: int
    body: bytes
    properties: bytes


class SendRun:
    """The run that is being made, and the places that messages may go to."""

    def __init__(self, loops: SendLoops, cluster: str, template: ReplyTemplate, frame_bytes_max: int) -> None:
        self._loops, self._template, self._frame_bytes_max = loops, template, frame_bytes_max
        self._cluster = np.frombuffer(b"CLUSTER\x01" + cluster.encode(), np.uint8)
        self._flags, self._messages, self._bytes = (np.zeros(16, np.int64) for _ in range(3))
        self._places = 0
        self._all_rows = r.new_run_rows(FRAMES_MAX)
        self._all_frames = np.zeros((FRAMES_MAX, s.N_FRAME_COLUMNS), np.int64)
        self._replies = np.empty(FRAMES_MAX * template.reply_bytes_max, np.uint8)
        self._pieces: Rows = np.zeros((0, s.N_PIECE_COLUMNS), np.int64)
        self._one_piece: Rows = np.zeros((1, s.N_PIECE_COLUMNS), np.int64)
        self._hosts = b""
        self._bases: list[int] = []
        self._first = self._used = self._hosts_end = self.count = 0
        self._half_topic_at = s.NO_HALF_TOPIC
        self.data, self.properties = b"", np.empty(0, np.uint8)

    # -- places ------------------------------------------------------------------------------------------------

    @property
    def has_room_for_places(self) -> bool:
        return self._places < PLACES_MAX

    def let_in(self, topic: bytes, queue_id: int, sys_flags: int) -> int:
        """Let messages go to a queue; they get these flags beside their own. The number of the place."""
        place = self._places
        if place == len(self._flags):
            self._flags, self._messages, self._bytes = (
                np.concatenate([kept, np.zeros(place, np.int64)]) for kept in (self._flags, self._messages, self._bytes)
            )
        self._flags[place] = sys_flags
        self._loops.places.add(topic, queue_id, place)
        self._places += 1
        return place

    # -- reading -----------------------------------------------------------------------------------------------

    def lay(self, pieces: Sequence[SendPiece], *, takes_halves: bool) -> None:
        """Begin with these pieces. `takes_halves`: half messages are familiar."""
        self._first, self._half_topic_at = 0, s.NO_HALF_TOPIC
        if len(pieces) == 1:
            buffer, at, host = pieces[0]
            self.data, self._bases = buffer, [0]
            if takes_halves:
                self._half_topic_at, self.data = len(buffer), buffer + _HALF_TOPIC
            self._lay_hosts(host)
            self._pieces = self._one_piece
            self._pieces[0] = at, len(buffer), 0, len(host), 0
            return
        rows: list[tuple[int, int, int, int, int]] = []
        self._bases, end, host_at = [], 0, 0
        for buffer, at, host in pieces:
            self._bases.append(end - at)
            rows.append((end, end + len(buffer) - at, host_at, len(host), 0))
            end += len(buffer) - at
            host_at += len(host)
        buffers = [piece.buffer[piece.at :] if piece.at else piece.buffer for piece in pieces]
        if takes_halves:
            self._half_topic_at = end
            buffers.append(_HALF_TOPIC)
        self.data = b"".join(buffers)
        self._lay_hosts(b"".join([piece.host for piece in pieces]))
        self._pieces = np.array(rows, np.int64)

    def _lay_hosts(self, hosts: bytes) -> None:
        """Packed hosts lie in front of the properties; often they are the same as before."""
        added = FRAMES_MAX * (len(self._cluster) + 1 + REAL_PLACE_BYTES)
        room = min(len(self.data), PROPERTIES_BYTES_MAX) + added + len(hosts)
        if len(self.properties) < room:
            self.properties, self._hosts = np.empty(room, np.uint8), b""
        if hosts != self._hosts:
            self.properties[: len(hosts)] = np.frombuffer(hosts, np.uint8)
            self._hosts = hosts
        self._hosts_end = self._used = len(hosts)

    def begin_part(self) -> None:
        """Begin the next rows: those of before are stored."""
        self.count, self._used = 0, self._hosts_end

    def read(self) -> SendStop:
        """Go on reading. PLACE: `wanted` is to be let in, or passed over; FULL: the rows are to be stored first."""
        read = self._loops.reader.read(
            self.data,
            self._pieces,
            self._first,
            self._loops.places,
            self._flags[: self._places],
            self._cluster,
            self._all_rows,
            self._all_frames,
            self.count,
            self.properties,
            self._used,
            self._frame_bytes_max,
            self._half_topic_at,
        )
        self.count, self._used, self._first = read.filled, read.used, read.piece
        if read.stop is SendStop.FULL and not self.count:
            self.pass_over()
            return self.read()
        return read.stop

    @property
    def wanted(self) -> tuple[bytes, int]:
        """Topic and queue of the frame that `read` stopped at."""
        at, length, queue_id = self._loops.reader.wanted
        return self.data[at : at + length], queue_id

    def pass_over(self) -> None:
        """Leave the piece that `read` stopped at where it is."""
        self._pieces[self._first, s.G_STOPPED] = 1

    def taken_to(self, piece: int) -> int:
        """Where what was not read of a piece begins, in its own buffer."""
        return int(self._pieces[piece, s.G_AT]) - self._bases[piece]

    # -- what was read -----------------------------------------------------------------------------------------

    @property
    def rows(self) -> Rows:
        return self._all_rows[: self.count]

    def one_by_one(self) -> list[ShortSend]:
        """The messages, to be stored one after another: of a few, that is sooner done than storing them together."""
        listed = []
        for row, frame in zip(self.rows.tolist(), self._all_frames[: self.count].tolist(), strict=True):
            body_at, properties_at = row[r.R_BODY_AT], row[r.R_PROPS_AT]
            opaque, is_binary, piece, place, queue_id, is_half = frame
            listed.append(
                ShortSend(
                    opaque,
                    is_binary,
                    piece,
                    place,
                    queue_id,
                    is_half,
                    row[r.R_FLAG],
                    row[r.R_SYS_FLAG],
                    row[r.R_BORN_TIME],
                    row[r.R_RECONSUME],
                    self.data[body_at : body_at + row[r.R_BODY_LEN]],
                    self.properties[properties_at : properties_at + row[r.R_PROPS_LEN]].tobytes(),
                )
            )
        return listed

    def reply(self, send: ShortSend, physical: int, queue_offset: int) -> bytes:
        """The response to one message that was stored."""
        return self._template.frame(send.opaque, send.is_binary, physical, send.queue_id, queue_offset)

    def frames(self) -> list[FrameOf]:
        """How to answer each frame, for those that are answered one by one."""
        return _listed(self._all_frames[: self.count])

    def frames_later(self) -> Callable[[], list[FrameOf]]:
        """The same, to be called when the run's memory is used again already."""
        frames = self._all_frames[: self.count].copy()
        return lambda: _listed(frames)

    def halves(self) -> list[int]:
        """The numbers of the rows that are half messages."""
        if self._half_topic_at == s.NO_HALF_TOPIC:
            return []
        return np.flatnonzero(self._all_frames[: self.count, s.F_IS_HALF]).tolist()

    def by_piece(self) -> list[tuple[int, int]]:
        """The pieces that have frames in the run, and how many."""
        if self.count <= FEW_FRAMES:
            return sorted(Counter(self._all_frames[: self.count, s.F_PIECE].tolist()).items())
        counts = np.bincount(self._all_frames[: self.count, s.F_PIECE])
        return [(piece, count) for piece, count in enumerate(counts.tolist()) if count]

    def count_places(self, sizes: NDArray[np.int64]) -> None:
        """Count the messages of the run, which were stored in so many bytes each, where they went to."""
        places = self._all_frames[: self.count, s.F_PLACE]
        np.add.at(self._messages, places, sizes > 0)
        np.add.at(self._bytes, places, sizes)

    def take_counts(self) -> list[tuple[int, int, int]]:
        """What was counted since this was asked last: the place, how many messages, how many bytes."""
        counted = np.flatnonzero(self._messages[: self._places])
        found = zip(
            counted.tolist(), self._messages[counted].tolist(), self._bytes[counted].tolist(), strict=True
        )
        self._messages[counted] = self._bytes[counted] = 0
        return list(found)

    def replies(self, placed: Rows) -> list[tuple[int, int, bytes]]:
        """The responses to all frames, all of which were stored: piece, number of frames, bytes."""
        ends = np.zeros(len(self._pieces), np.int64)
        self._loops.write_replies(self._all_frames[: self.count], placed, self._template, self._replies, ends)
        found, start = [], 0
        for piece, count in self.by_piece():
            end = int(ends[piece])
            found.append((piece, count, self._replies[start:end].tobytes()))
            start = end
        return found


def _listed(frames: Rows) -> list[FrameOf]:
    return [
        FrameOf(opaque, bool(is_binary), piece, queue_id)
        for opaque, is_binary, piece, _place, queue_id, _is_half in frames.tolist()
    ]
