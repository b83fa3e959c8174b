"""Java habits that ended up on disk: String.hashCode and Math.abs.

Tags and index keys are stored as hash codes, so these must agree with Java bit by bit. A Java string is a
sequence of UTF-16 units: a character outside the basic plane counts as two.
"""

import struct
from functools import lru_cache

_INT_MIN = -(1 << 31)


def wrap_i32(value: int) -> int:
    """`value` as a Java int: the low 32 bits, signed."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def wrap_i64(value: int) -> int:
    """`value` as a Java long: the low 64 bits, signed."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def _hash_once(text: str) -> int:
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for entry in struct.unpack(f">{len(raw) // 2}H", raw):
        code = (31 * code + entry) & 0xFFFF_FFFF
    return wrap_i32(code)


@lru_cache(maxsize=4096)  # Tags repeat. Index keys do not, and go past the cache.
def string_hash(text: str) -> int:
    """Java's String.hashCode of `text`, a signed 32-bit number."""
    return _hash_once(text)


def string_hash_utf8(text: bytes) -> int:
    """String.hashCode of UTF-8 bytes; what is no UTF-8 counts as U+FFFD, as when Java decodes it."""
    return string_hash(text.decode("utf-8", "replace"))


def index_key_hash(topic: str, key: str) -> int:
    """The number an index file keeps for a key: |hash of `topic#key`|, never negative."""
    code = abs(_hash_once(f"{topic}#{key}"))
    return 0 if code == -_INT_MIN else code
