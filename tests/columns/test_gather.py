"""Columns of text and bytes: kernel == twin on whatever a scan accepts, and rows that lie are refused."""

import ipaddress
import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns import rows as c
from embermq.columns.compiled import gather as kernel
from embermq.columns.plain import gather as twin
from embermq.columns.plain.gather import COLUMN_BYTES_MAX, HostKind, Pairs, Parts
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import RecordColumns, new_rows
from embermq.format.frame import encode
from embermq.model.hosts import Host
from embermq.model.properties import decode_properties
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I32, hostile_logs, impostors, logs

MEMORY = GuardedMemory(1 << 20)
MORE = GuardedMemory(1 << 12)
HOST = Host("10.0.0.1", 50000)
HEXTETS = st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\xff\xff", b"\0\x0f"]), min_size=8, max_size=8).map(b"".join)
PART_COLUMNS = (c.C_TOPIC_AT, c.C_BODY_AT, c.C_KEYS_AT, c.C_UNIQ_AT, c.C_TAGS_AT, c.C_PROPS_AT)


def columns_of(data: bytes, rows_max: int = 8, *, check_crc: bool = True) -> RecordColumns:
    rows = new_rows(rows_max)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, np.zeros(0, np.int64), check_crc, check_crc)
    return RecordColumns(MEMORY.hold(data), BASE, rows[:count])


def record(place: int, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "queue_id": 1,
        "queue_offset": 2,
        "topic": "T",
        "body": b"body",
        "properties": b"KEYS\x01k",
        "born_timestamp": 1,
        "born_host": HOST,
        "store_timestamp": 2,
        "store_host": HOST,
    }
    return encode(physical_offset=place, **{**fields, **changes})


def log_of(*changes: dict[str, Any]) -> RecordColumns:
    data = b""
    for change in changes:
        data += record(BASE + len(data), **change)
    return columns_of(data, rows_max=len(changes))


def everything(records: RecordColumns) -> np.ndarray:
    return np.arange(len(records), dtype=np.int64)


def assert_same_parts(ours: Parts, theirs: Parts) -> None:
    assert ours.offsets.dtype == theirs.offsets.dtype == np.int32
    assert ours.offsets.tolist() == theirs.offsets.tolist()
    assert ours.values.tobytes() == theirs.values.tobytes()
    assert ours.nulls == theirs.nulls
    assert (ours.validity is None) == (theirs.validity is None) == (ours.nulls == 0)
    if ours.validity is not None and theirs.validity is not None:
        assert ours.validity.tolist() == theirs.validity.tolist()


def assert_same_pairs(ours: Pairs, theirs: Pairs) -> None:
    assert ours.offsets.tolist() == theirs.offsets.tolist()
    assert_same_parts(ours.names, theirs.names)
    assert_same_parts(ours.values, theirs.values)


def assert_same(records: RecordColumns, keep: np.ndarray) -> None:
    for column in PART_COLUMNS:
        assert_same_parts(kernel.gather_parts(records, keep, column), twin.gather_parts(records, keep, column))
    assert_same_parts(kernel.gather_ids(records, keep), twin.gather_ids(records, keep))
    for kind in HostKind:
        assert_same_parts(kernel.gather_hosts(records, keep, kind), twin.gather_hosts(records, keep, kind))
    assert_same_pairs(kernel.gather_pairs(records, keep), twin.gather_pairs(records, keep))
    assert kernel.gather_crcs(records, keep).tolist() == twin.gather_crcs(records, keep).tolist()


def texts(parts: Parts) -> list[bytes | None]:
    """Parts as a list, read back from the buffers."""
    present = (
        np.ones(len(parts.offsets) - 1, np.uint8)
        if parts.validity is None
        else np.unpackbits(parts.validity, bitorder="little")
    )
    ends = parts.offsets.tolist()
    raw = parts.values.tobytes()
    return [raw[ends[i] : ends[i + 1]] if present[i] else None for i in range(len(ends) - 1)]


def maps(pairs: Pairs) -> list[dict[bytes, bytes]]:
    names, values, ends = texts(pairs.names), texts(pairs.values), pairs.offsets.tolist()
    found = []
    for start, end in pairwise(ends):
        row = [(names[k] or b"", values[k] or b"") for k in range(start, end)]
        assert len(dict(row)) == len(row), "a name twice"
        found.append(dict(row))
    return found


