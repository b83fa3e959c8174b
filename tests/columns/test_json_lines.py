"""write_lines == encode_line, byte for byte, wherever it does not decline; and it declines only what is rare."""

import json
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.json_lines import write_lines
from embermq.columns.plain.json_lines import LineStop, encode_line
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import Rows, new_rows
from embermq.format.frame import encode
from embermq.format.message_json import KEYS, BodyForm
from embermq.model.hosts import Host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, logs
from tests.support import golden

DATA, OUT = GuardedMemory(1 << 18), GuardedMemory(1 << 18)
NO_DELAYS = np.zeros(0, np.int64)
FORMS = [BodyForm.BASE64, BodyForm.TEXT, BodyForm.RAW, BodyForm.TEXT | BodyForm.RAW]
HOST = Host("10.20.30.255", 10911)


def rows_of(data: Any, base: int) -> Rows:
    rows = new_rows(1000)
    count, _, _ = scan_rows(data, base, 0, len(data), rows, NO_DELAYS, False, True)
    return rows[:count]


def lines_of(data: Any, base: int, rows: Rows, form: BodyForm, room: int) -> tuple[list[bytes], int]:
    """Every line, by the kernel where it does not decline; and how many it declined."""
    out = OUT.hold(bytes(room))
    lines: list[bytes] = []
    declined = at = 0
    while at < len(rows):
        before = at
        at, used, stop = write_lines(data, base, rows, at, out, form)
        written = out[:used].tobytes().splitlines(keepends=True)
        assert len(written) == at - before
        lines += written
        if stop is LineStop.PLAIN:
            lines.append(encode_line(data, base, rows[at].tolist(), form)[0])
            declined += 1
            at += 1
        else:
            assert at > before or at == len(rows), "neither a line nor a reason"
    return lines, declined


def assert_same(raw: bytes, base: int, form: BodyForm, room: int) -> tuple[list[bytes], int]:
    data = DATA.hold(raw)
    rows = rows_of(data, base)
    lines, declined = lines_of(data, base, rows, form, room)
    assert lines == [encode_line(raw, base, row, form)[0] for row in rows.tolist()]
    return lines, declined


@settings(max_examples=300, deadline=None)
@given(logs(), st.sampled_from(FORMS), st.sampled_from([1, 1500, 3000, 60_000]))
def test_any_log(raw: bytes, form: BodyForm, room: int) -> None:
    for line in assert_same(raw, BASE, form, room)[0]:
        assert [key for key in json.loads(line) if not key.endswith("Base64")] == list(KEYS)


def record(body: bytes = b"body", properties: bytes = b"", **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "physical_offset": BASE,
        "queue_id": 3,
        "queue_offset": 7,
        "topic": "orders",
        "born_timestamp": 1,
        "born_host": HOST,
        "store_timestamp": 2,
        "store_host": HOST,
    }
    return encode(body=body, properties=properties, **(fields | changes))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "raw",
    [
        record(bytes(range(128)) * 5),
        record("größer 漢字 🙂".encode()),
        record(b'"quoted" \\ and \x7f', properties=b'KEYS\x01a b\x02TAGS\x01\xe2\x82\xac\x02x\x01"\\\n\x1f\x01y'),
        record(b"", properties=b"UNIQ_KEY\x01" + b"A" * 56, queue_offset=2**63 - 1, prepared_transaction_offset=-1),
        record(bytes(1), flag=-(2**31), sys_flag=8, reconsume_times=2**31 - 1, born_timestamp=-(2**63) + 1),
        record(bytes(2), topic="t" * 127, store_host=Host("255.255.255.255", -(2**31))),
        record(born_host=Host("::1", 1), store_host=Host("2001:db8::1:0:0:1", -1)),
        record(store_host=Host("::", 10911)),
        record(bytes(3), properties=b"\x02".join(b"name%d\x01%d" % (n, n) for n in range(64))),
    ],
)
def test_ordinary_records_are_not_declined(raw: bytes, form: BodyForm) -> None:
    [line], declined = assert_same(raw, BASE, form, 60_000)
    assert declined == 0
    assert json.loads(line)["physicalOffset"] == BASE


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (record(born_host=Host("::ffff:102:304", 1)), BodyForm.BASE64),
        (record(store_host=Host("::ffff:0:0", 1)), BodyForm.RAW),
        (record(sys_flag=1), BodyForm.BASE64),
        (record(b"\xff"), BodyForm.TEXT),
        (record(properties=b"a\x01\xc3"), BodyForm.BASE64),
        (record(properties=b"a\x01b\x02a\x01c"), BodyForm.BASE64),
        (record(properties=b"a\x01b\x02"), BodyForm.RAW),
        (record(properties=b"a\x01\x02b\x01c"), BodyForm.RAW),
        (record(store_timestamp=-(2**63)), BodyForm.BASE64),
        (record(properties=b"\x02".join(b"%d\x01%d" % (n, n) for n in range(65))), BodyForm.BASE64),
    ],
)
def test_rare_records_are_declined(raw: bytes, form: BodyForm) -> None:
    assert assert_same(raw, BASE, form, 60_000)[1] == 1


ADDRESSES = st.one_of(
    st.integers(0, (1 << 128) - 1),
    st.lists(st.sampled_from([0, 0, 0, 1, 0xFFFF, 0x20, 0xABC]), min_size=8, max_size=8).map(
        lambda groups: sum(group << 16 * at for at, group in enumerate(groups))
    ),
).map(lambda number: str(IPv6Address(number)))


@settings(max_examples=300, deadline=None)
@given(ADDRESSES, ADDRESSES, st.booleans())
def test_addresses_are_written_as_everywhere(born: str, store: str, both: bool) -> None:
    raw = record(born_host=Host(born, 1), store_host=Host(store, 2) if both else HOST)
    [line], declined = assert_same(raw, BASE, BodyForm.BASE64, 60_000)
    assert json.loads(line)["bornHost"] == f"[{born}]:1"
    assert declined <= (born.startswith("::ffff:") or (both and store.startswith("::ffff:")))


def test_a_line_that_fits_nowhere_is_left_to_the_plain_way() -> None:
    raw = record(bytes(10_000))
    assert assert_same(raw, BASE, BodyForm.BASE64, 2000)[1] == 1


@pytest.mark.parametrize("name", ["basic", "compressed", "index", "ipv6", "odd", "retry-dlq", "transaction"])
@pytest.mark.parametrize("form", FORMS)
def test_logs_of_rocketmq(name: str, form: BodyForm, tmp_path: Path) -> None:
    count = 0
    for start, data in golden.segments(golden.restore(name, tmp_path)):
        count += len(assert_same(data, start, form, 200_000)[0])
    assert count == sum(1 for one in golden.manifest(name).records if not one.blank)
