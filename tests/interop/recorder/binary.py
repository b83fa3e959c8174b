"""The binary form of a header, written and read by hand: the twin of JSON in wire.py."""

import struct
from collections.abc import Mapping
from typing import Any

LANGUAGES = {"JAVA": 0, "CPP": 1, "PYTHON": 3}
_HEAD, _TEXT, _NAME = struct.Struct(">hBhii"), struct.Struct(">i"), struct.Struct(">h")


def write_header(header: Mapping[str, Any]) -> bytes:
    fields = b""
    for name, value in (header.get("extFields") or {}).items():
        key, text = name.encode(), str(value).encode()
        fields += _NAME.pack(len(key)) + key + _TEXT.pack(len(text)) + text
    language = LANGUAGES[header["language"]]
    head = _HEAD.pack(header["code"], language, header["version"], header["opaque"], header["flag"])
    return head + _TEXT.pack(0) + _TEXT.pack(len(fields)) + fields


def read_header(data: bytes) -> dict[str, Any]:
    code, _, version, opaque, flag = _HEAD.unpack_from(data)
    remark, at = _text(data, _HEAD.size, _TEXT)
    packed, _ = _text(data, at, _TEXT)
    header: dict[str, Any] = {"code": code, "version": version, "opaque": opaque, "flag": flag}
    if remark:
        header["remark"] = remark.decode()
    if packed:
        header["extFields"] = fields = {}
        at = 0
        while at < len(packed):
            name, at = _text(packed, at, _NAME)
            value, at = _text(packed, at, _TEXT)
            fields[name.decode()] = value.decode()
    return header


def _text(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(data, at)
    begin = at + length.size
    return data[begin : begin + size], begin + size