@settings(max_examples=200, deadline=None)
@given(logs(), st.data())
def test_good_logs(data: bytes, draw: st.DataObject) -> None:
    records = columns_of(data)
    assert_same(records, everything(records))
    if len(records):
        chosen = draw.draw(st.lists(st.integers(0, len(records) - 1), max_size=12))
        assert_same(records, np.array(chosen, np.int64))


@settings(max_examples=200, deadline=None)
@given(st.one_of(hostile_logs(), impostors()))
def test_whatever_a_scan_without_checks_accepts(data: bytes) -> None:
    """Sums and places are not compared, so every field that has no structure of its own is arbitrary."""
    records = columns_of(data, check_crc=False)
    assert_same(records, everything(records))


def test_no_rows() -> None:
    for records in (columns_of(b""), log_of({})):
        assert_same(records, np.zeros(0, np.int64))
    nothing = kernel.gather_parts(log_of({}), np.zeros(0, np.int64), c.C_BODY_AT)
    assert (nothing.offsets.tolist(), len(nothing.values), nothing.nulls) == ([0], 0, 0)


def test_what_is_absent_is_null_and_what_is_empty_is_not() -> None:
    records = log_of(*({"properties": b"TAGS\x01a" if i % 3 else b"", "body": b""} for i in range(20)))
    tags = kernel.gather_parts(records, everything(records), c.C_TAGS_AT)
    assert texts(tags) == [b"a" if i % 3 else None for i in range(20)]
    assert tags.nulls == 7
    bodies = kernel.gather_parts(records, everything(records), c.C_BODY_AT)
    assert texts(bodies) == [b""] * 20
    assert bodies.validity is None
    assert maps(kernel.gather_pairs(records, everything(records)))[:2] == [{}, {b"TAGS": b"a"}]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.binary(min_size=16, max_size=16), HEXTETS),
    st.binary(min_size=4, max_size=4),
    I32,
)
def test_addresses_are_written_as_python_writes_them(v6: bytes, v4: bytes, port: int) -> None:
    long, short = (Host(str(ipaddress.ip_address(raw)), port) for raw in (v6, v4))
    records = log_of(
        {"born_host": long, "store_host": short},
        {"born_host": short, "store_host": long},
        {"born_host": short, "store_host": long},
        {"born_host": long, "store_host": long},
    )
    assert_same(records, everything(records))
    born = kernel.gather_hosts(records, everything(records), HostKind.BORN)
    assert texts(born) == [str(host).encode() for host in (long, short, short, long)]


@pytest.mark.parametrize(
    "address", ["::", "::1", "1::", "1::2:0:0:3", "::ffff:1.2.3.4", "0:0:1::", "1:0:2:0:3:0:4:0", "fe80::1:0:0:1"]
)
def test_addresses_with_runs_of_zeros(address: str) -> None:
    records = log_of({"born_host": Host(str(ipaddress.ip_address(address)), 10911)})
    (text,) = texts(kernel.gather_hosts(records, everything(records), HostKind.BORN))
    assert text == f"[{ipaddress.ip_address(address)}]:10911".encode()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"a", b"b", b"ab", b"abcdefgh", b"abcdefghi", b"\x01", b"\x02", b"\0", b"\xff"]), max_size=40
    )
)
def test_properties_of_every_form(pieces: list[bytes]) -> None:
    records = RecordColumns(MEMORY.hold(b"".join(pieces)), 0, new_rows(1))
    records.rows[0, c.C_PROPS_AT], records.rows[0, c.C_PROPS_LEN] = 0, len(records.data)
    ours = kernel.gather_pairs(records, everything(records))
    assert_same_pairs(ours, twin.gather_pairs(records, everything(records)))
    if b"\xff" not in pieces:
        (found,) = maps(ours)
        expected = decode_properties(b"".join(pieces))
        assert [(name.decode(), value.decode()) for name, value in found.items()] == list(expected.items())


