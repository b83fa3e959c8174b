"""admit_rows == admit_run: on rows of every kind, above all on those that point where they must not."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.admit import admit_rows
from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.plain import runs as r
from embermq.columns.plain.admit import RowsAdmitted, admit_run
from embermq.columns.plain.runs import RowLimits, RowStop, RunBytes, new_run_rows
from embermq.columns.rows import Rows
from tests.columns.guarded import GuardedMemory

MEMORY = [GuardedMemory(1 << 13) for _ in range(3)]
KNOWN = {(b"T", 0): 0, (b"TopicTest", 0): 1, (b"TopicTest", 3): 2, (b"t" * 127, 2**31 - 1): 3}
BODIES, TOPICS = bytes(range(256)) * 2, b"TopicTest" + b"t" * 128
PROPERTIES = (
    b"TAGS\x01paid\x02KEYS\x01o-1\x02WAIT\x01true\x02WAIT\x01false\x02DELAY\x013\x02"
    b"TIMER_DELAY_SEC\x015\x02TIMER_DELAY_MS\x019\x02TIMER_DELIVER_MS\x018\x02" + bytes(40)
)
LIMITS = [RowLimits(300, 500, 8), RowLimits(300, 500, 20), RowLimits(0, 110, 8)]
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 3, 8, 9, 20, 127, 128, 255, 300, 512]),
    st.integers(-3, 600),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 31, (1 << 31) - 1, -(1 << 31), -(1 << 31) - 1, 1 << 62]),
)


def places() -> QueueTable:
    table = QueueTable()
    for (topic, queue_id), number in KNOWN.items():
        table.add(topic, queue_id, number)
    return table


TABLE = places()


def good_rows(count: int) -> Rows:
    rows = new_run_rows(count)
    rows[:, r.R_BODY_LEN] = 100
    rows[:, r.R_TOPIC_LEN] = 9
    rows[:, r.R_PROPS_LEN] = 9
    return rows


def admit_both(rows: Rows, start: int, limits: RowLimits) -> tuple[RowsAdmitted, Rows]:
    """What the kernel says, having said the same as its twin."""
    ours, theirs = rows.copy(), rows.copy()
    held = [memory.hold(data) for memory, data in zip(MEMORY, (BODIES, TOPICS, PROPERTIES), strict=True)]
    kernel = admit_rows(RunBytes(*held), ours, start, TABLE, limits)
    parts = RunBytes(BODIES, TOPICS, PROPERTIES)
    twin = admit_run(parts, theirs, start, lambda topic, queue: KNOWN.get((topic, queue), -1), limits)
    assert kernel == twin
    assert np.array_equal(ours, theirs)
    return kernel, ours


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, r.N_RUN_COLUMNS - 1), NUMBERS, max_size=4), max_size=6),
    st.integers(0, 6),
    st.sampled_from(LIMITS),
)
def test_any_rows(changes: list[dict[int, int]], start: int, limits: RowLimits) -> None:
    rows = good_rows(len(changes))
    for row, changed in zip(rows, changes, strict=True):
        for column, value in changed.items():
            row[column] = value
    admit_both(rows, min(start, len(rows)), limits)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(PROPERTIES)), st.integers(0, len(PROPERTIES)))
def test_any_stretch_of_properties(at: int, length: int) -> None:
    rows = good_rows(1)
    rows[0, r.R_PROPS_AT], rows[0, r.R_PROPS_LEN] = at, length
    admit_both(rows, 0, LIMITS[0])


def test_good_rows_get_their_queue() -> None:
    rows = good_rows(3)
    rows[1, r.R_QUEUE_ID] = 3
    rows[2, r.R_TOPIC_LEN] = 1
    rows[2, r.R_HOST_LEN] = 20
    admitted, judged = admit_both(rows, 0, LIMITS[0])
    assert admitted == (3, 2 * (91 + 100 + 9 + 9) + (91 + 12 + 100 + 1 + 9), RowStop.ALL)
    assert judged[:, r.R_QUEUE].tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({r.R_QUEUE_ID: 1}, RowStop.PLACE),
        ({r.R_TOPIC_LEN: 8}, RowStop.PLACE),
        ({r.R_QUEUE_ID: -1}, RowStop.PLAIN),
        ({r.R_QUEUE_ID: 1 << 31}, RowStop.PLAIN),
        ({r.R_TOPIC_LEN: 0}, RowStop.PLAIN),
        ({r.R_TOPIC_AT: 9, r.R_TOPIC_LEN: 128}, RowStop.PLAIN),
        ({r.R_BODY_LEN: 301}, RowStop.PLAIN),
        ({r.R_BODY_AT: len(BODIES) - 99}, RowStop.PLAIN),
        ({r.R_BODY_AT: -1}, RowStop.PLAIN),
        ({r.R_BODY_AT: 1 << 62, r.R_BODY_LEN: 1 << 62}, RowStop.PLAIN),
        ({r.R_FLAG: 1 << 31}, RowStop.PLAIN),
        ({r.R_SYS_FLAG: -(1 << 31) - 1}, RowStop.PLAIN),
        ({r.R_RECONSUME: 1 << 40}, RowStop.PLAIN),
        ({r.R_HOST_LEN: 9}, RowStop.PLAIN),
        ({r.R_HOST_LEN: 8, r.R_HOST_AT: len(PROPERTIES) - 7}, RowStop.PLAIN),
        ({r.R_PROPS_LEN: 28}, RowStop.ALL),  # up to WAIT=true
        ({r.R_PROPS_LEN: 39}, RowStop.PLAIN),  # WAIT=false as well
        ({r.R_PROPS_AT: PROPERTIES.index(b"DELAY"), r.R_PROPS_LEN: 7}, RowStop.PLAIN),
        ({r.R_PROPS_AT: PROPERTIES.index(b"TIMER_DELAY_SEC"), r.R_PROPS_LEN: 17}, RowStop.PLAIN),
        ({r.R_PROPS_AT: PROPERTIES.index(b"TIMER_DELAY_MS"), r.R_PROPS_LEN: 16}, RowStop.PLAIN),
        ({r.R_PROPS_AT: PROPERTIES.index(b"TIMER_DELIVER_MS"), r.R_PROPS_LEN: 18}, RowStop.PLAIN),
        ({r.R_PROPS_AT: PROPERTIES.index(b"IMER_DELAY_SEC"), r.R_PROPS_LEN: 16}, RowStop.ALL),
        ({r.R_BORN_TIME: -5, r.R_PREPARED: -(1 << 63)}, RowStop.ALL),
    ],
    ids=str,
)
def test_where_it_stops(changes: dict[int, int], stop: RowStop) -> None:
    rows = good_rows(2)
    for column, value in changes.items():
        rows[1, column] = value
    admitted, _ = admit_both(rows, 0, LIMITS[0])
    assert (admitted.stopped_at, admitted.stop) == (2 if stop is RowStop.ALL else 1, stop)


def test_hosts_count_in_the_size_of_a_record() -> None:
    """One byte of room too little, for each pair of address families."""
    for own, born, extra in ((8, 0, 0), (8, 20, 12), (20, 8, 12), (20, 0, 24), (20, 20, 24)):
        rows: Any = good_rows(1)
        rows[0, r.R_HOST_LEN] = born
        size = 91 + 100 + 9 + 9 + extra
        assert admit_both(rows, 0, RowLimits(300, size, own))[0] == (1, size, RowStop.ALL)
        assert admit_both(rows, 0, RowLimits(300, size - 1, own))[0].stop is RowStop.PLAIN
