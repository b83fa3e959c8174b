"""Which rows are wanted: kernel == twin for every kind of condition, on whatever a scan accepts."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns import rows as c
from embermq.columns.compiled.select import Selection, Selector, select
from embermq.columns.plain.scan import scan_rows
from embermq.columns.plain.select import SYSTEM_TOPICS, is_system_topic, select_rows
from embermq.columns.rows import RecordColumns, new_rows
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I64, hostile_logs, logs
from tests.support.records import START_MS, LogOfRecords

MEMORY = GuardedMemory(1 << 16)
DELAYS = np.array([1000, 5000], dtype=np.int64)


def columns_of(data: bytes, *, check: bool = True) -> RecordColumns:
    rows = new_rows(8)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, DELAYS, check, check)
    return RecordColumns(MEMORY.hold(data), BASE, rows[:count])


def chosen(records: RecordColumns, **conditions: Any) -> list[int]:
    """What kernel and twin agree on."""
    selection = Selection(**conditions)
    ours = select(records, selection)
    assert ours.dtype == np.int64
    assert ours.tolist() == select_rows(records, selection).tolist()
    return ours.tolist()  # type: ignore[no-any-return]


@pytest.fixture
def log() -> RecordColumns:
    """Twelve records: two topics, two queues each, three tags, one millisecond apart."""
    made = LogOfRecords(BASE)
    for i in range(12):
        made.append(
            ("orders", "payments")[i % 2],
            i // 2 % 2,
            i // 4,
            tags=("new", "paid", "")[i % 3],
            keys=f"k{i} shared" if i % 4 else "",
            unique_key=f"u{i}" if i % 2 else "",
            store_ms=START_MS + i,
        )
    return made.columns()


def some(draw: st.DrawFn, values: list[Any], strange: st.SearchStrategy[Any]) -> frozenset[Any] | None:
    """A condition on what is there and what is not, or none."""
    known = st.sampled_from(values) if values else strange
    condition: frozenset[Any] | None = draw(
        st.one_of(st.none(), st.frozensets(st.one_of(known, known, strange), max_size=4))
    )
    return condition


@st.composite
def selections(draw: st.DrawFn, records: RecordColumns) -> Selection:
    texts = st.text(max_size=4)
    numbers = range(len(records))
    topics = [records.topic(i) for i in numbers]
    queue_ids = [int(records.rows[i, c.C_QUEUE_ID]) for i in numbers]
    offsets = [int(records.rows[i, c.C_QUEUE_OFFSET]) for i in numbers] or [0]
    times = [int(records.rows[i, c.C_STORE_TIME]) for i in numbers] or [0]
    bounds = st.one_of(st.none(), st.none(), st.sampled_from(offsets), st.sampled_from(times), I64)
    pairs = st.sampled_from([*zip(topics, queue_ids, strict=True), ("T", 0)])
    spans = st.tuples(st.sampled_from([*offsets, 0]), st.sampled_from([*(offset + 1 for offset in offsets), 1 << 80]))
    return Selection(
        topics=some(draw, topics, texts),
        queues=draw(st.one_of(st.none(), st.dictionaries(pairs, spans, max_size=4))),
        queue_ids=some(draw, queue_ids, st.integers(-(1 << 40), 1 << 40)),
        queue_offset_start=draw(bounds),
        queue_offset_end=draw(bounds),
        tags=some(draw, [tag for i in numbers if (tag := records.tags(i)) is not None], texts),
        keys=some(draw, [key for i in numbers for key in records.keys(i)], texts),
        begin_ms=draw(bounds),
        end_ms=draw(bounds),
        physical_start=draw(st.one_of(st.none(), st.integers(BASE - 1, BASE + 500))),
        physical_end=draw(st.one_of(st.none(), st.none(), st.integers(BASE - 1, BASE + 2000))),
        include_system=draw(st.booleans()),
    )


@settings(max_examples=400, deadline=None)
@given(st.one_of(logs(), hostile_logs()), st.booleans(), st.data())
def test_kernel_is_twin(data: bytes, check: bool, draw: st.DataObject) -> None:
    records = columns_of(data, check=check)
    selection = draw.draw(selections(records))
    assert select(records, selection).tolist() == select_rows(records, selection).tolist()


@settings(max_examples=200, deadline=None)
@given(logs(), st.data())
def test_one_condition_at_a_time(data: bytes, draw: st.DataObject) -> None:
    """All conditions at once seldom leave a row."""
    records = columns_of(data)
    drawn = draw.draw(selections(records))
    for name in ("topics", "queues", "queue_ids", "tags", "keys", "begin_ms", "end_ms", "physical_end"):
        for include_system in (False, True):
            chosen(records, **{name: getattr(drawn, name)}, include_system=include_system)


def test_nothing_asked_for_is_everything(log: RecordColumns) -> None:
    assert chosen(log) == list(range(12))
    assert Selection(include_system=True).is_everything
    assert not Selection().is_everything


def test_each_wish_leaves_what_it_says(log: RecordColumns) -> None:
    assert chosen(log, topics=frozenset({"orders"})) == [0, 2, 4, 6, 8, 10]
    assert chosen(log, topics=frozenset({"orders", "payments"})) == list(range(12))
    assert chosen(log, topics=frozenset({"order"})) == []
    assert chosen(log, topics=frozenset()) == []
    assert chosen(log, queue_ids=frozenset({1})) == [2, 3, 6, 7, 10, 11]
    assert chosen(log, queues={("orders", 0): (1, 3), ("payments", 1): (0, 1)}) == [3, 4, 8]
    assert chosen(log, queues={}) == []
    assert chosen(log, queue_offset_start=1, queue_offset_end=2) == [4, 5, 6, 7]
    assert chosen(log, tags=frozenset({"paid"})) == [1, 4, 7, 10]
    assert chosen(log, tags=frozenset({"paid", "new"})) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert chosen(log, keys=frozenset({"k5"})) == [5]
    assert chosen(log, keys=frozenset({"u7", "k9", "k"})) == [7, 9]
    assert chosen(log, keys=frozenset({"shared"})) == [1, 2, 3, 5, 6, 7, 9, 10, 11]
    assert chosen(log, keys=frozenset({"k5 shared"})) == []
    assert chosen(log, begin_ms=START_MS + 3, end_ms=START_MS + 5) == [3, 4]
    assert chosen(log, begin_ms=START_MS + 11) == [11]
    third, fifth = (int(log.rows[i, c.C_PHYSICAL]) for i in (3, 5))
    assert chosen(log, physical_start=third, physical_end=fifth) == [3, 4]
    assert chosen(log, physical_start=third + 1, physical_end=fifth + 1) == [4, 5]
    assert chosen(log, topics=frozenset({"orders"}), tags=frozenset({"paid"}), queue_ids=frozenset({0})) == [4]


def test_the_greatest_queue_offset_is_within_a_range_without_end() -> None:
    made = LogOfRecords(BASE)
    for offset in (0, (1 << 63) - 1):
        made.append("orders", 0, offset)
    log = made.columns()
    assert chosen(log, queues={("orders", 0): (0, 1 << 80)}) == [0, 1]
    assert chosen(log, queues={("orders", 0): (0, (1 << 63) - 1)}) == [0]
    assert chosen(log, queues={("orders", 0): ((1 << 63) - 1, 1 << 63)}) == [1]
    assert chosen(log, queues={("orders", 0): (1 << 63, 1 << 80)}) == []
    assert chosen(log, queues={("orders", 0): (-(1 << 80), -(1 << 70))}) == []


def test_ranges_at_the_ends_of_numbers(log: RecordColumns) -> None:
    for name in ("begin_ms", "queue_offset_start", "physical_start"):
        assert chosen(log, **{name: -(1 << 70)}) == list(range(12))
        assert chosen(log, **{name: 1 << 70}) == []
    for name in ("end_ms", "queue_offset_end", "physical_end"):
        assert chosen(log, **{name: 1 << 70}) == list(range(12))
        assert chosen(log, **{name: -(1 << 63)}) == []
    assert chosen(log, begin_ms=START_MS, end_ms=START_MS) == []
    assert chosen(log, queues={("orders", 0): (-(1 << 70), 1 << 70)}) == [0, 4, 8]


def test_the_hash_alone_is_not_enough() -> None:
    """`Aa` and `BB` have the same hash."""
    made = LogOfRecords()
    for name in ("Aa", "BB"):
        made.append(name, 0, 0, tags=name, keys=name)
    for condition in ("topics", "tags", "keys"):
        assert chosen(made.columns(), **{condition: frozenset({"BB"})}) == [1]
    assert chosen(made.columns(), queues={("BB", 0): (0, 1)}) == [1]


@pytest.mark.parametrize("topic", [*sorted(SYSTEM_TOPICS), "rmq_sys_wheel_timer", "RMQ_SYS_ANYTHING", "rmq_sys_"])
def test_system_topics_are_hidden(topic: str) -> None:
    made = LogOfRecords()
    made.append(topic, 0, 0, tags="a")
    made.append("orders", 0, 0, tags="a")
    assert is_system_topic(topic)
    assert chosen(made.columns()) == [1]
    assert chosen(made.columns(), topics=frozenset({topic})) == []
    assert chosen(made.columns(), include_system=True) == [0, 1]
    assert chosen(made.columns(), topics=frozenset({topic}), tags=frozenset({"a"}), include_system=True) == [0]


@pytest.mark.parametrize(
    "topic", ["%RETRY%group", "%DLQ%group", "TBW1020", "TBW10", "rmq_sys", "Rmq_sys_x", "xRMQ_SYS_"]
)
def test_other_topics_are_everybodys(topic: str) -> None:
    made = LogOfRecords()
    made.append(topic, 0, 0)
    assert not is_system_topic(topic)
    assert chosen(made.columns()) == [0]


def test_prepared_and_rolled_back_records_are_hidden() -> None:
    made = LogOfRecords()
    for sys_flag in (0x0, 0x4, 0x8, 0xC):
        made.append("orders", 0, 0, sys_flag=sys_flag)
    assert chosen(made.columns()) == [0, 2]
    assert chosen(made.columns(), include_system=True) == [0, 1, 2, 3]


def test_a_parked_record_is_found_by_its_tag() -> None:
    """Its tag code is the time when it is due."""
    made = LogOfRecords(BASE)
    made.append("SCHEDULE_TOPIC_XXXX", 0, 0, tags="paid", properties={"DELAY": "1"})
    records = columns_of(bytes(made._data))
    assert records.rows[0, c.C_TAG_CODE] == START_MS + 1000
    assert chosen(records, tags=frozenset({"paid"}), include_system=True) == [0]
    assert chosen(records, tags=frozenset({"paid"})) == []


def test_texts_that_are_no_utf8() -> None:
    made = LogOfRecords(BASE)
    made.append("T", 0, 0, tags="good", keys="Z\u00fcrich")
    data = bytes(made._data).replace(b"good", b"go\xffd")
    records = columns_of(data, check=False)
    assert records.tags(0) == "go\ufffdd"
    assert chosen(records, tags=frozenset({"go\ufffdd"})) == [0]
    assert chosen(records, tags=frozenset({"good", "go\udcffd"})) == []
    assert chosen(records, keys=frozenset({"Z\u00fcrich"})) == [0]


def test_many_queues() -> None:
    made = LogOfRecords()
    for i in range(300):
        made.append(f"topic-{i % 100}", i % 7, i)
    wanted = {(f"topic-{topic}", queue): (0, 150) for topic in range(0, 100, 2) for queue in range(7)}
    assert chosen(made.columns(), queues=wanted) == list(range(0, 150, 2))


def test_no_rows() -> None:
    assert chosen(columns_of(b"")) == []
    assert chosen(columns_of(b""), tags=frozenset({"a"}), keys=frozenset({"b"})) == []


def test_a_selection_travels(log: RecordColumns) -> None:
    selection = Selection(queues={("orders", 0): (0, 2)}, tags=frozenset({"new"}))
    again = pickle.loads(pickle.dumps(selection))
    assert again == selection
    assert select(log, again).tolist() == select(log, selection).tolist() == [0]
    assert Selector(again).select(log).tolist() == [0]


@pytest.mark.parametrize("value", [-(1 << 63), 1 << 20, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("column", [c.C_TOPIC_AT, c.C_TOPIC_LEN, c.C_TAGS_AT, c.C_TAGS_LEN, c.C_UNIQ_AT, c.C_KEYS_AT])
def test_rows_that_point_outside_the_data_are_refused(column: int, value: int) -> None:
    made = LogOfRecords()
    made.append("T", 0, 0, tags="paid", keys="a", unique_key="b")
    records = made.columns()
    records.rows[0, column] = value
    if value < 0 and column == c.C_TAGS_LEN:  # That is no tag at all.
        assert select(records, Selection(tags=frozenset({"paid"}))).tolist() == []
        return
    with pytest.raises(AssertionError):
        select(records, Selection(tags=frozenset({"paid"}), keys=frozenset({"zz"})))
