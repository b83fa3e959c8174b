"""EndReader == read_ends: on ends of every kind, on half messages of every kind, and on bytes that are neither."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.sends.ends import EndReader
from embermq.columns.plain import ends as e
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.ends import EndsRead, EndStop, HalfLog, OpParts
from embermq.format.frame import encode
from embermq.model.hosts import Host, pack_host
from embermq.model.properties import HALF_TOPIC
from tests.columns.guarded import GuardedMemory
from tests.support.end_frames import COMMIT, ROLLBACK, UNKNOWN, end_fields, end_frames
from tests.support.send_frames import JAVA, binary_frame, json_frame

MEMORY, OUT, LOG = GuardedMemory(1 << 16), GuardedMemory(1 << 16), GuardedMemory(1 << 16)
BASE = 1 << 33
BORN, STORE = Host("10.0.0.1", 5000), Host("10.0.0.2", 10911)
V6 = Host("2001:db8::1", 5000)
FRAME_MAX = 1 << 14
SHARED = b"OP_TOPIC" + b"TAGS\x01d"
OP = OpParts(0, 8, 8, 6)
PROPERTIES = b"TRAN_MSG\x01true\x02PGROUP\x01pg\x02REAL_TOPIC\x01orders\x02REAL_QID\x013\x02WAIT\x01true"
READER = EndReader()


def half(at: int = BASE, properties: bytes = PROPERTIES, **changes: Any) -> bytes:
    fields = {
        "physical_offset": at,
        "queue_id": 0,
        "queue_offset": 7,
        "topic": HALF_TOPIC,
        "body": b"body",
        "properties": properties,
        "born_timestamp": 1234,
        "born_host": BORN,
        "store_timestamp": 5678,
        "store_host": STORE,
        "flag": -9,
        "sys_flag": 2,
        "reconsume_times": 4,
        **changes,
    }
    return bytes(encode(**fields))


class Outcome:
    """What one of the two made of some pieces."""

    def __init__(self, datas: list[bytes], room: int, count: int) -> None:
        self.pieces = np.zeros((len(datas), s.N_PIECE_COLUMNS), np.int64)
        ends = np.cumsum([len(data) for data in datas])
        self.pieces[:, s.G_END] = ends
        self.pieces[1:, s.G_AT] = ends[:-1]
        self.ends, self.rows = e.new_ends(count), r.new_run_rows(2 * count)
        self.out = OUT.hold(SHARED + bytes(room))
        self.read = EndsRead(0, 0, 0, 0, EndStop.ALL)

    def parts(self) -> tuple[Any, ...]:
        read = self.read
        lists = (self.pieces.tolist(), self.ends[: read.ends].tolist(), self.rows[: read.rows].tolist())
        return (*lists, self.out[: read.used].tobytes(), read)

    def part(self, row: int, at_column: int, length_column: int) -> bytes:
        at, length = self.rows[row, at_column], self.rows[row, length_column]
        return self.out[at : at + length].tobytes()


def read_both(datas: list[bytes], log: bytes, room: int = 1 << 12, count: int = 8) -> Outcome:
    """What the kernel made, being the same as its twin made."""
    whole, host, used = b"".join(datas), pack_host(STORE), len(SHARED)
    twin = Outcome(datas, room, count)
    log_of = HalfLog(log, BASE, host)
    twin.read = e.read_ends(whole, twin.pieces, 0, log_of, OP, twin.ends, twin.rows, twin.out, used, FRAME_MAX)
    expected = twin.parts()
    ours = Outcome(datas, room, count)
    held = HalfLog(LOG.hold(log), BASE, host)
    ours.read = READER.read(
        MEMORY.hold(whole), ours.pieces, 0, held, OP, ours.ends, ours.rows, ours.out, used, FRAME_MAX
    )
    assert ours.parts() == expected
    return ours


def end_of(**changes: Any) -> bytes:
    return json_frame(end_fields("pg", 7, BASE, COMMIT) | changes, code=37)


HALVES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"body": b""},
        {"queue_offset": 8},
        {"queue_id": 1},
        {"topic": "orders"},
        {"sys_flag": 4},
        {"born_host": V6},
        {"store_host": BORN},
        {"born_timestamp": -(2**63)},
        {"properties": PROPERTIES.replace(b"pg", b"other")},
        {"properties": PROPERTIES + b"\x02PGROUP\x01other"},
        {"properties": PROPERTIES.replace(b"PGROUP", b"PGROUQ")},
        {"properties": PROPERTIES.replace(b"REAL_TOPIC", b"REAL_TOPIX")},
        {"properties": PROPERTIES.replace(b"orders", b"o" * 200)},
        {"properties": PROPERTIES.replace(b"\x013", b"\x01")},
        {"properties": PROPERTIES.replace(b"\x013", b"\x01-1")},
        {"properties": PROPERTIES.replace(b"\x013", b"\x012147483648")},
        {"properties": PROPERTIES.replace(b"\x01true\x02P", b"\x01true\x02DELAY\x013\x02P")},
        {"properties": PROPERTIES.replace(b"WAIT\x01true", b"WAIT\x01false")},
        {"properties": b""},
    ]
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Some half messages, and where they are; sometimes a byte of one is wrong."""
    log, places = b"", []
    for changes in draw(st.lists(HALVES, min_size=1, max_size=3)):
        places.append(BASE + len(log))
        log += half(places[-1], **changes)
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(log) - 1))
        log = log[:at] + bytes((draw(st.integers(0, 255)),)) + log[at + 1 :]
    return log[: draw(st.sampled_from([len(log), len(log), len(log) - 1, 0]))], places


