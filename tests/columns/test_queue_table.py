"""A table of queues is a dict that kernels can look into."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.rows import C_QUEUE_ID, C_TOPIC_AT, C_TOPIC_LEN
from tests.columns.strategies import logs
from tests.columns.test_derive import columns_of, keyed

TOPICS = st.one_of(
    st.sampled_from([b"T", b"TopicTest", b"TopicTesT", b"t" * 127, b"12345678", b"1234567", b"123456789"]),
    st.binary(min_size=1, max_size=20),
)
PAIRS = st.tuples(TOPICS, st.integers(0, 2**31 - 1) | st.integers(0, 4))


@settings(max_examples=100, deadline=None)
@given(st.lists(PAIRS, unique=True, max_size=200), st.lists(PAIRS, max_size=20))
def test_a_table_is_a_dict(pairs: list[tuple[bytes, int]], others: list[tuple[bytes, int]]) -> None:
    table = QueueTable()
    twin: dict[tuple[bytes, int], int] = {}
    for number, pair in enumerate(pairs):
        assert table.find(*pair) == -1
        table.add(*pair, number)
        twin[pair] = number
    assert len(table) == len(twin)
    for pair in [*pairs, *others]:
        assert table.find(*pair) == twin.get(pair, -1)


def test_many_topics_and_many_queues() -> None:
    table = QueueTable()
    pairs = [(b"topic-%05d" % topic, queue_id) for topic in range(3000) for queue_id in range(2)]
    for number, pair in enumerate(pairs):
        table.add(*pair, number)
    assert [table.find(*pair) for pair in pairs] == list(range(len(pairs)))
    assert table.find(b"topic-03000", 0) == table.find(b"topic-00000", 2) == -1


def test_who_looks_meanwhile_keeps_what_it_took() -> None:
    """The arrays taken before a growth still answer, and never point past their own end."""
    table = QueueTable()
    table.add(b"first", 0, 0)
    taken, topics = table.arrays
    for number in range(1, 500):
        table.add(b"another-topic-with-a-long-name-%d" % number, 0, number)
    assert table.arrays[0] is not taken
    assert table.arrays[1] is not topics
    used = taken[taken[:, 1] >= 0]
    assert (used[:, 2] + used[:, 3]).max() <= len(topics)


@settings(max_examples=100, deadline=None)
@given(logs(), st.sets(st.integers(0, 7)))
def test_routing_is_finding_row_by_row(data: bytes, known: set[int]) -> None:
    batch = columns_of(data)
    table = QueueTable()
    pairs = [(batch.topic_bytes(i), int(batch.rows[i, C_QUEUE_ID])) for i in range(len(batch))]
    for i in sorted(known):
        if i < len(pairs) and table.find(*pairs[i]) < 0:
            table.add(*pairs[i], 7 * i)
    assert table.route(batch).tolist() == [table.find(*pair) for pair in pairs]


def test_routing_through_a_table_that_grew() -> None:
    batch = keyed(12)
    table = QueueTable()
    pairs = [(b"Topic%d" % (n % 300), n // 300 - 1) for n in range(1500)]
    for number, pair in enumerate(pairs):
        table.add(*pair, number)
    assert table.route(batch).tolist() == [(i % 3 + 1) * 300 + i % 2 for i in range(12)]
    assert QueueTable().route(batch).tolist() == [-1] * 12


@pytest.mark.parametrize(
    ("column", "value"), [(C_TOPIC_LEN, 1 << 40), (C_TOPIC_LEN, -1), (C_TOPIC_AT, -1), (C_TOPIC_AT, 1 << 40)]
)
def test_a_row_that_points_outside_the_data_is_refused(column: int, value: int) -> None:
    batch = keyed(1)
    batch.rows[0, column] = value
    with pytest.raises(AssertionError):
        QueueTable().route(batch)


def test_what_was_lent_does_not_change() -> None:
    table = QueueTable()
    table.add(b"first", 0, 0)
    rows, topics = table.lent()
    before = rows.copy()
    for number in range(1, 40):
        table.add(b"topic-%d" % number, 0, number)
    assert (rows == before).all()
    assert topics[:5].tobytes() == b"first"
