"""Commit-log records, on records written by RocketMQ and on damaged ones."""

from typing import Any

import numpy as np
import pytest

from embermq.columns import rows as c
from embermq.columns.plain.scan import resync, scan_rows
from embermq.columns.rows import RecordColumns, new_rows
from embermq.format.frame import (
    BLANK_MAGIC,
    MESSAGE_MAGIC_V2,
    End,
    Frame,
    Padding,
    ScanStop,
    Torn,
    TornReason,
    body_crc,
    decode,
    encode,
    encode_blank,
    parse_delay_level,
    put_record,
    record_size,
    tag_code,
)
from embermq.format.java import string_hash
from embermq.model.hosts import Host, pack_host

BORN = Host("10.0.0.1", 50000)
STORE = Host("192.168.1.100", 10911)
UNIQ = "0A0000010001639CFE2B18B4AAC200A1"
V4_PHYSICAL = 1073741824
V4 = bytes.fromhex(
    "000000c7daa320a769c865ed0000000100000007000000000000000500000000"
    "40000000000000000000018bcfe568000a0000010000c3500000018bcfe5687b"
    "c0a8016400002a9f0000000000000000000000000000000e48656c6c6f20526f"
    "636b65744d5109546f7069635465737400554b455953016b31206b3202554e49"
    "515f4b4559013041303030303031303030313633394346453242313842344141"
    "43323030413102434c55535445520144656661756c74436c7573746572025441"
    "47530154616741"
)
V6 = bytes.fromhex(
    "00000087daa320a7770659160000000100000000000000000000000100000000"
    "00000228000000300000018bcfe5680020010db8000000000000000000000001"
    "0000c3510000018bcfe569c820010db800000000000000000000000200002a9f"
    "00000000000000000000000000000002763609546f7069635465737400095441"
    "47530154616742"
)
DELAYS = np.array([1000, 5000, 10000], dtype=np.int64)


def record(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "physical_offset": 0,
        "queue_id": 1,
        "queue_offset": 0,
        "topic": "T",
        "body": b"body",
        "properties": b"TAGS\x01A",
        "born_timestamp": 1700000000000,
        "born_host": BORN,
        "store_timestamp": 1700000000123,
        "store_host": STORE,
    }
    return encode(**(values | changes))


def test_body_crc() -> None:
    assert body_crc(b"Hello RocketMQ") == 0x69C865ED
    assert body_crc(b"a") == 0x68B7BE43
    assert body_crc(b"x") == 0x0CDC1683
    assert body_crc(b"") == 0


def test_encode_v4() -> None:
    properties = f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{UNIQ}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA".encode()
    v4 = record(
        physical_offset=V4_PHYSICAL,
        queue_offset=5,
        topic="TopicTest",
        flag=7,
        body=b"Hello RocketMQ",
        properties=properties,
    )
    assert v4 == V4


def test_encode_v6_computes_the_host_bits() -> None:
    changes: dict[str, Any] = {
        "physical_offset": 552,
        "queue_offset": 1,
        "topic": "TopicTest",
        "body": b"v6",
        "properties": b"TAGS\x01TagB",
        "born_host": Host("2001:db8::1", 50001),
        "store_host": Host("2001:db8::2", 10911),
        "store_timestamp": 1700000000456,
    }
    assert record(**changes) == V6
    assert record(sys_flag=0x31) == record(sys_flag=1)


class Interrupted(Exception):
    """The process ends here."""


class EndsAfterOneStore(bytearray):
    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        raise Interrupted


def test_size_and_magic_of_a_record_are_stored_last() -> None:
    """A record whose writing ends in the middle reads as nothing, whatever was there before."""
    packed = pack_host(STORE)
    parts = (97, body_crc(b"body"), b"body", b"\x01T", b"p", 0, 0, 100, 1, packed, 2, packed)
    out = EndsAfterOneStore(b"\x01" * 300)
    with pytest.raises(Interrupted):
        put_record(out, 100, *parts)
    assert out[108:197] != b"\x01" * 89
    assert isinstance(decode(out, 100, 300, physical_offset=100, check_crc=True), End)
    whole = bytearray(b"\x01" * 300)
    put_record(whole, 100, *parts)
    assert isinstance(decode(whole, 100, 300, physical_offset=100, check_crc=True), Frame)
    assert whole[:100] + whole[197:] == b"\x01" * 203