@settings(max_examples=1500, deadline=None)
@given(st.data(), logs(), st.sampled_from([1 << 12, 200, 40, 10]), st.sampled_from([8, 1]))
def test_the_kernel_reads_what_its_twin_reads(
    data: st.DataObject, log: tuple[bytes, list[int]], room: int, count: int
) -> None:
    datas = data.draw(st.lists(end_frames(log[1]), min_size=1, max_size=4))
    read_both(datas, log[0], room, count)


def test_a_commit_becomes_the_final_and_the_op_record() -> None:
    read = read_both([end_of(), binary_frame(end_fields("pg", 7, BASE, COMMIT), opaque=78, code=37, flag=2)], half())
    assert [end[: e.E_AT] for end in read.ends[:2].tolist()] == [[1, 0, 0, 0], [78, 1, 1, 1]]
    assert read.ends[:2, e.E_HALF_OFFSET :].tolist() == [[7, BASE, 1, 1], [7, BASE, 3, 1]]
    final, op = read.rows[0], 1
    assert read.part(0, r.R_BODY_AT, r.R_BODY_LEN) == b"body"
    assert read.part(0, r.R_TOPIC_AT, r.R_TOPIC_LEN) == b"orders"
    assert read.part(0, r.R_PROPS_AT, r.R_PROPS_LEN) == PROPERTIES
    assert read.part(0, r.R_HOST_AT, r.R_HOST_LEN) == pack_host(BORN)
    columns = (r.R_QUEUE_ID, r.R_FLAG, r.R_SYS_FLAG, r.R_BORN_TIME, r.R_RECONSUME, r.R_PREPARED)
    assert [int(final[column]) for column in columns] == [3, -9, 10, 1234, 4, BASE]
    assert read.part(op, r.R_BODY_AT, r.R_BODY_LEN) == b"7"
    assert read.part(op, r.R_TOPIC_AT, r.R_TOPIC_LEN) + read.part(op, r.R_PROPS_AT, r.R_PROPS_LEN) == SHARED
    assert read.rows[op, r.R_BORN_TIME] == r.BORN_NOW


def test_a_rollback_becomes_the_op_record_alone() -> None:
    delayed = half(properties=b"PGROUP\x01pg\x02DELAY\x013")
    read = read_both([end_of(commitOrRollback=str(ROLLBACK))], delayed)
    assert (read.read.ends, read.read.rows) == (1, 1)
    assert read.part(0, r.R_BODY_AT, r.R_BODY_LEN) == b"7"


@pytest.mark.parametrize(
    "changed",
    [
        {"commitOrRollback": str(UNKNOWN)},
        {"producerGroup": "other"},
        {"producerGroup": ""},
        {"tranStateTableOffset": "8"},
        {"commitLogOffset": "-1"},
        {"commitLogOffset": str(BASE + 1)},
        {"commitLogOffset": str(BASE - 1)},
        {"commitLogOffset": "9" * 18},
        {"commitLogOffset": "9" * 19},
    ],
)
def test_what_is_not_ordinary_goes_the_plain_way(changed: dict[str, str]) -> None:
    good = end_of()
    read = read_both([good + end_of(**changed) + good, good], half())
    assert read.ends[:2, e.E_PIECE].tolist() == [0, 1]
    assert (read.read.ends, read.pieces[0, s.G_AT]) == (2, len(good))


def test_a_send_is_no_end() -> None:
    assert read_both([json_frame(JAVA) + end_of()], half()).read.ends == 0


def test_an_end_that_never_fits_goes_the_plain_way() -> None:
    log = half() + half(BASE + len(half()), body=bytes(5000))
    large = end_of(commitLogOffset=str(BASE + len(half())))
    read = read_both([large, end_of()], log)
    assert read.ends[: read.read.ends, e.E_PIECE].tolist() == [1]
    read = read_both([end_of() + large], log)
    assert (read.read.ends, read.read.stop) == (1, EndStop.FULL)
