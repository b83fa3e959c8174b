"""A table of places is a dict that kernels can look into."""

from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.places import Places

TOPICS = st.one_of(
    st.sampled_from([b"T", b"TopicTest", b"TopicTesT", b"t" * 127, b"12345678", b"1234567", b"123456789"]),
    st.binary(min_size=1, max_size=20),
)
PAIRS = st.tuples(TOPICS, st.integers(0, 2**31 - 1) | st.integers(0, 4))


@settings(max_examples=100, deadline=None)
@given(st.lists(PAIRS, unique=True, max_size=200), st.lists(PAIRS, max_size=20))
def test_a_table_is_a_dict(pairs: list[tuple[bytes, int]], others: list[tuple[bytes, int]]) -> None:
    places = Places()
    twin: dict[tuple[bytes, int], int] = {}
    for number, pair in enumerate(pairs):
        assert places.find(*pair) == -1
        places.add(*pair, number)
        twin[pair] = number
    assert len(places) == len(twin)
    for pair in [*pairs, *others]:
        assert places.find(*pair) == twin.get(pair, -1)


def test_many_topics_and_many_queues() -> None:
    places = Places()
    pairs = [(b"topic-%05d" % topic, queue_id) for topic in range(3000) for queue_id in range(2)]
    for number, pair in enumerate(pairs):
        places.add(*pair, number)
    assert [places.find(*pair) for pair in pairs] == list(range(len(pairs)))
    assert places.find(b"topic-03000", 0) == places.find(b"topic-00000", 2) == -1


def test_who_looks_meanwhile_keeps_what_it_took() -> None:
    """The arrays taken before a growth still answer, and never point past their own end."""
    places = Places()
    places.add(b"first", 0, 0)
    table, topics = places.arrays
    for number in range(1, 500):
        places.add(b"another-topic-with-a-long-name-%d" % number, 0, number)
    assert places.arrays[0] is not table
    assert places.arrays[1] is not topics
    used = table[table[:, 1] >= 0]
    assert (used[:, 2] + used[:, 3]).max() <= len(topics)