def test_a_record_that_is_nothing_but_properties() -> None:
    """As many pairs as a record can hold, all different, all the same, and one name short of the limit."""
    different = b"\x02".join(b"%c\x01%c" % (3 + k % 250, 3 + k // 250) for k in range(8191))[:32767]
    many = b"\x02".join(b"%04d\x01v" % k for k in range(4600))
    same = (b"a\x01b\x02" * 8192)[:32767]
    records = log_of(
        {"properties": different}, {"properties": many}, {"properties": same}, {"properties": b"x" * 32767}
    )
    assert_same(records, everything(records))
    counts = np.diff(kernel.gather_pairs(records, everything(records)).offsets)
    assert counts.tolist() == [250, 4600, 1, 0]


def test_a_later_value_takes_the_place_of_an_earlier_one() -> None:
    records = log_of({"properties": b"a\x011\x02b\x012\x02a\x01333\x02b\x01\x02c\x014"})
    (found,) = maps(kernel.gather_pairs(records, everything(records)))
    assert list(found.items()) == [(b"a", b"333"), (b"b", b"2"), (b"c", b"4")]


def test_positions_past_the_data_go_on_in_more() -> None:
    records = log_of({"body": b"one"}, {"body": b"two"}, {"body": b"three"})
    more = MORE.hold(b"ELSEWHERE")
    rows = records.rows.copy()
    rows[1, c.C_BODY_AT : c.C_BODY_LEN + 1] = len(records.data), 4
    rows[2, c.C_BODY_AT : c.C_BODY_LEN + 1] = len(records.data) + 4, 5
    arguments = (records, everything(records), c.C_BODY_AT, more, rows)
    assert texts(kernel.gather_parts(*arguments)) == [b"one", b"ELSE", b"WHERE"]
    assert_same_parts(kernel.gather_parts(*arguments), twin.gather_parts(*arguments))
    rows[1, c.C_BODY_AT] -= 1  # Begins in the one and ends in the other.
    for gather in (kernel.gather_parts, twin.gather_parts):
        with pytest.raises(AssertionError):
            gather(*arguments)


def gather_parts_of(column: int, module: Any, records: RecordColumns, keep: np.ndarray) -> Parts:
    found: Parts = module.gather_parts(records, keep, column)
    return found


GATHERS: list[Callable[[Any, RecordColumns, np.ndarray], Any]] = [
    *(partial(gather_parts_of, column) for column in PART_COLUMNS),
    lambda module, records, keep: module.gather_ids(records, keep),
    lambda module, records, keep: module.gather_hosts(records, keep, HostKind.BORN),
    lambda module, records, keep: module.gather_hosts(records, keep, HostKind.STORE),
    lambda module, records, keep: module.gather_pairs(records, keep),
    lambda module, records, keep: module.gather_crcs(records, keep),
]


@pytest.mark.parametrize("number", range(len(GATHERS)))
@pytest.mark.parametrize("row", [-1, 1, 1 << 62, -(1 << 63)])
def test_rows_that_do_not_exist_are_refused(number: int, row: int) -> None:
    for module in (kernel, twin):
        with pytest.raises(AssertionError):
            GATHERS[number](module, log_of({"properties": b"TAGS\x01a\x02KEYS\x01b\x02UNIQ_KEY\x01c"}), np.array([row]))


@pytest.mark.parametrize("value", [-(1 << 63), -(1 << 31), -1, 1 << 20, 1 << 40, (1 << 63) - 1])
def test_rows_that_point_outside_the_data_are_refused(value: int) -> None:
    good = log_of({"properties": b"TAGS\x01a\x02KEYS\x01b\x02UNIQ_KEY\x01c"})
    for number, gather in enumerate(GATHERS):
        for column in range(c.N_COLUMNS):
            rows = good.rows.copy()
            rows[0, column] = value
            if column == c.C_SYS_FLAG:
                continue  # Another layout, but within the record.
            for module in (kernel, twin):
                try:
                    gather(module, RecordColumns(good.data, BASE, rows), np.zeros(1, np.int64))
                except AssertionError:
                    continue
                refused = {c.C_PHYSICAL} if number >= len(PART_COLUMNS) and number != len(GATHERS) - 2 else set()
                assert column not in refused, (number, column)


def test_a_column_beyond_2_gib_is_refused() -> None:
    """The same megabyte over and over: the sum counts, not the memory behind it."""
    records = log_of({"body": bytes(1 << 19)})
    times = COLUMN_BYTES_MAX // (1 << 19) + 1
    with pytest.raises(AssertionError, match="2 GiB"):
        kernel.gather_parts(records, np.zeros(times, np.int64), c.C_BODY_AT)
    crowded = log_of({"properties": b"x" * 32767})
    with pytest.raises(AssertionError, match="2 GiB"):
        kernel.gather_pairs(crowded, np.zeros(COLUMN_BYTES_MAX // 32767 + 1, np.int64))


def test_sums_are_those_in_the_records() -> None:
    records = log_of({"body": b""}, {"body": b"abc"}, {"body": bytes(300)})
    raw = records.data.tobytes()
    stored = [struct.unpack_from(">i", raw, int(row[c.C_PHYSICAL]) - BASE + 8)[0] for row in records.rows]
    assert kernel.gather_crcs(records, everything(records)).tolist() == stored
