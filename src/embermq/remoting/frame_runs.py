"""Runs of frames: what came in one turn of the loop is offered to a taker, which answers many frames at once.

A taker (the broker's is sending/runs.py) looks at pieces, each the unread bytes of one connection, takes from each as
many frames as it knows, and answers them. The first it does not know, and what is left behind it, is read by the link:
the plain way.

    frames of one connection          offered as soon as they are read
    a few frames of many connections  kept until the end of the loop's turn and offered together

A connection whose few frames the taker did not know (a consumer's) is not offered for a while, unless it has many.
Many connections that each send one request and wait are recognised by how many have sent something lately: a single one
is not kept waiting for the end of the turn. The loop's thread only.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import Protocol

from embermq.remoting.link import Link

# Fewer frames of a connection are offered only if the taker knew what came from it before.
RUN_FRAMES_MIN = 6
# So many reads of a connection are not offered, after one of which the taker knew nothing.
UNKNOWN_READS = 31
# So many of one connection do not wait for those of others.
ALONE_FRAMES_MIN = 48
# Connections that were heard of in so many reads: from this many on, reads of one turn are kept together.
READS_A_LOOK = 64
BUSY_LINKS_MIN = 8
# Behind a frame that is not known, so many are read the plain way before the rest is offered again.
PLAIN_FRAMES_MAX = 64
_LENGTH = struct.Struct(">i")


class Piece:
    """Bytes of one connection; the taker moves `at` behind the frames it took."""

    __slots__ = ("at", "buffer", "host", "link")

    def __init__(self, link: Link, buffer: bytes, at: int = 0) -> None:
        self.link, self.buffer, self.at, self.host = link, buffer, at, link.packed_host


class RunTaker(Protocol):
    """Answers frames of many requests at once."""

    def is_ready(self, frames: int) -> bool:
        """Whether `take` may be called; so many frames would be offered."""
        ...

    def take(self, pieces: Sequence[Piece]) -> None:
        """Answer the frames of each piece, from its `at` on, up to the first that is not known."""
        ...


class FrameRuns:
    """The frames of the connections of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, taker: RunTaker) -> None:
        self._loop, self._taker = loop, taker
        self._kept: list[Piece] = []
        self._heard: set[Link] = set()
        self._reads = 0
        self._keeps = False

    def take(self, link: Link, buffer: bytes) -> bool:
        """Take the bytes of a read, which begin with a frame; False if the link is to read them itself, now."""
        self._heard.add(link)
        self._reads += 1
        if self._reads == READS_A_LOOK:
            self._keeps = len(self._heard) >= BUSY_LINKS_MIN
            self._heard.clear()
            self._reads = 0
        frames = _frames_in(buffer, 0)
        if not frames:
            return False
        if link.unknown_reads and frames < RUN_FRAMES_MIN:
            link.unknown_reads -= 1
            return False
        if not self._taker.is_ready(frames) or not link.has_room_for(frames):
            return False
        if frames >= ALONE_FRAMES_MIN or not self._keeps:
            self._offer([Piece(link, buffer)])
            return True
        if not self._kept:
            self._loop.call_soon(self._end_turn)
        self._kept.append(Piece(link, buffer))
        return True

    def _end_turn(self) -> None:
        pieces, self._kept = self._kept, []
        self._offer(pieces)

    def _offer(self, pieces: list[Piece]) -> None:
        """Have the taker answer what it knows, and the links what it does not."""
        for piece in pieces:
            piece.link.begin_turn()
        try:
            self._taker.take(pieces)
            for piece in pieces:
                piece.link.unknown_reads = 0 if piece.at else UNKNOWN_READS
                self._read_rest(piece)
        finally:
            for piece in pieces:
                piece.link.end_turn()

    def _read_rest(self, piece: Piece) -> None:
        """Read what the taker has left: the frame it does not know, and if many follow, those by the taker again."""
        link, buffer, plain = piece.link, piece.buffer, 1
        if piece.at == len(buffer):
            link.read_nothing()
            return
        while (frames := _frames_in(buffer, piece.at)) >= RUN_FRAMES_MIN and link.has_room_for(frames):
            before = piece.at = link.read(buffer, piece.at, plain)
            if not link.has_room_for(frames):
                break
            self._taker.take([piece])
            plain = 1 if piece.at > before else min(2 * plain, PLAIN_FRAMES_MAX)
        piece.at = link.read(buffer, piece.at)


def _frames_in(buffer: bytes, at: int) -> int:
    """How many whole frames there are, if all are as long as the first."""
    if len(buffer) - at < 4:
        return 0
    size = 4 + int(_LENGTH.unpack_from(buffer, at)[0])
    return (len(buffer) - at) // size if size > 4 else 0
