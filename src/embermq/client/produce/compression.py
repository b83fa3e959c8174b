"""Compression of bodies, by the methods that RocketMQ's clients know. Pure; any thread."""

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from embermq.model import flags


def _lz4(body: bytes, _level: int) -> bytes:
    return bytes(lz4.frame.compress(body))


def _zstd(body: bytes, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(body)


METHODS: dict[str, tuple[int, Callable[[bytes, int], bytes]] | None] = {
    "zlib": (flags.COMPRESSION_ZLIB, zlib.compress),
    "lz4": (flags.COMPRESSION_LZ4, _lz4),
    "zstd": (flags.COMPRESSION_ZSTD, _zstd),
    "none": None,
}


def compressed(body: bytes, method: str, level: int) -> tuple[bytes, int]:
    """The body and the bits of sysFlag that say how it is compressed; itself and 0 where that makes it no smaller."""
    chosen = METHODS[method]
    if chosen is None:
        return body, 0
    bits, compress = chosen
    smaller = compress(body, level)
    return (smaller, flags.COMPRESSED | bits) if len(smaller) < len(body) else (body, 0)
