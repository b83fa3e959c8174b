"""64-bit hashes of texts that lie in a buffer, for many texts at once. Pure numpy: eight bytes of every text in a step.

Equal texts have equal hashes, whatever the machine or process. Different texts have different ones but for bad luck
(of a thousand million texts, about one pair in thirty runs), and nothing protects from texts made to collide: who must
be sure compares the texts of those that agree.
columns/compiled/text_hashes.py does the same in one pass.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import Rows

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

NO_TEXT = np.uint64(0)  # of a text that is not there (length below 0)
_WORD_BYTES = 8
SEED, ODD, LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xFF51AFD7ED558CCD)
_MASKS: Hashes = np.array([(1 << 8 * count) - 1 for count in range(8)] + [(1 << 64) - 1], np.uint64)

assert sys.byteorder == "little"  # As the kernels: words are taken as they lie.


def text_hashes(data: NDArray[np.uint8], at: Places, length: Places) -> Hashes:
    """The hash of each text data[at : at + length]; NO_TEXT where the length is below 0."""
    at, length = np.ascontiguousarray(at), np.ascontiguousarray(length)
    found = (length.view(np.uint64) + np.uint64(1)) * SEED
    longest = int(length.max(initial=0))
    if longest > 0:
        data, at = _with_room(data, at, longest)
        words = np.ndarray((len(data) - _WORD_BYTES + 1,), np.uint64, data, strides=(1,))
        shortest = int(length.min())
        for done in range(0, longest, _WORD_BYTES):
            if done + _WORD_BYTES <= shortest:
                found = _stirred(found ^ words[at + done])
            elif shortest == longest:  # As unique keys and many tags are.
                found = _stirred(found ^ (words[at + done] & _MASKS[longest - done]))
            else:
                left = length - done
                rows = np.flatnonzero(left > 0)
                word = words[at[rows] + done] & _MASKS[np.minimum(left[rows], _WORD_BYTES)]
                found[rows] = _stirred(found[rows] ^ word)
    found ^= found >> np.uint64(32)
    found *= LAST
    found ^= found >> np.uint64(29)
    if int(length.min(initial=0)) < 0:
        found[length < 0] = NO_TEXT
    return found


def _stirred(value: Hashes) -> Hashes:
    value = value * ODD
    value ^= value >> np.uint64(29)
    return value


def _with_room(data: NDArray[np.uint8], at: Places, longest: int) -> tuple[NDArray[np.uint8], Places]:
    """A word may reach past its text, and so past the end of the data: then what is needed of it is copied."""
    if int(at.max()) + longest + _WORD_BYTES <= len(data):
        return data, at
    start = max(int(at.min(where=at >= 0, initial=len(data))), 0)
    room = np.zeros(len(data) - start + longest + _WORD_BYTES, np.uint8)
    room[: len(data) - start] = data[start:]
    return room, np.maximum(at - start, 0)


def hash_column(data: NDArray[np.uint8], rows: Rows, at_column: int, length_column: int) -> Hashes:
    """The hash of each row's text; NO_TEXT where it has none."""
    return text_hashes(data, rows[:, at_column], rows[:, length_column])


def text_hash(text: bytes) -> int:
    """The hash of one text."""
    data = np.frombuffer(text or b"\0", np.uint8)
    return int(text_hashes(data, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0])


def mixed(one: Hashes, other: Hashes) -> Hashes:
    """A hash of two hashes, in this order."""
    return _stirred(one * SEED ^ _stirred(other + LAST))
