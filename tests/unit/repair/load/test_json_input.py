"""A line of JSON as a message, and what is said of lines that are none."""

import base64
import json
import zlib
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from embermq.columns.plain.json_lines import encode_line
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import new_rows
from embermq.format.frame import Frame, body_crc, decode, encode
from embermq.format.message_json import BodyForm
from embermq.model.message import decompress
from embermq.repair.load.json_input import LineInvalid, decode_line
from tests.columns.strategies import messages


def line(**fields: Any) -> bytes:
    return json.dumps({"topic": "t"} | fields).encode()


def invalid(raw: bytes, *, text_bodies: bool = False) -> tuple[int, str]:
    with pytest.raises(LineInvalid) as caught:
        decode_line(raw, text_bodies=text_bodies)
    return caught.value.column, caught.value.reason


@given(messages())
def test_a_raw_line_gives_back_every_field(fields: dict[str, Any]) -> None:
    data = encode(physical_offset=0, **fields)
    rows = new_rows(1)
    if scan_rows(data, 0, 0, len(data), rows, np.zeros(0, np.int64), True, True)[0] == 0:
        return  # Properties with a NUL of their own are no record.
    written, _ = encode_line(data, 0, rows[0].tolist(), BodyForm.RAW)
    found = decode_line(written, text_bodies=False)
    message, frame = found.message, decode(data, 0, len(data), physical_offset=0, check_crc=True)
    assert isinstance(frame, Frame)
    assert found.store_timestamp == frame.store_timestamp
    assert (message.topic, message.body, message.encoded_properties) == (frame.topic, frame.body, frame.properties)
    assert (message.queue_id, message.flag, message.sys_flag) == (frame.queue_id, frame.flag, frame.sys_flag)
    assert (message.born_timestamp, message.born_host) == (frame.born_timestamp, frame.born_host)
    assert (message.store_host, message.reconsume_times) == (frame.store_host, frame.reconsume_times)
    assert message.prepared_transaction_offset == frame.prepared_transaction_offset


def test_a_line_of_an_earlier_dump() -> None:
    """There the extra keys stood beside those they stand in for, not at the end."""
    written = (
        b'{"topic":"orders","queueId":1,"queueOffset":0,"physicalOffset":0,"msgId":"7F00000100002A9F0000000000000000"'
        b',"uniqKey":null,"tags":"a","keys":null,"body":null,"bodyBase64":"/wA=","properties":{"TAGS":"a"}'
        b',"propertiesBase64":"VEFHUwFhAg==","flag":0,"sysFlag":0,"bornTimestamp":5,"bornHost":"127.0.0.1:10911"'
        b',"storeTimestamp":6,"storeHost":"127.0.0.1:10911","reconsumeTimes":0,"preparedTransactionOffset":0'
        b',"bodyCrc":%d,"size":112}\n'
    ) % body_crc(b"\xff\x00")
    found = decode_line(written, text_bodies=True)
    message = found.message
    assert (message.body, message.encoded_properties) == (b"\xff\x00", b"TAGS\x01a\x02")
    assert (message.queue_id, message.born_timestamp, found.store_timestamp) == (1, 5, 6)


def test_a_topic_is_enough() -> None:
    found = decode_line(b'{"topic":"t"}', text_bodies=False)
    assert (found.message.topic, found.message.body, found.message.queue_id) == ("t", b"", 0)
    assert found.message.born_timestamp is None
    assert found.store_timestamp is None


