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

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

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


class SendPiece(Protocol):
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
        self._by_piece: list[tuple[int, int]] | None = None
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
            buffer, at, host = pieces[0].buffer, pieces[0].at, pieces[0].host
            self.data, self._bases = buffer, [0]
            if takes_halves:
                self._half_topic_at, self.data = len(buffer), buffer + _HALF_TOPIC
            self._lay_hosts(host)
            self._pieces = self._one_piece
            self._pieces[0] = at, len(buffer), 0, len(host), 0
            return
        buffers = [piece.buffer[piece.at :] if piece.at else piece.buffer for piece in pieces]
        hosts = [piece.host for piece in pieces]
        starts, host_starts = _starts(buffers), _starts(hosts)
        self._bases = [start - piece.at for start, piece in zip(starts, pieces, strict=False)]
        self._pieces = laid = np.zeros((len(pieces), s.N_PIECE_COLUMNS), np.int64)
        laid[:, s.G_AT], laid[:, s.G_END] = starts[:-1], starts[1:]
        laid[:, s.G_HOST_AT] = host_starts[:-1]
        laid[:, s.G_HOST_LEN] = np.diff(host_starts)
        if takes_halves:
            self._half_topic_at = starts[-1]
            buffers.append(_HALF_TOPIC)
        self.data = b"".join(buffers)
        self._lay_hosts(b"".join(hosts))

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
        self.count, self._used, self._by_piece = 0, self._hosts_end, None

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

    def taken_to(self) -> list[int]:
        """Where what was not read of each piece begins, in its own buffer."""
        ends = self._pieces[:, s.G_AT].tolist()
        return [end - base for end, base in zip(ends, self._bases, strict=True)]

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
        if self._by_piece is None:
            counts = np.bincount(self._all_frames[: self.count, s.F_PIECE]).tolist()
            self._by_piece = [(piece, count) for piece, count in enumerate(counts) if count]
        return self._by_piece

    def count_places(self, sizes: NDArray[np.int64]) -> None:
        """Count the messages of the run, which were stored in so many bytes each, where they went to."""
        places = self._all_frames[: self.count, s.F_PLACE]
        np.add.at(self._messages, places, sizes > 0)
        np.add.at(self._bytes, places, sizes)

    def take_counts(self) -> list[tuple[int, int, int]]:
        """What was counted since this was asked last: the place, how many messages, how many bytes."""
        counted = np.flatnonzero(self._messages[: self._places])
        found = zip(counted.tolist(), self._messages[counted].tolist(), self._bytes[counted].tolist(), strict=True)
        self._messages[counted] = self._bytes[counted] = 0
        return list(found)

    def replies(self, placed: Rows) -> list[tuple[int, int, bytes]]:
        """The responses to all frames, all of which were stored: piece, number of frames, bytes."""
        marks = np.zeros(len(self._pieces), np.int64)
        written = self._loops.write_replies(
            self._all_frames[: self.count], placed, self._template, self._replies, marks
        )
        made, ends = self._replies[:written].tobytes(), marks.tolist()
        found, start = [], 0
        for piece, count in self.by_piece():
            found.append((piece, count, made[start : ends[piece]]))
            start = ends[piece]
        return found


def _starts(parts: Sequence[bytes]) -> list[int]:
    """Where each part begins when they are joined, and where the last ends."""
    return [0, *accumulate(map(len, parts))]


def _listed(frames: Rows) -> list[FrameOf]:
    return [
        FrameOf(opaque, bool(is_binary), piece, queue_id)
        for opaque, is_binary, piece, _place, queue_id, _is_half in frames.tolist()
    ]
