"""Property screen: passes over records whose properties do not meet a condition, before anything of them is copied.

Many at once: where the properties of each record lie is computed for a whole portion of entries with a few array
operations. A record is passed over only if its head says that it is the one its entry stands for: size, magic, place,
queue, queue offset, lengths that add up. Everything else is left to the reader. Bodies are not looked at: a record that
is passed over may have a damaged one, and would not have been delivered either. Any thread.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.format.frame import BODY_AT, FIXED_BYTES, MESSAGE_MAGIC
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.model.flags import HOST_V6_MASK, PREPARED
from embermq.store.log.windows import Window

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


def screen(
    window: Window,
    entries: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    first: int,
    queue: tuple[int, int],
    condition: Callable[[bytes], bool],
) -> None:
    """Clear in `mask` the entries, from number `first` on, whose record is in `window` and does not meet the condition.

    `queue`: its id, and the queue offset of entry 0.
    """
    data, base = window
    listed = np.frombuffer(entries, ENTRY_DTYPE)
    numbers = first + np.flatnonzero(mask[first : len(listed)])
    place, size = listed["physical_offset"][numbers].astype(np.int64), listed["size"][numbers].astype(np.int64)
    here = (size >= FIXED_BYTES) & (place >= base) & (place - base <= len(data) - size)
    numbers, place, size = numbers[here], place[here], size[here]
    if not len(numbers):
        return
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
    view, numbers = data.data, numbers[adds_up]
    spans = zip(start[adds_up].tolist(), end[adds_up].tolist(), strict=True)
    mask[numbers] = [condition(bytes(view[at:stop])) for at, stop in spans]


def _everywhere(data: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """An array with a value of this kind for every byte it could begin at: nothing is copied."""
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
