"""Screening: which records of queue entries may meet a condition on properties, and where their properties lie.

A record is passed over only if its head says that it is the one its entry stands for (size, magic, place, queue, queue
offset, lengths that add up), and its property string contains none of the needles. Everything else is left to the
reader. Bodies are not looked at: a record that is passed over may have a damaged one, and would not have been delivered
either.

`screen` writes a row for each record that is left: number of the entry, begin and end of the properties. Twin:
compiled.screen, which looks at each record in turn; here the heads of all are looked at with a few array operations.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import Rows
from embermq.format.frame import BODY_AT, FIXED_BYTES, MESSAGE_MAGIC
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.model.flags import HOST_V6_MASK, PREPARED

N_SPAN_COLUMNS = 3  # number of the entry, begin and end of its record's properties

# The head of a record with IPv4 hosts, up to its body (docs/format/commit-log.md).
_HEAD = np.dtype(
    {
        "names": ["size", "magic", "queue_id", "queue_offset", "place", "sys_flag", "body_len"],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i4"],
        "offsets": [0, 4, 12, 20, 28, 36, 84],
        "itemsize": BODY_AT,
    }
)
_LENGTH = np.dtype(">u2")


class Needles(NamedTuple):
    """Texts one of which the properties contain, if a condition holds; none: nothing is known of the condition."""

    texts: NDArray[np.uint8]  # one after another, and eight bytes more
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, needles: tuple[bytes, ...]) -> "Needles":
        assert all(needles), "an empty text is contained in everything"
        texts = np.frombuffer(b"".join(needles) + bytes(8), np.uint8)
        return cls(texts, np.cumsum([len(one) for one in needles], dtype=np.int64))

    def split(self) -> list[bytes]:
        starts = [0, *self.ends.tolist()]
        return [self.texts[at:end].tobytes() for at, end in zip(starts, self.ends.tolist(), strict=False)]


def screen(
    data: NDArray[np.uint8],
    base: int,
    entries: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    first: int,
    queue: tuple[int, int],
    needles: Needles,
    spans: Rows,
) -> int:
    """Clear in `mask` the entries, from number `first` on, whose record is in `data` and contains no needle. Returns
    how many rows of `spans` it has written, which has room for one an entry.

    `queue`: its id, and the queue offset of entry 0. `base`: the physical offset of data[0]."""
    listed = np.frombuffer(entries, ENTRY_DTYPE)
    numbers = first + np.flatnonzero(mask[first : len(listed)])
    place, size = listed["physical_offset"][numbers].astype(np.int64), listed["size"][numbers].astype(np.int64)
    here = (size >= FIXED_BYTES) & (place >= base) & (place - base <= len(data) - size)
    numbers, place, size = numbers[here], place[here], size[here]
    if not len(numbers):
        return 0
    head = _everywhere(data, _HEAD)[place - base]
    body_len = head["body_len"].astype(np.int64)
    is_sound = (head["size"] == size) & (head["magic"] == MESSAGE_MAGIC) & (head["place"] == place)
    is_sound &= (head["queue_id"] == queue[0]) & (head["queue_offset"] == queue[1] + numbers)
    is_sound &= head["sys_flag"] & (HOST_V6_MASK | PREPARED) == 0
    is_sound &= (body_len >= 0) & (body_len <= size - FIXED_BYTES)
    numbers, end = numbers[is_sound], (place + size - base)[is_sound]
    topic_at = (place - base + BODY_AT + body_len)[is_sound]
    length_at = topic_at + 1 + data[topic_at]
    fits = length_at + 2 <= end
    numbers, end, length_at = numbers[fits], end[fits], length_at[fits]
    start = length_at + 2
    adds_up = start + _everywhere(data, _LENGTH)[length_at] == end
    found = np.stack([numbers[adds_up], start[adds_up], end[adds_up]], axis=1)
    if len(needles.ends):
        view, texts = data.data, needles.split()
        has_one = [
            any(text in one for text in texts) for one in (bytes(view[at:stop]) for _, at, stop in found.tolist())
        ]
        contains = np.array(has_one, np.bool_)
        mask[found[~contains, 0]] = 0
        found = found[contains]
    spans[: len(found)] = found
    return len(found)


def _everywhere(data: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """An array with a value of this kind for every byte it could begin at: nothing is copied."""
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
