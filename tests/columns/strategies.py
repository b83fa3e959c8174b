"""Bytes for kernels and twins: good records, damaged ones, and bytes that only look like records."""

import struct
from typing import Any

from hypothesis import strategies as st

from embermq.format.frame import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    encode,
    encode_blank,
)
from embermq.model.hosts import Host

BASE = 1 << 30
HOSTS = st.sampled_from([Host("10.0.0.1", 50000), Host("2001:db8::1", 10911)])
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), I64)
TOPICS = st.one_of(
    st.sampled_from(["T", "TopicTest", "%RETRY%group", SCHEDULE_TOPIC.decode(), "SCHEDULE_TOPIC_XXXY", "t" * 127]),
    st.sampled_from([TIMER_TOPIC.decode(), "rmq_sys_wheel_times"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
)
NAMES = st.sampled_from(
    [
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"DELAY",
        b"TIMER_OUT_MS",
        b"TAGZ",
        b"UNIQ_KEX",
        b"DELAZ",
        b"TIMER_OUT_MX",
        b"a",
        b"",
    ]
)
VALUES = st.one_of(
    st.sampled_from([b"", b"A", b"3", b"99", b"+2", b"-1", b"-", b"k1 k2", b" a  b ", b"2147483648", b"0" * 70 + b"1"]),
    st.sampled_from([b"1700000000123", b"0", b"9" * 18, b"1" * 19, b"170000000012x"]),
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
)
PAIRS = st.lists(st.tuples(NAMES, VALUES).map(b"\x01".join), max_size=6).map(b"\x02".join)
PROPERTIES = st.one_of(PAIRS, PAIRS, PAIRS.map(lambda pairs: pairs + b"\x02"), st.binary(max_size=40))
BODIES = st.one_of(
    st.binary(max_size=80),
    st.integers(0, 600).map(lambda n: bytes(k * 7 & 255 for k in range(n))),
    st.just(struct.pack(">ii", 200, MESSAGE_MAGIC) * 3),
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Everything of a record but its place."""
    return {
        "queue_id": draw(I32),
        "queue_offset": draw(st.one_of(st.integers(0, 1000), I64)),
        "topic": draw(TOPICS.filter(lambda topic: len(topic.encode()) <= 127)),
        "body": draw(BODIES),
        "properties": draw(PROPERTIES),
        "born_timestamp": draw(TIMES),
        "born_host": draw(HOSTS),
        "store_timestamp": draw(TIMES),
        "store_host": draw(HOSTS),
        "flag": draw(I32),
        "sys_flag": draw(st.sampled_from([0, 1, 4, 8, 12, 0x301, -1])),
        "reconsume_times": draw(I32),
        "prepared_transaction_offset": draw(I64),
        "magic": draw(st.sampled_from([MESSAGE_MAGIC, MESSAGE_MAGIC, MESSAGE_MAGIC_V2])),
    }


@st.composite
def logs(draw: st.DrawFn, max_records: int = 6) -> bytes:
    """Records one after another from physical offset BASE, with some kind of end."""
    data = b""
    for message in draw(st.lists(messages(), max_size=max_records)):
        data += encode(physical_offset=BASE + len(data), **message)
    return data + draw(st.sampled_from([b"", b"", bytes(64), encode_blank(39) + bytes(31), b"\0\0\0", b"\xff" * 40]))


@st.composite
def hostile_logs(draw: st.DrawFn) -> bytes:
    """Logs with bytes overwritten, lengths made wild, and ends cut off."""
    data = bytearray(draw(logs(max_records=3)))
    if len(data) >= 8:
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(data) - 1))
            new = draw(
                st.one_of(
                    st.binary(min_size=1, max_size=8),
                    I32.map(lambda value: struct.pack(">i", value)),
                    st.sampled_from([bytes(1), bytes(40), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"]),
                )
            )
            data[at : at + len(new)] = new[: len(data) - at]
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@st.composite
def impostors(draw: st.DrawFn) -> bytes:
    """Random bytes behind a believable size and magic: every later field is arbitrary."""
    magic = draw(st.sampled_from([MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC, 0]))
    tail = draw(st.binary(min_size=0, max_size=300))
    size = draw(st.one_of(st.just(8 + len(tail)), st.integers(80, 320), I32))
    lengths = draw(st.lists(st.tuples(st.sampled_from([36, 84, 96, 108, 88, 89, 90]), I32), max_size=3))
    data = bytearray(struct.pack(">ii", size, magic) + tail)
    if draw(st.booleans()):  # believable up to the length of the body
        head = struct.pack(">qi", BASE, draw(st.sampled_from([0, 0x10, 0x20, 0x30])))
        data[28:40] = head[: max(0, len(data) - 28)]
        data[84:88] = struct.pack(">i", draw(st.integers(0, 40)))[: max(0, len(data) - 84)]
    for at, value in lengths:
        small = draw(st.sampled_from([value, value & 0x3F, value & 0xFF, 0]))
        data[at : at + 4] = struct.pack(">I", small & 0xFFFF_FFFF)[: max(0, len(data) - at)]
    return bytes(data)
