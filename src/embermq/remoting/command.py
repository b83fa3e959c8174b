"""Command: one request or response as a value, and Reply: what a handler answers.

Bit 0 of `flag` says response, bit 1 says one-way (no answer wanted). `opaque` joins a response to its request; the two
directions of a connection number their requests independently. `ext` is None where the header has no extFields at all,
which some clients tell from an empty object. Pure.
"""

import msgspec

JSON = 0
BINARY = 1
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

# What this program says of itself: RocketMQ 4.9.8's protocol, spoken by Python.
PROTOCOL_VERSION = 409
LANGUAGE = "PYTHON"


class Command(msgspec.Struct):
    """A request or a response."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    language: str | None = LANGUAGE
    version: int = PROTOCOL_VERSION
    serialization: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)


class Reply(msgspec.Struct, frozen=True):
    """What a handler answers; the connection adds the rest."""

    code: int = 0
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""


def answer(request: Command, reply: Reply) -> Command:
    """The response to `request`, in the serialization that the peer used."""
    return Command(
        code=reply.code,
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        ext=reply.ext,
        body=reply.body,
        remark=reply.remark,
        serialization=request.serialization,
    )
