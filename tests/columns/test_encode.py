"""encode_batch == encode_run, byte for byte, and what is written can be read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.encode import encode_batch
from embermq.columns.plain import runs as r
from embermq.columns.plain.runs import RunBytes, encode_run
from embermq.columns.rows import Rows
from embermq.format.frame import Frame, decode
from embermq.model.hosts import Host, pack_host, unpack_host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BODIES, I32, I64, PROPERTIES, TIMES

MEMORY = GuardedMemory(1 << 16)
STORE_HOST = pack_host(Host("192.168.1.100", 10911))
STORE_HOST_V6 = pack_host(Host("fe80::1", 10911))
HOSTS = st.sampled_from([b"", pack_host(Host("10.0.0.7", 50_000)), pack_host(Host("2001:db8::7", -1))])
QUEUES = 3
# Body, topic, properties, born host; queue, queue id, flag, sysFlag, born time, consumed again, prepared offset.
MESSAGES = st.tuples(
    BODIES,
    st.sampled_from([b"T", b"TopicTest", b"t" * 127]),
    PROPERTIES,
    HOSTS,
    st.integers(0, QUEUES - 1),
    I32,
    I32,
    st.sampled_from([0, 1, 4, 8, 12, 0x30, 0x301]),
    TIMES | st.just(r.BORN_NOW),
    I32,
    I64,
)


def run_of(messages: list[tuple[Any, ...]]) -> tuple[RunBytes, Rows]:
    """Parts with something in between, as in packed messages; bodies and topics in the same bytes."""
    payload, properties = bytearray(b"head"), bytearray(b"x")
    rows = np.zeros((len(messages), r.N_RUN_COLUMNS), np.int64)
    for i, (body, topic, text, host, *numbers) in enumerate(messages):
        places = []
        for source, part in ((payload, body), (payload, topic), (properties, text), (properties, host)):
            places += [len(source), len(part)]
            source += part
        rows[i] = [*places[:6], *numbers, *places[6:]]
    return RunBytes(bytes(payload), bytes(payload), bytes(properties)), rows


def assert_same_run(
    messages: list[tuple[Any, ...]],
    room: int,
    start: int,
    base: int,
    store_time: int,
    store_host: bytes = STORE_HOST,
) -> tuple[int, int]:
    parts, rows = run_of(messages)
    ours, theirs = MEMORY.hold(bytes(room)), bytearray(room)
    our_offsets, their_offsets = np.array([5, 0, 1 << 40]), np.array([5, 0, 1 << 40])
    our_places, their_places = np.zeros((len(rows), 3), np.int64), np.zeros((len(rows), 3), np.int64)
    kernel = encode_batch(ours, start, room, base, parts, rows, our_offsets, store_time, store_host, our_places)
    twin = encode_run(theirs, start, room, base, parts, rows, their_offsets, store_time, store_host, their_places)
    assert kernel == twin
    assert ours.tobytes() == bytes(theirs)
    assert np.array_equal(our_offsets, their_offsets)
    assert np.array_equal(our_places, their_places)
    return kernel


@settings(max_examples=200, deadline=None)
@given(
    st.lists(MESSAGES, max_size=8),
    st.integers(0, 4000),
    st.integers(0, 50),
    st.sampled_from([0, 1 << 40]),
    TIMES,
    st.sampled_from([STORE_HOST, STORE_HOST_V6]),
)
def test_any_run(
    messages: list[tuple[Any, ...]], room: int, start: int, base: int, store_time: int, store_host: bytes
) -> None:
    assert_same_run(messages, room, min(start, room), base, store_time, store_host)


def message(body: bytes = b"Hello RocketMQ", host: bytes = b"", **changes: int) -> tuple[Any, ...]:
    values = {"queue": 1, "queue_id": 7, "flag": 0, "sys_flag": 0, "born": 1, "again": 0, "tx": 0}
    return (body, b"TopicTest", b"TAGS\x01TagA", host, *(values | changes).values())


def test_what_was_written_is_a_record() -> None:
    parts, rows = run_of([message(), message(b"", born=r.BORN_NOW)])
    out = np.zeros(400, np.uint8)
    offsets, placed = np.array([0, 41, 0]), np.zeros((2, 3), np.int64)
    time_ms = 1_700_000_000_123
    count, end = encode_batch(out, 10, 400, 990, parts, rows, offsets, time_ms, STORE_HOST, placed)
    assert count == 2
    assert placed.tolist() == [[1000, 123, 41], [1123, 109, 42]]
    assert end == 10 + 123 + 109
    for at, physical, queue_offset, body, born in ((10, 1000, 41, b"Hello RocketMQ", 1), (133, 1123, 42, b"", time_ms)):
        frame = decode(out.tobytes(), at, 400, physical_offset=physical, check_crc=True)
        assert isinstance(frame, Frame)
        assert (frame.body, frame.topic, frame.queue_id, frame.queue_offset) == (body, "TopicTest", 7, queue_offset)
        assert frame.store_host == frame.born_host == Host("192.168.1.100", 10911)
        assert (frame.born_timestamp, frame.store_timestamp) == (born, time_ms)


@pytest.mark.parametrize("store_host", [STORE_HOST, STORE_HOST_V6], ids=["v4", "v6"])
@pytest.mark.parametrize("born_host", [b"", STORE_HOST, STORE_HOST_V6], ids=["own", "v4", "v6"])
def test_the_hosts_of_a_record(born_host: bytes, store_host: bytes) -> None:
    """A caller's own address bits do not count: they would make the record unreadable."""
    parts, rows = run_of([message(host=born_host, sys_flag=0x31)])
    out, placed = np.zeros(400, np.uint8), np.zeros((1, 3), np.int64)
    _, end = encode_batch(out, 0, 400, 0, parts, rows, np.zeros(2, np.int64), 5, store_host, placed)
    frame = decode(out.tobytes(), 0, 400, physical_offset=0, check_crc=True)
    assert isinstance(frame, Frame)
    assert frame.born_host == unpack_host(born_host or store_host)
    assert frame.store_host == unpack_host(store_host)
    assert (frame.size, frame.body, frame.reconsume_times) == (end, b"Hello RocketMQ", 0)
    assert frame.sys_flag & 1


