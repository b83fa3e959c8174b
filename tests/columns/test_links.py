"""Links of index entries: kernel == twin, and both know a right file from a wrong one."""

import struct
from array import array

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.links import check_links
from embermq.columns.plain import links
from embermq.columns.plain.links import NONE, LinkCheck
from embermq.format.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, index_file_bytes, put
from tests.columns.guarded import GuardedMemory

MEMORY = GuardedMemory(1 << 16)
SLOTS = st.integers(1, 9)


def both(entries: bytes, first_number: int, slots: int, before: list[int] | None = None) -> tuple[LinkCheck, list[int]]:
    """The answer and the slots afterwards, the same from both."""
    ours, theirs = np.zeros(slots, np.int32), array("i", bytes(4 * slots))
    for slot, number in enumerate(before or []):
        ours[slot] = theirs[slot] = number
    kernel = check_links(MEMORY.hold(entries), first_number, ours)
    twin = links.check_links(entries, first_number, theirs)
    assert kernel == twin
    assert ours.tolist() == theirs.tolist()
    return twin, ours.tolist()


def file_of(hashes: list[int], slots: int) -> bytes:
    file = bytearray(index_file_bytes(slots, len(hashes) + 1))
    for number, key_hash in enumerate(hashes):
        assert put(file, slots, len(hashes) + 1, key_hash, number, 1000)
    return bytes(file)


def entries_of(file: bytes, slots: int) -> bytes:
    return file[HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES :]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=60), SLOTS, st.integers(0, 60))
def test_a_right_file_is_right_in_pieces_as_well(hashes: list[int], slots: int, cut: int) -> None:
    file = file_of(hashes, slots)
    entries = entries_of(file, slots)
    cut = min(cut, len(hashes)) * ENTRY_BYTES
    found, newest = both(entries[:cut], 1, slots)
    assert found == LinkCheck()
    found, newest = both(entries[cut:], 1 + cut // ENTRY_BYTES, slots, newest)
    assert found == LinkCheck()
    assert newest == list(struct.unpack_from(f">{slots}i", file, HEADER_BYTES))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), SLOTS, st.data())
def test_one_wrong_link_is_found(hashes: list[int], slots: int, data: st.DataObject) -> None:
    entries = bytearray(entries_of(file_of(hashes, slots), slots))
    number = data.draw(st.integers(0, len(hashes) - 1))
    right = struct.unpack_from(">i", entries, number * ENTRY_BYTES + 16)[0]
    wrong = data.draw(st.integers(-(2**31), 2**31 - 1).filter(lambda link: link != right))
    struct.pack_into(">i", entries, number * ENTRY_BYTES + 16, wrong)
    assert both(bytes(entries), 1, slots)[0] == LinkCheck(1, number + 1, right)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600), st.integers(0, 2**31 - 50), SLOTS)
def test_nonsense(entries: bytes, first_number: int, slots: int) -> None:
    both(entries, first_number, slots)


def test_an_impossible_hash_is_wrong() -> None:
    entry = struct.pack(">iqii", -5, 0, 0, 0)
    assert both(entry, 7, 3)[0] == LinkCheck(1, 7, NONE)
    assert both(struct.pack(">iqii", -5, 0, 0, NONE), 7, 3)[0] == LinkCheck(1, 7, NONE)


def test_half_an_entry_is_no_entry() -> None:
    assert both(bytes(ENTRY_BYTES + 7), 1, 2)[0] == LinkCheck()
    assert both(b"", 1, 2)[0] == LinkCheck()
