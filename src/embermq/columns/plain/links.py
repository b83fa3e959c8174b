"""Are the links of an index file right? Every entry names the one before it in its slot.

`check_links` is the plain twin of the kernel of that name. It looks at a stretch of entries and needs of all that
came before only the number of the newest entry in each slot, so a file of any size is checked piece by piece.
"""

import struct
from typing import Any, NamedTuple

from embermq.format.index import ENTRY_BYTES

_ENTRY = struct.Struct(">iqii")
assert _ENTRY.size == ENTRY_BYTES
NONE = -1


class LinkCheck(NamedTuple):
    """What a stretch of entries showed: how many are wrong, the number of the first, and what it should link to."""

    wrong: int = 0
    first: int = NONE
    expected: int = NONE


def check_links(entries: Any, first_number: int, newest: Any) -> LinkCheck:
    """Compare the links of consecutive entries, the first of which has number `first_number`, with what they
    should be. `newest` has, for each slot, the number of its newest entry so far (0: none), and is brought up to
    date. An entry with an impossible hash is wrong."""
    wrong, first, expected = 0, NONE, NONE
    for k in range(len(entries) // ENTRY_BYTES):
        key_hash, _, _, previous = _ENTRY.unpack_from(entries, k * ENTRY_BYTES)
        number = first_number + k
        should_be = newest[key_hash % len(newest)] if key_hash >= 0 else NONE
        if key_hash < 0 or previous != should_be:
            if wrong == 0:
                first, expected = number, should_be
            wrong += 1
        if key_hash >= 0:
            newest[key_hash % len(newest)] = number
    return LinkCheck(wrong, first, int(expected))
