"""Runs of requests: what connections have sent in one turn of the loop, taken by kind, many frames at once.

Sends are taken first, then ends of transactions, then sends again, as long as a connection has more of them: the
requests of one connection are carried out in their order. The loop's thread.
"""

from collections.abc import Sequence

from embermq.broker.sending import SendRuns
from embermq.broker.transactions import EndRuns
from embermq.remoting import Piece


class RequestRuns:
    """Takes sends and ends of transactions out of what connections give."""

    def __init__(self, sends: SendRuns, ends: EndRuns) -> None:
        self._sends, self._ends = sends, ends

    def is_ready(self, frames: int) -> bool:
        """Whether runs can be taken; kernels are loaded when enough frames have come."""
        return self._sends.is_ready(frames)

    def take(self, pieces: Sequence[Piece]) -> None:
        """Carry out and answer the requests at the beginning of each piece."""
        while pieces:
            self._sends.take(pieces)
            left = [piece for piece in pieces if piece.at < len(piece.buffer)]
            before = [piece.at for piece in left]
            if not left or not self._ends.take(left):
                return
            pieces = [piece for piece, at in zip(left, before, strict=True) if at < piece.at < len(piece.buffer)]
