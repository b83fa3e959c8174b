"""The binary ("ROCKETMQ") header of a command. Pure.

    i16 code, u8 language, i16 version, i32 opaque, i32 flag,
    i32 length and bytes of the remark (0: none),
    i32 length of all extFields together (0: none), then each as
        i16 length and bytes of the name, i32 length and bytes of the value

A value of no bytes reads as absent. Every length is compared with what is left of the header.
"""

import struct

from embermq.errors import FrameInvalid
from embermq.remoting.command import BINARY, Command
from embermq.remoting.languages import language_code, language_name

_FIXED = struct.Struct(">hBhii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


def encode_binary(command: Command) -> bytes:
    assert -(2**15) <= command.code < 2**15, f"code {command.code} does not fit a binary header"
    remark = (command.remark or "").encode()
    parts = [
        _FIXED.pack(
            command.code, language_code(command.language), command.version & 0x7FFF, command.opaque, command.flag
        ),
        _I32.pack(len(remark)),
        remark,
    ]
    fields: list[bytes] = []
    for name, value in (command.ext or {}).items():
        name_bytes, value_bytes = name.encode(), value.encode()
        fields += (_I16.pack(len(name_bytes)), name_bytes, _I32.pack(len(value_bytes)), value_bytes)
    packed = b"".join(fields)
    parts += (_I32.pack(len(packed)), packed)
    return b"".join(parts)


def decode_binary(header: bytes, body: bytes) -> Command:
    """The command of a binary header; FrameInvalid when a length in it cannot be."""
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header, 0)
        remark, at = _sized(header, _FIXED.size, _I32)
        packed, _end = _sized(header, at, _I32)
        ext = _decode_fields(packed) if packed else None
        text = remark.decode() if remark else None
    except struct.error:
        raise FrameInvalid(f"the binary header ends after {len(header)} bytes, inside a field") from None
    except UnicodeDecodeError as problem:
        raise FrameInvalid(f"the binary header has a text that is not UTF-8: {problem}") from None
    return Command(code, opaque, flag, ext, body, text, language_name(language), version, BINARY)


def _decode_fields(packed: bytes) -> dict[str, str]:
    ext: dict[str, str] = {}
    at = 0
    while at < len(packed):
        name, at = _sized(packed, at, _I16)
        value, at = _sized(packed, at, _I32)
        if value:
            ext[name.decode()] = value.decode()
    return ext


def _sized(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    """Bytes behind their own length, and where the next field begins."""
    (size,) = length.unpack_from(data, at)
    start = at + length.size
    if not 0 <= size <= len(data) - start:
        raise FrameInvalid(f"a field of {size} bytes in the binary header, where {len(data) - start} are left")
    return data[start : start + size], start + size
