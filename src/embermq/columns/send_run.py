"""SendRun: frames of sends in what many connections gave, as the rows of a packed batch, and the answers to them.

    run.lay(pieces)          bytes of each connection, and its packed host
    run.read()               rows up to the first unfamiliar frame of each piece; PLACE: `wanted` is to be let in
    store the batch          run.rows, run.data, run.properties
    run.replies(placed)      responses, by piece

Rows and properties lie in memory that the next `lay` uses again. One thread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.operations import SendLoops
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.replies import ReplyTemplate
from embermq.columns.plain.sends import SendStop
from embermq.columns.rows import Rows

# A longer run is stored in parts of so many messages: no thread waits long for the put lock.
FRAMES_MAX = 1024
# Property strings are no longer than the frames they come from, but for what each gets; no more than this in one go.
PROPERTIES_BYTES_MAX = 4 << 20
PLACES_MAX = 1 << 16


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


class SendRun:
    """The run that is being made, and the places that messages may go to."""

    def __init__(self, loops: SendLoops, cluster: str, template: ReplyTemplate, frame_bytes_max: int) -> None:
        self._loops, self._template, self._frame_bytes_max = loops, template, frame_bytes_max
        self._cluster = np.frombuffer(b"CLUSTER\x01" + cluster.encode(), np.uint8)
        self._flags = np.zeros(16, np.int64)
        self._places = 0
        self._all_rows = r.new_run_rows(FRAMES_MAX)
        self._all_frames = np.zeros((FRAMES_MAX, s.N_FRAME_COLUMNS), np.int64)
        self._replies = np.empty(FRAMES_MAX * template.reply_bytes_max, np.uint8)
        self._pieces: Rows = np.zeros((0, s.N_PIECE_COLUMNS), np.int64)
        self._bases: list[int] = []
        self._first = self._used = self._hosts_end = self.count = 0
        self.data, self.properties = b"", np.empty(0, np.uint8)

    # -- places ------------------------------------------------------------------------------------------------

    @property
    def has_room_for_places(self) -> bool:
        return self._places < PLACES_MAX

    def let_in(self, topic: bytes, queue_id: int, sys_flags: int) -> int:
        """Let messages go to a queue; they get these flags beside their own. The number of the place."""
        place = self._places
        if place == len(self._flags):
            self._flags = np.concatenate([self._flags, np.zeros(place, np.int64)])
        self._flags[place] = sys_flags
        self._loops.places.add(topic, queue_id, place)
        self._places += 1
        return place

    # -- reading -----------------------------------------------------------------------------------------------

    def lay(self, pieces: Sequence[SendPiece]) -> None:
        """Begin with these pieces."""
        rows = []
        if len(pieces) == 1:
            (piece,) = pieces
            self.data, self._bases = piece.buffer, [0]
            rows.append([piece.at, len(piece.buffer), 0, len(piece.host), 0])
        else:
            self._bases, end = [], 0
            for piece in pieces:
                self._bases.append(end - piece.at)
                rows.append([end, end + len(piece.buffer) - piece.at, 0, len(piece.host), 0])
                end = rows[-1][s.G_END]
            self.data = b"".join([piece.buffer[piece.at :] if piece.at else piece.buffer for piece in pieces])
        self._lay_hosts(rows, [piece.host for piece in pieces])
        self._pieces = np.array(rows, np.int64)
        self._first = 0

    def _lay_hosts(self, rows: list[list[int]], hosts: list[bytes]) -> None:
        room = min(len(self.data), PROPERTIES_BYTES_MAX) + FRAMES_MAX * (len(self._cluster) + 1)
        joined = b"".join(hosts)
        if len(self.properties) < room + len(joined):
            self.properties = np.empty(room + len(joined), np.uint8)
        self.properties[: len(joined)] = np.frombuffer(joined, np.uint8)
        at = 0
        for row, host in zip(rows, hosts, strict=True):
            row[s.G_HOST_AT] = at
            at += len(host)
        self._hosts_end = self._used = at

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

    def frames(self) -> list[FrameOf]:
        """How to answer each frame, for those that are answered one by one."""
        return _listed(self._all_frames[: self.count], self.rows[:, r.R_QUEUE_ID])

    def frames_later(self) -> Callable[[], list[FrameOf]]:
        """The same, to be called when the run's memory is used again already."""
        frames, queue_ids = self._all_frames[: self.count].copy(), self.rows[:, r.R_QUEUE_ID].copy()
        return lambda: _listed(frames, queue_ids)

    def by_piece(self) -> list[tuple[int, int]]:
        """The pieces that have frames in the run, and how many."""
        counts = np.bincount(self._all_frames[: self.count, s.F_PIECE])
        return [(piece, count) for piece, count in enumerate(counts.tolist()) if count]

    def by_place(self, sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
        """The places that messages went to, how many, and how many bytes in all, of these sizes."""
        places = self._all_frames[: self.count, s.F_PLACE]
        counts, totals = np.bincount(places), np.bincount(places, sizes)
        for place in np.flatnonzero(counts).tolist():
            yield place, int(counts[place]), int(totals[place])

    def replies(self, placed: Rows) -> list[tuple[int, int, bytes]]:
        """The responses to all frames, all of which were stored: piece, number of frames, bytes."""
        ends = np.zeros(len(self._pieces), np.int64)
        self._loops.write_replies(
            self.rows, self._all_frames[: self.count], placed, self._template, self._replies, ends
        )
        found, start = [], 0
        for piece, count in self.by_piece():
            end = int(ends[piece])
            found.append((piece, count, self._replies[start:end].tobytes()))
            start = end
        return found


def _listed(frames: Rows, queue_ids: NDArray[np.int64]) -> list[FrameOf]:
    return [
        FrameOf(opaque, bool(is_binary), piece, queue_id)
        for (opaque, is_binary, piece, _place), queue_id in zip(frames.tolist(), queue_ids.tolist(), strict=True)
    ]