def test_tags_and_keys_may_stand_on_their_own() -> None:
    message = decode_line(line(body="hi", tags="paid", keys="k1 k2", uniqKey="U"), text_bodies=True).message
    assert message.body == b"hi"
    assert message.all_properties() == {"KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "paid"}


def test_what_a_store_gives_a_message_is_ignored() -> None:
    ignored = {"queueOffset": 5, "physicalOffset": 6, "msgId": "x", "size": 7, "brokerName": "a"}
    assert decode_line(line(**ignored), text_bodies=False) == decode_line(line(), text_bodies=False)


@pytest.mark.parametrize(
    ("given_time", "ms"),
    [
        (1700000000123, 1700000000123),
        ("2023-11-14T22:13:20.123Z", 1700000000123),
        (-5, -5),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_times(given_time: int | str, ms: int) -> None:
    found = decode_line(line(bornTimestamp=given_time, storeTimestamp=given_time), text_bodies=False)
    assert found.message.born_timestamp == found.store_timestamp == ms


@pytest.mark.parametrize("sys_flag", [1, 0x101, 0x201, 0x301])
def test_a_decompressed_body_is_compressed_again(sys_flag: int) -> None:
    plain = base64.b64encode(b"again " * 50).decode()
    message = decode_line(line(body=plain, sysFlag=sys_flag, bodyCrc=1), text_bodies=False).message
    assert len(message.body) < 300
    assert decompress(message.body, sys_flag) == b"again " * 50


@pytest.mark.parametrize(
    ("packed", "sys_flag"),
    [
        (zlib.compress(b"x" * 50), 1),
        (lz4.frame.compress(b"x" * 50), 0x101),
        (zstandard.ZstdCompressor().compress(b"x"), 0x201),
        (b"compressed by nothing at all", 0x701),
    ],
)
def test_a_compressed_body_is_kept_as_it_is(packed: bytes, sys_flag: int) -> None:
    raw = line(body=base64.b64encode(packed).decode(), sysFlag=sys_flag, bodyCrc=body_crc(packed))
    assert decode_line(raw, text_bodies=False).message.body == packed


@pytest.mark.parametrize(
    ("raw", "column", "reason"),
    [
        (b'{"topic":"t"', 13, "no JSON: Expecting ',' delimiter"),
        (b'{"topic":"t",}', 14, "no JSON: Expecting property name"),
        (b'{"topic": tt}', 11, "no JSON: Expecting value"),
        (b'{"topic":"t"} {}', 15, "no JSON: Extra data"),
        ('{"tags":"größer","topic":"t"'.encode() + b"\xff}", 29, "byte 0xff is not UTF-8"),
        (b'{"topic":"\\ud800"}', 1, "lone surrogate"),
        (b"[" * 100_000, 1, "nested too deeply"),
        (b"[]", 1, "an object with the key topic is expected"),
        (b'"topic"', 1, "an object with the key topic is expected"),
        (b'{"queueId":1}', 1, "the key topic is missing"),
        (b'{"topic":"t","queueid":1}', 14, "no message has a key 'queueid'; did you mean queueId?"),
        (b'{"topic":5}', 2, "topic: Expected `str`"),
        (b'{"topic":"t","queueId":1.5}', 14, "queueId: Expected"),
        (b'{"topic":"t","flag":2147483648}', 14, "flag: Expected"),
        (b'{"topic":"t","bornTimestamp":99999999999999999999}', 14, "bornTimestamp: Expected"),
        (b'{"topic":"t","properties":{"a":1}}', 14, "properties: Expected `str`"),
        (b'{"topic":"t","properties":{"a":""}}', 14, "property 'a' is empty or holds a separator"),
        (b'{"topic":"t","properties":{"a\\u0001":"b"}}', 14, "holds a separator"),
        (b'{"topic":"t","body":"no base64!"}', 14, "give --body text"),
        (b'{"topic":"t","body":"aGk"}', 14, "body is no base64"),
        (b'{"topic":"t","bodyBase64":"!"}', 14, "bodyBase64 is no base64"),
        (b'{"topic":"t","propertiesBase64":"!"}', 14, "propertiesBase64 is no base64"),
        (b'{"topic":"t","bornHost":"localhost:1"}', 14, "bornHost 'localhost:1' is no host"),
        (b'{"topic":"t","storeHost":"1.2.3.4:9999999999"}', 14, "storeHost"),
        (b'{"topic":"t","bornTimestamp":"yesterday"}', 14, "bornTimestamp 'yesterday' is no time"),
        (b'{"topic":"t","tags":"a","properties":{"TAGS":"b"}}', 14, "tags is 'a', and properties say TAGS = 'b'"),
        (b'{"topic":"t","body":"aGk=","sysFlag":1793}', 28, "names the compression 0x700"),
    ],
)
def test_lines_that_are_no_message(raw: bytes, column: int, reason: str) -> None:
    said = invalid(raw)
    assert said[0] == column, said
    assert reason in said[1]


def test_a_text_taken_for_base64_is_noticed_by_its_sum() -> None:
    raw = line(body="abcd", bodyCrc=body_crc(b"abcd"))
    assert decode_line(raw, text_bodies=True).message.body == b"abcd"
    assert "was the dump made with --body text?" in invalid(raw)[1]
    other = line(body="aGk=", bodyCrc=body_crc(b"hi"))
    assert decode_line(other, text_bodies=False).message.body == b"hi"
    assert "was the dump made without --body text?" in invalid(other, text_bodies=True)[1]


@given(st.binary(max_size=60))
def test_any_bytes_are_explained(raw: bytes) -> None:
    with pytest.raises(LineInvalid) as caught:
        decode_line(raw, text_bodies=False)
    assert caught.value.column >= 1
    assert caught.value.reason


# -- times in another unit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["storeTimestamp", "bornTimestamp"])
@pytest.mark.parametrize(
    ("number", "unit"), [(1_700_000_000, "seconds"), (1_700_000_000_123_456, "micro"), (17 * 10**17, "nano")]
)
def test_a_time_in_another_unit_is_a_mistake(key: str, number: int, unit: str) -> None:
    raw = line(**{key: number})
    column, reason = invalid(raw)
    assert column == raw.index(key.encode())
    assert reason.startswith(f"{key} {number} looks like {unit}")
    assert "times are in milliseconds: 1700000000" in reason


@pytest.mark.parametrize("number", [0, 5, 10**8 - 1, 10**11, 1_700_000_000_123, -1])
def test_other_times_are_taken(number: int) -> None:
    found = decode_line(line(storeTimestamp=number, bornTimestamp=number), text_bodies=False)
    assert (found.store_timestamp, found.message.born_timestamp) == (number, number)


def test_in_a_dump_a_time_is_what_it_was() -> None:
    """A client that sent seconds is in the log, and has to come out of a copy the same."""
    found = decode_line(line(bornTimestamp=1_700_000_000, physicalOffset=0), text_bodies=False)
    assert found.message.born_timestamp == 1_700_000_000
