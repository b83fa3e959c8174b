"""extFields as typed headers, both ways."""

import msgspec
import pytest

from embermq.errors import HeaderInvalid
from embermq.remoting import I32, I64, NoHeader, decode_header, encode_header, is_true


class Header(msgspec.Struct, rename="camel", kw_only=True):
    topic: str
    queue_id: I32
    commit_offset: I64 = 0
    unit_mode: bool = False
    batch: bool | None = None
    max_times: I32 | None = None


def test_texts_become_numbers_and_booleans() -> None:
    fields = {"topic": "T", "queueId": "-3", "commitOffset": "9223372036854775807", "unitMode": "TRUE", "bname": "b"}
    assert decode_header(Header, fields) == Header(topic="T", queue_id=-3, commit_offset=2**63 - 1, unit_mode=True)


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("True", True), ("1", True), ("0", False), ("", False)])
def test_booleans_are_read_as_java_and_old_clients_mean_them(text: str, expected: bool) -> None:
    fields = {"topic": "T", "queueId": "0", "batch": text}
    assert decode_header(Header, fields).batch is expected
    assert fields["batch"] == text
    assert is_true(text) is expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (None, "topic"),
        ({}, "topic"),
        ({"topic": "T"}, "queueId"),
        ({"topic": "T", "queueId": "x"}, "queueId"),
        ({"topic": "T", "queueId": ""}, "queueId"),
        ({"topic": "T", "queueId": "1.5"}, "queueId"),
        ({"topic": "T", "queueId": "2147483648"}, "queueId"),
        ({"topic": "T", "queueId": "1", "maxTimes": "many"}, "maxTimes"),
    ],
)
def test_a_field_that_is_missing_or_unreadable_is_named(fields: dict[str, str] | None, field: str) -> None:
    with pytest.raises(HeaderInvalid) as caught:
        decode_header(Header, fields)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_every_value_is_written_as_a_text() -> None:
    header = Header(topic="T", queue_id=1, unit_mode=True, batch=False)
    assert encode_header(header) == {
        "topic": "T",
        "queueId": "1",
        "commitOffset": "0",
        "unitMode": "true",
        "batch": "false",
    }


def test_no_header_takes_anything() -> None:
    assert decode_header(NoHeader, {"x": "y"}) == NoHeader()
