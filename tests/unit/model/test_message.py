"""Bodies that were compressed: whole ones come back, cut ones are an error and never a part."""

import zlib

import lz4.frame
import pytest
import zstandard

from embermq.model import flags
from embermq.model.message import decompress

BODY = b"the same words again and again, " * 50
WAYS = {
    flags.COMPRESSION_ZLIB: zlib.compress(BODY),
    flags.COMPRESSION_LZ4: lz4.frame.compress(BODY),
    flags.COMPRESSION_ZSTD: zstandard.compress(BODY),
}


@pytest.mark.parametrize("kind", WAYS)
def test_a_whole_body_comes_back(kind: int) -> None:
    assert decompress(WAYS[kind], flags.COMPRESSED | kind) == BODY


@pytest.mark.parametrize("kind", WAYS)
def test_a_cut_body_is_an_error(kind: int) -> None:
    packed = WAYS[kind]
    for length in range(len(packed)):
        with pytest.raises((zlib.error, RuntimeError, zstandard.ZstdError, ValueError, EOFError)):
            decompress(packed[:length], flags.COMPRESSED | kind)
