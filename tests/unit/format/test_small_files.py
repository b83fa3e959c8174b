"""Queue entries and the checkpoint page, on worked examples."""

import numpy as np

from embermq.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint, encode_checkpoint
from embermq.format.java import string_hash
from embermq.format.queue_entry import BLANK_SIZE, ENTRY, ENTRY_DTYPE


def test_queue_entries() -> None:
    tag_a, negative = string_hash("TagA"), string_hash("order-created")
    assert ENTRY.pack(1073741824, 199, tag_a).hex() == "0000000040000000000000c7000000000027a807"
    assert ENTRY.pack(100, 200, negative).hex() == "0000000000000064000000c8ffffffffe897bb69"
    assert ENTRY.pack(217, 166, 1700000010123).hex() == "00000000000000d9000000a60000018bcfe58f8b"
    assert ENTRY.pack(0, BLANK_SIZE, 0).hex() == "00000000000000007fffffff0000000000000000"


def test_entry_dtype_reads_what_the_struct_packs() -> None:
    entry = np.frombuffer(ENTRY.pack(1 << 40, 199, -5), ENTRY_DTYPE)[0]
    assert (int(entry["physical_offset"]), int(entry["size"]), int(entry["tag_code"])) == (1 << 40, 199, -5)


def test_checkpoint() -> None:
    checkpoint = Checkpoint(1700000005000, 1700000004000, 1699999999000)
    page = encode_checkpoint(checkpoint)
    assert len(page) == CHECKPOINT_BYTES
    assert page[:24].hex() == "0000018bcfe57b880000018bcfe577a00000018bcfe56418"
    assert not any(page[24:])
    assert decode_checkpoint(page) == checkpoint


def test_short_or_empty_checkpoint() -> None:
    assert decode_checkpoint(b"\0" * 23) is None
    assert decode_checkpoint(bytes(CHECKPOINT_BYTES)) == Checkpoint()
