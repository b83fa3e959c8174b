"""Both ways of summing, against zlib."""

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.parts import crc
from embermq.columns.compiled.parts.compiling import READ_BYTES, kernel


@kernel(f"int64({READ_BYTES}, int64, int64)")
def sliced(data: Any, at: int, length: int) -> int:
    return crc.crc32_sliced(data, at, length)


DATA = np.arange(4096, dtype=np.int64) ** 3 % 251
BYTES = DATA.astype(np.uint8)


@pytest.mark.parametrize("length", [*range(200), 255, 256, 1000, 4000])
def test_every_short_length(length: int) -> None:
    for start in (0, 1, 7):
        expected = zlib.crc32(BYTES[start : start + length].tobytes())
        assert crc._crc32_at_once(BYTES, start, length) == expected
        assert sliced(BYTES, start, length) == expected


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    assert crc.crc32(data) == zlib.crc32(data)
    assert sliced(np.frombuffer(data, np.uint8), 0, len(data)) == zlib.crc32(data)


def test_writable_and_read_only_arrays() -> None:
    assert crc.crc32(bytearray(b"Hello RocketMQ")) == crc.crc32(b"Hello RocketMQ") == 0x69C865ED
