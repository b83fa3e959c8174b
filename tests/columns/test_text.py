"""Hash codes computed over bytes == hash codes of the decoded text, valid UTF-8 or not."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.parts.compiling import READ_BYTES, kernel
from embermq.columns.compiled.parts.text import hash_text, signed32
from embermq.format.java import string_hash_utf8
from tests.columns.guarded import GuardedMemory

MEMORY = GuardedMemory(1 << 12)


@kernel(f"int64({READ_BYTES})")
def text_hash(data: Any) -> int:
    return signed32(hash_text(data, 0, len(data), 0))


# Bytes at the edges of the UTF-8 tables make most of the trouble.
EDGES = st.lists(
    st.sampled_from(
        [
            0x00,
            0x41,
            0x7F,
            0x80,
            0x8F,
            0x90,
            0x9F,
            0xA0,
            0xBF,
            0xC0,
            0xC1,
            0xC2,
            0xDF,
            0xE0,
            0xE1,
            0xEC,
            0xED,
            0xEE,
            0xEF,
            0xF0,
            0xF1,
            0xF3,
            0xF4,
            0xF5,
            0xFF,
        ]
    ),
    max_size=20,
).map(bytes)


@settings(max_examples=500, deadline=None)
@given(st.one_of(EDGES, st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode())))
def test_hash_of_any_bytes(data: bytes) -> None:
    assert text_hash(MEMORY.hold(data)) == string_hash_utf8(data)


def test_all_two_byte_texts() -> None:
    for first in range(0x7E, 256):
        for second in range(0x7E, 256):
            data = bytes([first, second])
            if text_hash(np.frombuffer(data, np.uint8)) != string_hash_utf8(data):
                pytest.fail(data.hex())
