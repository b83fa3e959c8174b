"""A record as a line of JSON."""

import base64
import json
import lzma
import zlib
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard

from embermq.columns.plain.json_lines import encode_line
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import new_rows
from embermq.format.frame import ScanStop, body_crc, encode
from embermq.format.message_json import KEYS, BodyForm, encode_in_order
from embermq.model.hosts import Host
from embermq.model.ids import message_id

BASE = 4096
BORN, STORE = Host("10.0.0.1", 50000), Host("192.168.1.7", 10911)


def line_of(form: BodyForm = BodyForm.BASE64, **changes: Any) -> tuple[dict[str, Any], bool]:
    fields: dict[str, Any] = {
        "physical_offset": BASE,
        "queue_id": 3,
        "queue_offset": 7,
        "topic": "orders",
        "body": b"hello",
        "properties": b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02TAGS\x01paid\x02region\x01eu",
        "born_timestamp": 1700,
        "born_host": BORN,
        "store_timestamp": 1701,
        "store_host": STORE,
        "flag": 5,
        "sys_flag": 8,
        "reconsume_times": 2,
        "prepared_transaction_offset": 99,
    }
    data = encode(**(fields | changes))
    rows = new_rows(1)
    assert scan_rows(data, BASE, 0, len(data), rows, np.zeros(0, np.int64), True, True)[2] == ScanStop.BUFFER_END
    line, is_whole = encode_line(data, BASE, rows[0].tolist(), form)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    return json.loads(line), is_whole


def test_every_field() -> None:
    found, is_whole = line_of()
    assert is_whole
    assert tuple(found) == KEYS
    assert found == {
        "topic": "orders",
        "queueId": 3,
        "queueOffset": 7,
        "physicalOffset": BASE,
        "msgId": message_id(STORE, BASE),
        "uniqKey": "U1",
        "tags": "paid",
        "keys": "k1 k2",
        "body": base64.b64encode(b"hello").decode(),
        "properties": {"KEYS": "k1 k2", "UNIQ_KEY": "U1", "TAGS": "paid", "region": "eu"},
        "flag": 5,
        "sysFlag": 8,
        "bornTimestamp": 1700,
        "bornHost": "10.0.0.1:50000",
        "storeTimestamp": 1701,
        "storeHost": "192.168.1.7:10911",
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 99,
        "bodyCrc": body_crc(b"hello"),
        "size": found["size"],
    }


def test_what_is_absent_is_null() -> None:
    found, _ = line_of(properties=b"")
    assert (found["uniqKey"], found["tags"], found["keys"], found["properties"]) == (None, None, None, {})


def test_hosts_of_the_newer_kind() -> None:
    found, _ = line_of(born_host=Host("2001:db8::1", 1), store_host=Host("::1", 10911))
    assert found["bornHost"] == "[2001:db8::1]:1"
    assert found["storeHost"] == "[::1]:10911"
    assert found["msgId"] == message_id(Host("::1", 10911), BASE)
    assert line_of(born_host=Host("2001:db8::1", 1))[0]["storeHost"] == str(STORE)


@pytest.mark.parametrize("text", ["", "plain", 'a\nb\t"\\', "größer 漢字 🙂", "\x00\x01\x1f\x7f"])
def test_bodies_as_text(text: str) -> None:
    found, _ = line_of(BodyForm.TEXT, body=text.encode())
    assert found["body"] == text
    assert "bodyBase64" not in found


def test_a_body_that_is_no_text_is_given_as_base64_all_the_same() -> None:
    found, is_whole = line_of(BodyForm.TEXT, body=b"\xff\x00")
    assert found["body"] is None
    assert base64.b64decode(found["bodyBase64"]) == b"\xff\x00"
    assert is_whole


@pytest.mark.parametrize(
    ("packed", "sys_flag"),
    [
        (zlib.compress(b"again " * 99), 1),
        (zlib.compress(b"again " * 99), 0x301),
        (lz4.frame.compress(b"again " * 99), 0x101),
        (zstandard.ZstdCompressor().compress(b"again " * 99), 0x201),
    ],
)
def test_compressed_bodies(packed: bytes, sys_flag: int) -> None:
    found, is_whole = line_of(body=packed, sys_flag=sys_flag)
    assert base64.b64decode(found["body"]) == b"again " * 99
    assert is_whole
    assert found["bodyCrc"] == body_crc(packed), "the sum is that of what is stored"
    assert line_of(BodyForm.TEXT, body=packed, sys_flag=sys_flag)[0]["body"] == "again " * 99
    raw, is_whole = line_of(BodyForm.RAW, body=packed, sys_flag=sys_flag)
    assert base64.b64decode(raw["body"]) == packed
    assert is_whole


@pytest.mark.parametrize("sys_flag", [1, 0x101, 0x201, 0x301, 0x701])
def test_a_body_that_does_not_decompress_is_given_as_stored_and_said_to_be(sys_flag: int) -> None:
    packed = lzma.compress(b"something else")
    found, is_whole = line_of(body=packed, sys_flag=sys_flag)
    assert base64.b64decode(found["body"]) == packed
    assert not is_whole
    assert line_of(BodyForm.RAW, body=packed, sys_flag=sys_flag)[1], "raw bodies are what they are"


def test_a_body_that_would_be_gigabytes_is_given_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.model.message.PAYLOAD_BYTES_MAX", 10_000)
    packed = zlib.compress(bytes(1 << 20))
    found, is_whole = line_of(body=packed, sys_flag=1)
    assert base64.b64decode(found["body"]) == packed
    assert not is_whole


@pytest.mark.parametrize(
    ("encoded", "found"),
    [
        (b"a\x01b\x02", {"a": "b"}),  # as older clients write them
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01\x02\x01b\x02c\x01d", {"c": "d"}),
        (b"a\x01\xff", {"a": "\ufffd"}),
    ],
)
def test_property_strings_that_a_map_does_not_give_back(encoded: bytes, found: dict[str, str]) -> None:
    shown, _ = line_of(properties=encoded)
    assert shown["properties"] == found
    assert "propertiesBase64" not in shown
    raw, _ = line_of(BodyForm.RAW, properties=encoded)
    assert base64.b64decode(raw["propertiesBase64"]) == encoded


@pytest.mark.parametrize("encoded", [b"", b"a\x01b", b"z\x01b\x02a\x01c\x01d"])
def test_property_strings_that_it_does(encoded: bytes) -> None:
    raw, _ = line_of(BodyForm.RAW, properties=encoded)
    assert "propertiesBase64" not in raw
    assert encode_in_order(raw["properties"]) == encoded