def test_decode_v4() -> None:
    frame = decode(V4, 0, len(V4), physical_offset=V4_PHYSICAL, check_crc=True)
    assert isinstance(frame, Frame)
    assert (frame.topic, frame.body, frame.queue_id, frame.flag) == ("TopicTest", b"Hello RocketMQ", 1, 7)
    assert (frame.queue_offset, frame.size, frame.end) == (5, 199, V4_PHYSICAL + 199)
    assert (frame.born_host, frame.store_host) == (BORN, STORE)
    assert (frame.born_timestamp, frame.store_timestamp) == (1700000000000, 1700000000123)
    assert frame.properties.endswith(b"TAGS\x01TagA")


def test_decode_v6_out_of_a_view() -> None:
    view = memoryview(b"xx" + V6 + b"yy")
    frame = decode(view, 2, len(view), physical_offset=552, check_crc=True)
    assert isinstance(frame, Frame)
    assert isinstance(frame.body, memoryview)
    assert (frame.sys_flag, bytes(frame.body), frame.born_host) == (0x30, b"v6", Host("2001:db8::1", 50001))


def test_v2_magic_has_a_wide_topic_length() -> None:
    raw = record(topic="t" * 200, magic=MESSAGE_MAGIC_V2)
    assert len(raw) == record_size(4, 200, 6) + 1
    frame = decode(raw, 0, len(raw), physical_offset=0, check_crc=True)
    assert isinstance(frame, Frame)
    assert frame.topic == "t" * 200


def test_blank() -> None:
    assert encode_blank(39).hex() == "00000027cbd43194"
    buffer = encode_blank(39) + bytes(31)
    assert decode(buffer, 0, 39, physical_offset=None, check_crc=False) == Padding(39)
    nonsense = (-7).to_bytes(4, "big", signed=True) + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    assert decode(nonsense, 0, 8, physical_offset=None, check_crc=False) == Padding(8)


@pytest.mark.parametrize("left", range(8))
def test_end_when_fewer_than_eight_bytes_are_left(left: int) -> None:
    assert decode(V4, 0, left, physical_offset=None, check_crc=True) == End()


def test_end_at_zeros() -> None:
    assert decode(bytes(8), 0, 8, physical_offset=0, check_crc=True) == End()


def patched(at: int, new: bytes, raw: bytes = V4) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (patched(4, b"\xda\xa3\x20\xa8"), TornReason.BAD_MAGIC),
        (patched(0, bytes(7) + b"\1"), TornReason.BAD_MAGIC),
        (patched(0, bytes(4)), TornReason.BAD_SIZE),
        (patched(0, b"\0\0\0\x5a"), TornReason.BAD_SIZE),
        (patched(0, b"\x7f\xff\xff\xff"), TornReason.BAD_SIZE),
        (patched(0, b"\xff\xff\xff\xff"), TornReason.BAD_SIZE),
        (patched(0, b"\0\0\0\xc6"), TornReason.BAD_LENGTHS),
        (patched(28, b"\1"), TornReason.BAD_POSITION),
        (patched(39, b"\x30"), TornReason.BAD_LENGTHS),
        (patched(84, b"\xff\xff\xff\xff"), TornReason.BAD_LENGTHS),
        (patched(84, b"\x7f\xff\xff\xff"), TornReason.BAD_LENGTHS),
        (patched(102, b"\0"), TornReason.BAD_TOPIC),
        (patched(102, b"\x80"), TornReason.BAD_TOPIC),
        (patched(105, b"\0"), TornReason.BAD_TOPIC),
        (patched(112, b"\xff\xff"), TornReason.BAD_LENGTHS),
        (patched(112, b"\0\x56"), TornReason.BAD_LENGTHS),
        (patched(114, bytes(85)), TornReason.BAD_PROPERTIES),
        (patched(190, bytes(9)), TornReason.BAD_PROPERTIES),
        (patched(90, b"X"), TornReason.BAD_CRC),
        (patched(8, b"\xe9"), TornReason.BAD_CRC),
    ],
)
def test_torn(raw: bytes, reason: TornReason) -> None:
    assert decode(raw, 0, len(raw), physical_offset=V4_PHYSICAL, check_crc=True) == Torn(0, reason)
    rows = new_rows(2)
    assert scan_rows(raw, V4_PHYSICAL, 0, len(raw), rows, DELAYS, True, True) == (0, 0, reason)


def test_nul_inside_a_property_value_is_fine() -> None:
    raw = record(properties=b"a\x01\0\x02TAGS\x01A")
    assert isinstance(decode(raw, 0, len(raw), physical_offset=0, check_crc=True), Frame)


