"""The JSON header of a command: read with the tolerance that real clients need, written as Java writes it.

Values of extFields are texts on the wire; some clients send numbers, booleans and null. A number keeps its text, null
drops the name. Keys are written in alphabetical order without white space. Pure.
"""

from typing import Annotated

import msgspec

from embermq.errors import FrameInvalid
from embermq.remoting.command import JSON, LANGUAGE, Command
from embermq.remoting.languages import language_name

_I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Sent(msgspec.Struct):
    """The order of the fields is the order in the text."""

    code: int
    ext: dict[str, str] | msgspec.UnsetType = msgspec.field(name="extFields")
    flag: int
    language: str | None
    opaque: int
    remark: str | msgspec.UnsetType
    serialization: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


class _Received(msgspec.Struct):
    """A header as most clients send it: every value of extFields is a text."""

    code: _I32 = 0
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: _I32 = 0
    language: str | int | None = LANGUAGE
    opaque: _I32 = 0
    remark: str | None = None
    version: _I32 = 0


class _ReceivedLoose(msgspec.Struct):
    """A header whose extFields hold anything: their texts are looked at one by one."""

    code: _I32 = 0
    ext: dict[str, msgspec.Raw] | None = msgspec.field(name="extFields", default=None)
    flag: _I32 = 0
    language: str | int | None = LANGUAGE
    opaque: _I32 = 0
    remark: str | None = None
    version: _I32 = 0


_encoder = msgspec.json.Encoder()
# Not strict: a number given as a text is a number.
_decoder = msgspec.json.Decoder(_Received, strict=False)
_loose_decoder = msgspec.json.Decoder(_ReceivedLoose, strict=False)
_text_decoder = msgspec.json.Decoder(str)


def encode_json(command: Command) -> bytes:
    return _encoder.encode(
        _Sent(
            command.code,
            msgspec.UNSET if command.ext is None else command.ext,
            command.flag,
            command.language,
            command.opaque,
            msgspec.UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )


def decode_json(header: bytes, body: bytes) -> Command:
    """The command of a JSON header; FrameInvalid when the header is none."""
    try:
        try:
            read: _Received | _ReceivedLoose = _decoder.decode(header)
        except msgspec.ValidationError:
            read = _loose_decoder.decode(header)
        ext = read.ext if isinstance(read, _Received) else _texts(read.ext)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise FrameInvalid(f"the JSON header cannot be read: {problem}") from None
    return Command(
        read.code, read.opaque, read.flag, ext, body, read.remark, language_name(read.language), read.version, JSON
    )


def _texts(values: dict[str, msgspec.Raw] | None) -> dict[str, str] | None:
    if values is None:
        return None
    texts = {name: _text(bytes(raw)) for name, raw in values.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _text(raw: bytes) -> str | None:
    if raw == b"null":
        return None
    return _text_decoder.decode(raw) if raw.startswith(b'"') else raw.decode()
