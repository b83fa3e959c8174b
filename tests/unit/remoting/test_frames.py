"""Frames: golden bytes, streams cut at every place, lengths that cannot be, headers of real clients."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import FrameInvalid
from embermq.remoting import (
    BINARY,
    JSON,
    Command,
    FrameReader,
    FrameSplitter,
    Reply,
    answer,
    decode_frame,
    encode_frame,
)

GOLDEN_BINARY = bytes.fromhex(
    "00000027 01000023 0069 00 0199 00000001 00000000 00000002 6869 0000000C 0005 746F706963 00000001 54"
)
GOLDEN_JSON = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)


def framed(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def read_one(data: bytes) -> Command:
    reader = FrameReader()
    (command,) = reader.feed(data)
    assert reader.failure is None
    assert reader.waiting_bytes == 0
    return command


def why_refused(data: bytes) -> str:
    reader = FrameReader()
    assert reader.feed(data) == []
    assert reader.failure is not None
    return reader.failure


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
commands = st.builds(
    Command,
    code=st.integers(0, 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    ext=st.none() | st.dictionaries(texts, texts.filter(bool), min_size=1, max_size=5),
    body=st.binary(max_size=40),
    remark=st.none() | texts.filter(bool),
    language=st.sampled_from(["JAVA", "CPP", "PYTHON", "GO"]),
    version=st.integers(0, 479),
    serialization=st.sampled_from([JSON, BINARY]),
)


def test_a_binary_frame_is_that_of_rocketmq() -> None:
    request = Command(105, 1, ext={"topic": "T"}, remark="hi", language="JAVA", serialization=BINARY)
    assert encode_frame(request) == GOLDEN_BINARY
    assert read_one(GOLDEN_BINARY) == request


def test_a_json_frame_is_that_of_rocketmq() -> None:
    request = Command(105, 0, ext={"topic": "T"}, language="JAVA")
    assert encode_frame(request) == framed(GOLDEN_JSON)
    assert read_one(framed(GOLDEN_JSON)) == request


@given(commands)
def test_a_command_survives_the_wire(command: Command) -> None:
    assert read_one(encode_frame(command)) == command


@given(st.lists(commands, max_size=4), st.data())
def test_where_a_stream_is_cut_makes_no_difference(sent: list[Command], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, received = FrameReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[start:end])
    assert received == sent
    assert reader.failure is None
    assert reader.waiting_bytes == 0


def test_byte_by_byte() -> None:
    reader = FrameReader()
    stream = GOLDEN_BINARY + framed(GOLDEN_JSON, b"body")
    received = [command for at in range(len(stream)) for command in reader.feed(stream[at : at + 1])]
    assert [command.body for command in received] == [b"", b"body"]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, 16_777_213, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_the_content_comes(length: int) -> None:
    assert "cannot be" in why_refused(struct.pack(">i", length))


def test_the_largest_frame_is_read() -> None:
    body = bytes(16_777_216 - 8 - len(GOLDEN_JSON))
    assert len(read_one(framed(GOLDEN_JSON, body)).body) == len(body)


def test_commands_in_front_of_a_bad_frame_are_good() -> None:
    reader = FrameReader()
    assert len(reader.feed(GOLDEN_BINARY + framed(GOLDEN_JSON) + struct.pack(">iI", -5, 0))) == 2
    assert reader.failure is not None
    assert reader.feed(GOLDEN_BINARY) == []


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">iI", 4, 1), "longer than its frame"),
        (framed(b"{", b""), "JSON header cannot be read"),
        (framed(b"[]"), "JSON header cannot be read"),
        (framed(b'{"code":"x"}'), "JSON header cannot be read"),
        (framed(b'{"opaque":2147483648}'), "JSON header cannot be read"),
        (framed(b'{"remark":"\xff"}'), "JSON header cannot be read"),
        (framed(b'{"x":' + b"[" * 100_000), "JSON header cannot be read"),
        (framed(b"{}", kind=2), "serialization 2 is unknown"),
        (framed(b"\0" * 16, kind=BINARY), "inside a field"),
        (framed(GOLDEN_BINARY[8:-1], kind=BINARY), "where 11 are left"),
        (framed(GOLDEN_BINARY[8:].replace(b"hi", b"h\xff"), kind=BINARY), "not UTF-8"),
        (framed(GOLDEN_BINARY[8:].replace(b"\0\5topic", b"\xff\xfftopic"), kind=BINARY), "field of -1 bytes"),
    ],
)
def test_a_header_that_cannot_be_read_ends_the_stream(frame: bytes, reason: str) -> None:
    assert reason in why_refused(frame)


@given(st.binary(max_size=64))
def test_any_bytes_are_commands_or_a_reason(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    assert reader.waiting_bytes <= len(data)


@given(st.sampled_from([JSON, BINARY]), st.binary(max_size=64))
def test_any_header_is_a_command_or_a_reason(kind: int, header: bytes) -> None:
    frame = framed(header, kind=kind)
    with suppress(FrameInvalid):
        assert isinstance(decode_frame(frame, 0, len(frame)), Command)


def test_numbers_booleans_and_null_among_the_fields() -> None:
    header = (
        b'{"code":310,"extFields":{"a":"g","e":3,"k":false,"m":true,"n":null,"o":-1.50,"p":{"x":[1]}},'
        b'"flag":0,"language":"CPP","opaque":7,"remark":"","version":63}\n'
    )
    read = read_one(framed(header))
    assert read.ext == {"a": "g", "e": "3", "k": "false", "m": "true", "o": "-1.50", "p": '{"x":[1]}'}
    assert (read.language, read.remark, read.version) == ("CPP", "", 63)


@pytest.mark.parametrize(
    ("given_language", "expected"), [('"GO"', "GO"), ("1", "CPP"), ("99", None), ('"COBOL"', None), ("null", None)]
)
def test_languages(given_language: str, expected: str | None) -> None:
    assert read_one(framed(b'{"code":1,"language":%s}' % given_language.encode())).language == expected


def test_numbers_given_as_texts() -> None:
    read = read_one(framed(b'{"code":"34","opaque":"12","flag":"2","version":"409"}'))
    assert (read.code, read.opaque, read.is_oneway, read.version) == (34, 12, True, 409)


def test_absent_and_empty_fields_are_not_the_same() -> None:
    assert b"extFields" not in encode_frame(Command(0))
    assert b'"extFields":{}' in encode_frame(Command(0, ext={}))
    assert b"remark" not in encode_frame(Command(0))


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_response_has_the_type_and_number_of_its_request(kind: int) -> None:
    made = answer(Command(105, 77, serialization=kind), Reply(17, "no topic", {"a": "1"}, b"x"))
    assert (made.code, made.opaque, made.serialization, made.is_response) == (17, 77, kind, True)
    assert read_one(encode_frame(made)) == made


def test_a_value_of_no_bytes_is_absent_in_a_binary_header() -> None:
    assert read_one(encode_frame(Command(1, ext={"a": "", "b": "x"}, serialization=BINARY))).ext == {"b": "x"}


def test_a_splitter_gives_places_in_one_buffer() -> None:
    splitter = FrameSplitter()
    stream = GOLDEN_BINARY * 3
    assert splitter.split(stream[:10]) == (stream[:10], [])
    buffer, bounds = splitter.split(stream[10:-1])
    assert [buffer[start:end] for start, end in bounds] == [GOLDEN_BINARY] * 2
    assert splitter.waiting_bytes == len(GOLDEN_BINARY) - 1
