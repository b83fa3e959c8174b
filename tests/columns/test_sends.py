"""SendReader == read_sends, compiled == plain replies: on sends of every kind, above all on bad ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.compiled.sends.frames import SendReader
from embermq.columns.compiled.sends.replies import write_replies
from embermq.columns.plain import replies as plain_replies
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.replies import ReplyTemplate
from embermq.columns.plain.runs import new_run_rows
from embermq.columns.plain.sends import SendsRead, SendStop
from embermq.columns.rows import Rows
from embermq.model.properties import HALF_TOPIC, encode_properties
from tests.columns.guarded import GuardedMemory
from tests.support.send_frames import JAVA, binary_frame, json_frame, send_frames

MEMORY, OUT = GuardedMemory(1 << 16), GuardedMemory(1 << 16)
KNOWN = {(b"T", 0): 0, (b"T", 3): 1, (b"Other", 0): 2}
FLAGS = np.array([0, 2, 0], np.int64)
CLUSTER = b"CLUSTER\x01DefaultCluster"
FRAME_MAX = 1 << 14
HALF = HALF_TOPIC.encode()
TRANSACTION = {"i": "UNIQ_KEY\x017F000001\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01pg", "f": "4"}
TABLE = QueueTable()
for (_topic, _queue), _number in KNOWN.items():
    TABLE.add(_topic, _queue, _number)
READER = SendReader()


class Outcome:
    """What one of the two made of some pieces."""

    def __init__(self, datas: list[bytes], room: int, rows: int) -> None:
        self.pieces = np.zeros((len(datas), s.N_PIECE_COLUMNS), np.int64)
        ends = np.cumsum([len(data) for data in datas])
        self.pieces[:, s.G_END] = ends
        self.pieces[1:, s.G_AT] = ends[:-1]
        self.pieces[:, s.G_HOST_LEN] = 8
        self.rows, self.frames = new_run_rows(rows), np.zeros((rows, s.N_FRAME_COLUMNS), np.int64)
        self.out = OUT.hold(bytes(room))
        self.read = SendsRead(0, 0, 0, SendStop.ALL)

    def parts(self) -> tuple[Any, ...]:
        filled = self.read.filled
        lists = (self.pieces.tolist(), self.rows[:filled].tolist(), self.frames[:filled].tolist())
        return (*lists, self.out[: self.read.used].tobytes(), self.read)


def read_both(datas: list[bytes], room: int = 1 << 12, rows: int = 8, *, takes_halves: bool = True) -> Outcome:
    """What the kernel made, being the same as its twin made."""
    whole = b"".join(datas) + HALF
    half_at = len(whole) - len(HALF) if takes_halves else s.NO_HALF_TOPIC
    twin = Outcome(datas, room, rows)
    twin.read = s.read_sends(
        whole,
        twin.pieces,
        0,
        lambda topic, queue: KNOWN.get((topic, queue), -1),
        FLAGS.tolist(),
        CLUSTER,
        twin.rows,
        twin.frames,
        0,
        twin.out,
        0,
        FRAME_MAX,
        half_at,
    )
    expected = twin.parts()
    ours = Outcome(datas, room, rows)
    cluster = np.frombuffer(CLUSTER, np.uint8)
    held = MEMORY.hold(whole)
    ours.read = READER.read(
        held, ours.pieces, 0, TABLE, FLAGS, cluster, ours.rows, ours.frames, 0, ours.out, 0, FRAME_MAX, half_at
    )
    assert ours.parts() == expected
    return ours


@settings(max_examples=1500, deadline=None)
@given(
    st.lists(send_frames(), min_size=1, max_size=3),
    st.sampled_from([1 << 12, 200, 40]),
    st.sampled_from([8, 1]),
    st.booleans(),
)
def test_the_kernel_reads_what_its_twin_reads(datas: list[bytes], room: int, rows: int, takes_halves: bool) -> None:
    read_both(datas, room, rows, takes_halves=takes_halves)


def test_an_ordinary_send_of_a_java_client_is_familiar() -> None:
    body = b"hello"
    read = read_both([json_frame(JAVA, body, 77) + binary_frame(JAVA, body, 78)])
    assert read.read.filled == 2
    assert read.frames[:2].tolist() == [[77, 0, 0, 0, 0, 0], [78, 1, 0, 0, 0, 0]]
    row = read.rows[0].tolist()
    assert row[r.R_BODY_LEN] == 5
    text = read.out[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]].tobytes()
    assert dict(pair.split(b"\x01") for pair in text.split(b"\x02")) == {
        b"UNIQ_KEY": b"7F000001",
        b"TAGS": b"paid",
        b"CLUSTER": b"DefaultCluster",
    }


def test_a_half_message_becomes_a_record_of_the_half_topic() -> None:
    sent = JAVA | TRANSACTION | {"e": "3"}
    read = read_both([json_frame(sent, b"hello", 77) + binary_frame(sent, b"hello", 78)])
    assert read.frames[:2].tolist() == [[77, 0, 0, 1, 3, 1], [78, 1, 0, 1, 3, 1]]
    row = read.rows[1].tolist()
    assert (row[r.R_TOPIC_LEN], row[r.R_QUEUE_ID], row[r.R_SYS_FLAG]) == (len(HALF), 0, int(FLAGS[1]))
    text = read.out[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]].tobytes()
    properties = dict(pair.split("\x01") for pair in TRANSACTION["i"].split("\x02"))
    assert text == encode_properties(properties | {"CLUSTER": "DefaultCluster", "REAL_TOPIC": "T", "REAL_QID": "3"})


def test_a_half_message_goes_the_plain_way_where_none_is_taken() -> None:
    read = read_both([json_frame(JAVA | TRANSACTION)], takes_halves=False)
    assert (read.read.filled, read.pieces[0, s.G_AT]) == (0, 0)


def test_a_piece_is_read_up_to_its_first_unfamiliar_frame() -> None:
    good, odd = json_frame(JAVA), json_frame(JAVA | {"m": "true"})
    read = read_both([good + odd + good, good, good[:-1]])
    assert read.read.filled == 2
    assert read.pieces[:, s.G_AT].tolist() == [
        len(good),
        2 * len(good) + len(odd) + len(good),
        len(good) * 3 + len(odd),
    ]
    assert read.pieces[:, s.G_STOPPED].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"i": "WAIT\x01false"},
        {"i": "DELAY\x013"},
        {"i": "TRAN_MSG\x01yes"},
        {"i": "TRAN_MSG\x01true\x02REAL_QID\x011"},
        {"i": "TRAN_MSG\x01true\x02DELAY\x013"},
        {"i": "TRAN_MSG\x01true\x02" + "\x02".join(f"n{n}\x01v" for n in range(9))},
        {"i": "CLUSTER\x01c"},
        {"i": "a\x01b\x02a\x01c"},
        {"f": "4"},
        {"e": "-1"},
        {"b": ""},
        {"g": "9" * 19},
    ],
)
def test_what_means_something_goes_the_plain_way(changed: dict[str, str]) -> None:
    for made in (json_frame(JAVA | changed), binary_frame(JAVA | changed)):
        read = read_both([made])
        assert (read.read.filled, read.pieces[0, s.G_AT]) == (0, 0)


def test_a_queue_that_was_not_let_in_is_asked_for() -> None:
    good = json_frame(JAVA)
    read = read_both([good + json_frame(JAVA | {"e": "9"}), good])
    assert read.read[2:] == (0, SendStop.PLACE)
    assert read.pieces[0].tolist()[:2] == [len(good), 2 * len(good)]


# -- answers -----------------------------------------------------------------------------------------------------

I64_MAX = 2**63 - 1
TEMPLATE = ReplyTemplate.of(
    [b'{"code":0,"msgId":"7F000001', b'","queueId":"', b'","queueOffset":"', b'"},"opaque":', b"}"],
    [bytes(13) + bytes(8) + b"\x00\x05msgId\x00\x00\x00\x207F000001", b"\x00\x07queueId", b"\x00\x0bqueueOffset"],
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.booleans(),
            st.integers(0, 2**31 - 1),
            st.integers(0, I64_MAX),
            st.integers(0, I64_MAX),
        ),
        max_size=6,
    )
)
def test_replies_are_the_same(frames: list[tuple[int, bool, int, int, int]]) -> None:
    count = len(frames)
    heads = np.zeros((count, s.N_FRAME_COLUMNS), np.int64)
    placed: Rows = np.zeros((count, r.N_PLACED_COLUMNS), np.int64)
    for i, (opaque, is_binary, queue_id, physical, queue_offset) in enumerate(frames):
        heads[i] = opaque, is_binary, i // 2, 0, queue_id, 0
        placed[i] = physical, 1, queue_offset
    room = count * TEMPLATE.reply_bytes_max
    twin, twin_ends = bytearray(room), np.zeros(3, np.int64)
    end = plain_replies.write_replies(heads, placed, TEMPLATE, twin, twin_ends)
    ours, ours_ends = OUT.hold(bytes(room)), np.zeros(3, np.int64)
    assert write_replies(heads, placed, TEMPLATE, ours, ours_ends) == end
    assert ours[:end].tobytes() == bytes(twin[:end])
    assert ours_ends.tolist() == twin_ends.tolist()
