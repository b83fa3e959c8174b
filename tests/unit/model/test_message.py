"""Bodies that were compressed: whole ones come back, cut ones and those without end are an error, never a part."""

import random
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from embermq.errors import CorruptFrame
from embermq.model import flags, message
from embermq.model.message import StoredMessage, decompress

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


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.slow
def test_a_body_that_grows_without_end_is_refused_while_it_grows(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = {
        flags.COMPRESSION_ZLIB: zlib.compress,
        flags.COMPRESSION_LZ4: lz4.frame.compress,
        flags.COMPRESSION_ZSTD: zstandard.compress,
    }[kind]
    packed = pack(bytes(100 << 20))
    with pytest.raises(ValueError, match="larger than 67,108,864 bytes decompressed"):
        decompress(packed, flags.COMPRESSED | kind)
    monkeypatch.setattr(message, "PAYLOAD_BYTES_MAX", 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="larger than"):
            decompress(packed, flags.COMPRESSED | kind)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    exact = bytes(1 << 20)
    assert decompress(pack(exact), flags.COMPRESSED | kind) == exact


def test_a_large_body_that_hardly_shrank_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "PAYLOAD_BYTES_MAX", 1000)
    body = random.Random(1).randbytes(5000)
    for kind, pack in ((flags.COMPRESSION_ZLIB, zlib.compress), (flags.COMPRESSION_ZSTD, zstandard.compress)):
        assert decompress(pack(body), flags.COMPRESSED | kind) == body


def test_a_payload_that_is_too_large_is_a_damaged_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "PAYLOAD_BYTES_MAX", 1000)
    stored = StoredMessage(
        physical_offset=77,
        size=100,
        sys_flag=flags.COMPRESSED,
        body=zlib.compress(bytes(100_000)),
        topic="T",
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        born_timestamp=0,
        packed_born_host=b"",
        store_timestamp=0,
        packed_store_host=b"",
        reconsume_times=0,
        prepared_transaction_offset=0,
        property_bytes=b"",
    )
    with pytest.raises(CorruptFrame, match="larger than 1,000 bytes decompressed") as raised:
        _ = stored.payload
    assert raised.value.physical_offset == 77
