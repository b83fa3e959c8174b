"""scan == scan_rows and resync == resync, on good, damaged and hostile bytes."""

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.scan import resync, scan
from embermq.columns.plain import scan as plain
from embermq.columns.rows import new_rows
from embermq.format.frame import ScanStop, TornReason, encode
from embermq.model.hosts import Host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, hostile_logs, impostors, logs

DELAYS = np.array([1000, 5000, 10000], dtype=np.int64)
NO_DELAYS = np.zeros(0, dtype=np.int64)
HOST = Host("10.0.0.1", 50000)
MEMORY = GuardedMemory(1 << 16)


def assert_same_scan(data: bytes, start: int = 0, end: int | None = None, rows: int = 8) -> tuple[int, int, int]:
    end = len(data) if end is None else end
    guarded = MEMORY.hold(data[:end])
    for check_crc, check_position in ((True, True), (False, True), (True, False), (False, False)):
        for delays in (DELAYS, NO_DELAYS):
            ours, theirs = new_rows(rows), new_rows(rows)
            kernel = scan(guarded, BASE, start, end, ours, delays, check_crc, check_position)
            twin = plain.scan_rows(data, BASE, start, end, theirs, delays, check_crc, check_position)
            assert kernel == twin
            assert np.array_equal(ours[: kernel[0]], theirs[: kernel[0]])
    return scan(data, BASE, start, end, new_rows(rows), DELAYS, True, True)


def records(count: int, body: bytes = b"body") -> list[bytes]:
    made: list[bytes] = []
    for i in range(count):
        made.append(
            encode(
                physical_offset=BASE + sum(map(len, made)),
                queue_id=i,
                queue_offset=i,
                topic="TopicTest",
                body=body * (i + 1),
                properties=b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x010A000001",
                born_timestamp=1,
                born_host=HOST,
                store_timestamp=1_700_000_000_000 + i,
                store_host=HOST,
            )
        )
    return made


@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(0, 7))
def test_good_logs(data: bytes, rows: int) -> None:
    assert_same_scan(data, rows=rows)


@settings(max_examples=300, deadline=None)
@given(hostile_logs())
def test_hostile_logs(data: bytes) -> None:
    assert_same_scan(data)


@settings(max_examples=300, deadline=None)
@given(impostors())
def test_impostors(data: bytes) -> None:
    assert_same_scan(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.data())
def test_random_bytes_from_anywhere(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(data)))
    assert_same_scan(data, start, draw.draw(st.integers(start, len(data))))


def test_a_log_cut_at_every_byte() -> None:
    made = records(3)
    data = b"".join(made)
    whole = [sum(map(len, made[:k])) for k in range(4)]
    for end in range(len(data) + 1):
        count, at, code = assert_same_scan(data, 0, end)
        assert count == sum(end >= edge for edge in whole[1:])
        assert at == whole[count]
        if end == at:
            assert code == ScanStop.BUFFER_END
        else:
            assert code == (ScanStop.NOTHING if end - at < 8 else TornReason.BAD_SIZE)


def test_every_byte_made_wild_in_turn() -> None:
    data = b"".join(records(2))
    for at in range(len(records(1)[0])):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            assert_same_scan(damaged)
            for width in (2, 4):
                assert_same_scan(data[:at] + bytes([value]) * width + data[at + width :])


def test_every_length_of_topic_body_and_properties_at_the_end_of_memory() -> None:
    data = bytearray(records(1)[0])
    topic_at = 88 + len(b"body")
    for place in (87, topic_at, topic_at + len("?TopicTest") + 1):
        for value in range(256):
            damaged = data.copy()
            damaged[place] = value
            assert_same_scan(bytes(damaged))


def test_no_rows_no_bytes() -> None:
    assert scan(b"", 0, 0, 0, new_rows(0), NO_DELAYS, True, True) == (0, 0, ScanStop.BUFFER_END)
    assert scan(bytes(8), 0, 0, 8, new_rows(0), NO_DELAYS, True, True) == (0, 0, ScanStop.ROWS_FULL)


def test_ranges_outside_the_data_are_refused() -> None:
    for start, end in ((-1, 8), (9, 9), (0, 9), (5, 4)):
        with pytest.raises(AssertionError):
            scan(bytes(8), 0, start, end, new_rows(1), NO_DELAYS, True, True)
        with pytest.raises(AssertionError):
            resync(bytes(8), 0, start, end)


def test_writable_and_read_only_data_give_the_same() -> None:
    data = b"".join(records(2))
    ours, theirs = new_rows(2), new_rows(2)
    first = scan(bytearray(data), BASE, 0, len(data), ours, DELAYS, True, True)
    assert first == scan(data, BASE, 0, len(data), theirs, DELAYS, True, True)
    assert np.array_equal(ours, theirs)


def test_megabytes_of_noise_never_crash() -> None:
    noise = np.frombuffer(random.Random(5).randbytes(1 << 20), np.uint8).copy()
    magic = np.frombuffer(b"\xda\xa3\x20\xa7", np.uint8)
    spots = np.random.default_rng(5).integers(4, len(noise) - 8, 4000)
    for spot in spots:
        noise[spot : spot + 4] = magic
    rows = new_rows(4)
    for spot in spots:
        start = int(spot) - 4
        for checks in ((False, False), (True, True)):
            assert scan(noise, BASE, start, len(noise), rows, DELAYS, *checks)[2] > 0
    assert resync(noise, BASE, 0, len(noise)) == plain.resync(noise, BASE, 0, len(noise)) == -1


@settings(max_examples=200, deadline=None)
@given(st.one_of(logs(), hostile_logs(), impostors()), st.binary(max_size=20), st.data())
@example(b"", b"\xda\xa3\x20\xa7" * 5, None)
def test_resync(data: bytes, junk: bytes, draw: st.DataObject | None) -> None:
    whole = junk + data
    start = draw.draw(st.integers(0, len(whole))) if draw else 0
    end = draw.draw(st.integers(start, len(whole))) if draw else len(whole)
    base = BASE - len(junk)
    assert resync(MEMORY.hold(whole[:end]), base, start, end) == plain.resync(whole, base, start, end)


def test_resync_after_a_damaged_record() -> None:
    made = records(3)
    data = bytearray(b"".join(made))
    data[4] ^= 1
    assert resync(data, BASE, 1, len(data)) == len(made[0])
    data[len(made[0]) + 90] ^= 1
    assert resync(data, BASE, 1, len(data)) == len(made[0]) + len(made[1])
