"""EndRun: frames of ends of transactions in what many connections gave, as the rows of a packed batch.

    run.lay(pieces)      bytes of each connection
    run.read(log)        rows up to the first frame of each piece that is no ordinary end
    run.ends             what the caller compares with what it knows; run.cut(number): one is not for a run after all
    store the batch      run.rows, run.parts

Rows and parts lie in memory that the next read uses again. One thread.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.ends import EndStop, HalfLog, OpParts, new_ends
from embermq.columns.rows import Rows

if TYPE_CHECKING:
    from embermq.columns.compiled.sends.ends import EndReader

# A longer run is stored in parts of so many ends: no thread waits long for the put lock.
ENDS_MAX = 512
# Copies of half messages, no more than this in one go; a larger one goes the plain way.
PARTS_BYTES = 256 << 10


class EndOf(NamedTuple):
    """One end, and how to answer it."""

    opaque: int
    is_binary: int
    is_oneway: int
    piece: int
    at: int  # of its frame
    half_offset: int
    place: int
    op_row: int
    is_commit: int


class EndRun:
    """The run that is being made."""

    def __init__(self, reader: "EndReader", op_topic: bytes, op_properties: bytes, frame_bytes_max: int) -> None:
        self._reader, self._frame_bytes_max = reader, frame_bytes_max
        self.parts = np.empty(PARTS_BYTES, np.uint8)
        shared = op_topic + op_properties
        self.parts[: len(shared)] = np.frombuffer(shared, np.uint8)
        self._op = OpParts(0, len(op_topic), len(op_topic), len(op_properties))
        self._begin = len(shared)
        self._all_rows, self._all_ends = r.new_run_rows(2 * ENDS_MAX), new_ends(ENDS_MAX)
        self._pieces: Rows = np.zeros((0, s.N_PIECE_COLUMNS), np.int64)
        self._bases: list[int] = []
        self._first = self._row_count = 0
        self._data = b""
        self.ends: list[EndOf] = []

    def lay(self, pieces: Sequence[tuple[bytes, int]]) -> None:
        """Begin with these pieces: bytes of a connection, and where to begin in them."""
        rows, self._bases, end = [], [], 0
        for buffer, at in pieces:
            self._bases.append(end - at)
            rows.append((end, end + len(buffer) - at, 0, 0, 0))
            end += len(buffer) - at
        self._data = b"".join([buffer[at:] if at else buffer for buffer, at in pieces])
        self._pieces, self._first = np.array(rows, np.int64), 0

    def read(self, log: HalfLog) -> EndStop:
        """Read the next ends. FULL: they are to be stored before the next are read."""
        read = self._reader.read(
            self._data,
            self._pieces,
            self._first,
            log,
            self._op,
            self._all_ends,
            self._all_rows,
            self.parts,
            self._begin,
            self._frame_bytes_max,
        )
        self._row_count, self._first = read.rows, read.piece
        self.ends = [EndOf(*row) for row in self._all_ends[: read.ends].tolist()]
        return read.stop

    @property
    def rows(self) -> Rows:
        return self._all_rows[: self._row_count]

    def cut(self, number: int) -> None:
        """Leave end `number` to the caller, with what follows it in its piece; those of later pieces are read again."""
        cut = self.ends[number]
        for end in reversed(self.ends[number:]):
            self._pieces[end.piece, s.G_AT] = end.at
        self._pieces[cut.piece + 1 :, s.G_STOPPED] = 0
        self._pieces[cut.piece, s.G_STOPPED] = 1
        self._first, self._row_count = cut.piece, cut.op_row - cut.is_commit
        self.ends = self.ends[:number]

    def give_back(self) -> None:
        """Leave all that was read last to the caller, and what follows it."""
        for end in reversed(self.ends):
            self._pieces[end.piece, s.G_AT] = end.at
        self._pieces[:, s.G_STOPPED] = 1
        self.ends, self._row_count = [], 0

    def taken_to(self, piece: int) -> int:
        """Where what was not read of a piece begins, in its own buffer."""
        return int(self._pieces[piece, s.G_AT]) - self._bases[piece]
