"""The log against queues and index, piece by piece: for verify, for the scrub, and for Spark's audit.

    log_pieces.py      the log cut into pieces, each walked and compared on its own
    sound_pieces.py    the fast path: a piece without damage in one compiled walk
    mapped_pieces.py   a piece as mapped memory
    entries.py         a piece against queue files
    keys.py            a piece against index files

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.compare.entries import OffsetRun, QueuePieceCheck, Suspects, VerifiedQueueFiles, joined
from embermq.store.compare.keys import EntryPlace, IndexStream, KeyFlaw, KeyPart
from embermq.store.compare.log_pieces import CheckedPiece, Cut, LogPieces, LogReader

__all__ = [
    "CheckedPiece",
    "Cut",
    "EntryPlace",
    "IndexStream",
    "KeyFlaw",
    "KeyPart",
    "LogPieces",
    "LogReader",
    "OffsetRun",
    "QueuePieceCheck",
    "Suspects",
    "VerifiedQueueFiles",
    "joined",
]