def test_room_is_left_for_a_blank() -> None:
    size = 91 + 14 + 9 + 9
    run = [message(), message()]
    assert assert_same_run(run, 2 * size + 8, 0, 0, 1) == (2, 2 * size)
    assert assert_same_run(run, 2 * size + 7, 0, 0, 1) == (1, size)
    assert assert_same_run(run, size + 7, 0, 0, 1) == (0, 0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (r.R_BODY_LEN, -1),
        (r.R_BODY_LEN, 1 << 62),
        (r.R_BODY_AT, -1),
        (r.R_BODY_AT, 14),
        (r.R_TOPIC_LEN, 0),
        (r.R_TOPIC_LEN, 128),
        (r.R_TOPIC_AT, -1),
        (r.R_TOPIC_AT, 19),
        (r.R_PROPS_LEN, -1),
        (r.R_PROPS_LEN, 32768),
        (r.R_PROPS_LEN, 100),
        (r.R_PROPS_AT, 10),
        (r.R_PROPS_AT, 1 << 62),
        (r.R_QUEUE, -1),
        (r.R_QUEUE, 3),
        (r.R_HOST_LEN, -1),
        (r.R_HOST_LEN, 7),
        (r.R_HOST_LEN, 1 << 62),
        (r.R_HOST_LEN, 20),
        (r.R_HOST_AT, -1),
        (r.R_HOST_AT, 11),
    ],
)
def test_rows_that_cannot_be_are_refused(column: int, value: int) -> None:
    parts, rows = run_of([message(host=STORE_HOST)])
    rows[0, column] = value
    out, offsets, placed = np.zeros(1 << 16, np.uint8), np.zeros(3, np.int64), np.zeros((1, 3), np.int64)
    with pytest.raises(AssertionError):
        encode_batch(out, 0, len(out), 0, parts, rows, offsets, 1, STORE_HOST, placed)
    assert not out.any()