def test_scan_rows_of_the_worked_example() -> None:
    rows = new_rows(4)
    data = bytes(3) + V4 + encode_blank(100)
    stop = scan_rows(data, V4_PHYSICAL - 3, 3, len(data), rows, DELAYS, True, True)
    assert stop == (1, 202, ScanStop.BLANK)
    batch = RecordColumns(data, V4_PHYSICAL - 3, rows[:1])
    assert batch.topic(0) == "TopicTest"
    assert batch.body(0) == b"Hello RocketMQ"
    assert batch.keys(0) == [UNIQ, "k1", "k2"]
    assert batch.tags(0) == "TagA"
    row = rows[0]
    assert row[c.C_PHYSICAL] == row[c.C_STORED_PHYSICAL] == V4_PHYSICAL
    assert (row[c.C_SIZE], row[c.C_QUEUE_ID], row[c.C_QUEUE_OFFSET], row[c.C_FLAG]) == (199, 1, 5, 7)
    assert (row[c.C_TAG_CODE], row[c.C_STORE_TIME]) == (2598919, 1700000000123)
    assert row[c.C_BORN_TIME] == 1700000000000


def test_scan_rows_stops() -> None:
    first = record()
    second = record(physical_offset=len(first), properties=b"")
    data = first + second
    rows = new_rows(2)
    assert scan_rows(data, 0, 0, len(data), rows, DELAYS, True, True) == (2, len(data), ScanStop.BUFFER_END)
    assert rows[1, c.C_KEYS_LEN] == rows[1, c.C_UNIQ_LEN] == rows[1, c.C_TAGS_LEN] == -1
    assert RecordColumns(data, 0, rows).slice(1, 2).keys(0) == []
    stop = scan_rows(data, 0, 0, len(data), rows[:1], DELAYS, True, True)
    assert stop == (1, len(first), ScanStop.ROWS_FULL)
    padded = data + bytes(8)
    for end in (len(padded), len(data) + 3):
        stop = scan_rows(padded, 0, 0, end, new_rows(3), DELAYS, True, True)
        assert stop == (2, len(data), ScanStop.NOTHING)


def test_later_property_wins_and_empty_ones_are_dropped() -> None:
    raw = record(properties=b"TAGS\x01A\x02TAGS\x01B\x02TAGS\x01\x02\x01KEYS\x02KEYS\x01 a  b \x02")
    rows = new_rows(1)
    scan_rows(raw, 0, 0, len(raw), rows, DELAYS, True, True)
    batch = RecordColumns(raw, 0, rows)
    assert batch.tags(0) == "B"
    assert batch.keys(0) == ["a", "b"]
    assert rows[0, c.C_TAG_CODE] == string_hash("B")


@pytest.mark.parametrize(
    ("delay", "code"),
    [(b"3", 1700000010123), (b"99", 1700000010123), (b"+1", 1700000001123), (b"0", 65), (b"-1", 65)],
)
def test_tag_code_of_a_parked_record_is_its_due_time(delay: bytes, code: int) -> None:
    assert tag_code(b"SCHEDULE_TOPIC_XXXX", b"A", delay, 1700000000123, DELAYS) == code
    assert tag_code(b"SCHEDULE_TOPIC_XXX", b"A", delay, 1700000000123, DELAYS) == 65
    assert tag_code(b"SCHEDULE_TOPIC_XXXX", None, None, 1700000000123, DELAYS) == 0


@pytest.mark.parametrize(
    ("due", "code"),
    [
        (b"1700000000123", 1700000000123),
        (b"1" * 18, int("1" * 18)),
        (b"1" * 19, 65),
        (b"0", 65),
        (b"+1", 65),
        (b"", 65),
    ],
)
def test_tag_code_of_a_record_in_the_timer_topic_is_its_due_time(due: bytes, code: int) -> None:
    assert tag_code(b"rmq_sys_wheel_timer", b"A", None, 5, DELAYS, due) == code
    assert tag_code(b"rmq_sys_wheel_timer", b"A", None, 5, DELAYS) == 65
    assert tag_code(b"rmq_sys_wheel_times", b"A", None, 5, DELAYS, due) == 65


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (b"", None),
        (b"+", None),
        (b"-", None),
        (b" 1", None),
        (b"1_0", None),
        (b"2147483647", 2147483647),
        (b"2147483648", None),
        (b"-2147483648", -2147483648),
        (b"007", 7),
    ],
)
def test_parse_delay_level(text: bytes, level: int | None) -> None:
    assert parse_delay_level(text) == level


def test_resync_finds_the_next_record_that_was_written_for_its_place() -> None:
    good = record(physical_offset=1000 + 17)
    decoy = record(physical_offset=5)
    data = b"\xda\xa3\x20\xa7" * 4 + b"z" + good + decoy
    assert resync(data, 1000, 0, len(data)) == 17
    assert resync(data, 1000, 17, len(data)) == 17
    assert resync(data, 1000, 18, len(data)) == -1
    assert resync(data, 1000, 0, len(data) - len(decoy) - 1) == -1
