"""Slices: everything that is wanted is in exactly one of them, they are even, and the cheaper way is taken."""

import itertools
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.spark.planning.plan import (
    JUMP_BYTES,
    PARTS_MAX,
    SLICE_BYTES_MIN,
    Choice,
    LogCut,
    PlacesCut,
    QueueCut,
    QueueRequest,
    SizeSample,
    SliceLimits,
    StoreRequest,
    choose,
    cut_log,
    cut_places,
    cut_queues,
    format_bytes,
    plan,
    queue_bytes,
    queue_edges,
    slice_counts,
)

MIB, GIB = 1 << 20, 1 << 30
LIMITS = SliceLimits(min_partitions=None, max_bytes_per_partition=128 * MIB, parallelism=2)


def same(_: str, place: int) -> int:
    return place


def queue(
    start: int,
    end: int,
    *sizes: tuple[int, float],
    topic: str = "t",
    queue_id: int = 0,
    physical: tuple[int, int] = (0, GIB),
    share: float = 1.0,
) -> QueueRequest:
    samples = tuple(SizeSample(at, size) for at, size in sizes)
    return QueueRequest(topic, queue_id, start, end, *physical, samples, share)


records = st.lists(st.integers(1, 200), min_size=1, max_size=60)


@given(records, st.integers(0, 1000), st.integers(1, 20))
def test_the_log_is_covered_once_and_cut_at_records(sizes: list[int], base: int, count: int) -> None:
    starts = [base]
    for size in sizes:
        starts.append(starts[-1] + size)
    end = starts.pop()

    def align(place: int) -> int:
        return [*starts, end][bisect_left(starts, place)]

    cuts = cut_log(base, end, count, align)
    assert 1 <= len(cuts) <= count
    assert cuts[0].start == base
    assert cuts[-1].end == end
    assert all(one.end == other.start for one, other in itertools.pairwise(cuts))
    assert {cut.start for cut in cuts} <= set(starts)
    # As even as records allow: an edge moves by less than one record.
    for cut in cuts[:-1]:
        assert any(0 <= cut.end - (base + (end - base) * k // count) < max(sizes) for k in range(1, count))


def test_an_empty_log() -> None:
    assert cut_log(7, 7, 3, lambda place: place) == []


def test_a_log_of_one_huge_record_is_one_slice() -> None:
    assert cut_log(0, 1000, 10, lambda place: 1000) == [LogCut(0, 1000)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=8), st.integers(1, 30))
def test_queues_are_covered_once(ranges: list[tuple[int, int]], count: int) -> None:
    requests = [
        queue(start, start + length, (start, 10.0), (start + length // 2, 400.0), queue_id=n)
        for n, (start, length) in enumerate(ranges)
    ]
    cuts = cut_queues(requests, count)
    assert len(cuts) <= count
    for request in requests:
        parts = [part for cut in cuts for part in cut.parts if part.queue_id == request.queue_id]
        covered = [offset for part in parts for offset in range(part.start, part.end)]
        assert covered == list(range(request.start, request.end))
        assert all(part.first_physical == request.first_physical for part in parts)
    assert all(cut.parts for cut in cuts)


def test_queues_are_cut_even_by_bytes_not_by_number() -> None:
    """100 records of 1 KiB, then 900 of 100 bytes: the first tenth of the numbers has half of the bytes."""
    request = queue(0, 1000, (0, 1024.0), (100, 113.78))
    edges = queue_edges(request, 2)
    assert edges[0] == 0
    assert edges[2] == 1000
    assert abs(edges[1] - 100) <= 1
    assert round(queue_bytes(request)) == round(100 * 1024 + 900 * 113.78)


def test_every_slice_reads_its_region_of_all_queues() -> None:
    cuts = cut_queues([queue(0, 100, (0, 10.0), queue_id=n) for n in range(3)], 4)
    assert [[(part.start, part.end) for part in cut.parts] for cut in cuts] == [
        [(25 * k, 25 * (k + 1))] * 3 for k in range(4)
    ]


def test_samples_outside_the_range_count_as_far_as_they_reach() -> None:
    request = queue(50, 150, (0, 10.0), (100, 30.0), (200, 1000.0))
    assert queue_bytes(request) == 50 * 10 + 50 * 30
    assert queue_bytes(queue(50, 150)) == 100  # nothing known: by number
    assert queue_bytes(queue(5, 15, (9, 3.0))) == 30


def test_a_queue_of_empty_samples_is_still_covered() -> None:
    assert queue_edges(queue(0, 10, (0, 0.0)), 3)[-1] == 10


def test_parts_are_bounded() -> None:
    requests = [queue(0, 10, (0, 1.0), queue_id=n) for n in range(1000)]
    assert len(cut_queues(requests, 500)) <= PARTS_MAX // 1000


@given(st.lists(st.integers(0, 10_000), max_size=50), st.integers(1, 12))
def test_places_are_covered_once_in_log_order(places: list[int], count: int) -> None:
    cuts = cut_places(places, count)
    assert [place for cut in cuts for place in cut.places] == sorted(set(places))
    assert len(cuts) == min(count, len(set(places)))
    lengths = [len(cut.places) for cut in cuts]
    assert not lengths or max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ([0], LIMITS, [1]),
        ([0, 0], LIMITS, [1, 1]),
        ([100], LIMITS, [1]),
        ([SLICE_BYTES_MIN + 1], LIMITS, [2]),  # enough for both cores
        ([GIB], LIMITS, [8]),
        ([GIB + 1], LIMITS, [10]),  # not 9: one core would be idle in the end
        ([GIB + 1], SliceLimits(None, 128 * MIB, 64), [64]),
        ([9 * GIB], SliceLimits(None, 128 * MIB, 64), [128]),
        ([GIB, 3 * GIB], LIMITS, [8, 24]),
        ([GIB], SliceLimits(20, 128 * MIB, 2), [20]),
        ([GIB, GIB], SliceLimits(3, GIB, 1), [2, 2]),
        ([10], SliceLimits(5, GIB, 4), [5]),
        ([GIB], SliceLimits(None, 16 * GIB, 8), [8]),
        ([GIB, 1], SliceLimits(None, GIB, 1), [2, 1]),
    ],
)
def test_slice_counts(sizes: list[int], limits: SliceLimits, expected: list[int]) -> None:
    assert slice_counts(sizes, limits) == expected


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6),
    st.integers(1, 99),
    st.integers(1 << 20, 1 << 36),
    st.integers(1, 64),
)
def test_requests_are_granted(sizes: list[int], least: int, most_bytes: int, parallelism: int) -> None:
    counts = slice_counts(sizes, SliceLimits(least, most_bytes, parallelism))
    assert all(count >= 1 for count in counts)
    if sum(sizes):
        assert sum(counts) >= least
        assert all(size / count <= most_bytes for size, count in zip(sizes, counts, strict=True))


def choice(*queues: QueueRequest, log_end: int = GIB, because: str = "") -> Choice:
    return choose(StoreRequest("a", 0, log_end, queues, log_because=because))


def test_everything_is_read_in_order() -> None:
    chosen = choose(StoreRequest("a", 0, GIB))
    assert (chosen.method, chosen.bytes) == ("log", GIB)
    assert chosen.reason == "everything in 1.0 GiB of log is wanted"


def test_a_small_topic_is_read_by_its_queue() -> None:
    chosen = choice(queue(0, 10_000, (0, 1024.0)))
    assert chosen.method == "queue"
    assert chosen.reason == "about 9.8 MiB of 1.0 GiB of log is wanted: through 1 queue"
    assert chosen.bytes == 10_000 * (1024 + 20)


def test_a_large_topic_is_read_in_order() -> None:
    chosen = choice(queue(0, 500_000, (0, 1024.0)), queue(0, 400_000, (0, 1024.0), queue_id=1))
    assert chosen.method == "log"
    assert chosen.bytes == GIB
    assert chosen.reason == "about 878.9 MiB of 1.0 GiB of log is wanted, in 2 queues: the log is read in order"


def test_a_tag_of_a_large_topic_is_read_by_its_queue() -> None:
    assert choice(queue(0, 1_000_000, (0, 1024.0), share=0.01)).method == "queue"
    assert choice(queue(0, 1_000_000, (0, 1024.0), share=0.9)).method == "log"


def test_the_choice_follows_the_costs() -> None:
    """Where jumps and entries cost as much as passing everything, the two ways change places."""
    edge = GIB // (JUMP_BYTES + 20 + 1000)
    assert choice(queue(0, edge - 1, (0, 1000.0))).method == "queue"
    assert choice(queue(0, edge + 1, (0, 1000.0))).method == "log"


def test_only_the_part_of_the_log_that_can_hold_it_is_read() -> None:
    chosen = choice(queue(0, 900_000, (0, 1024.0), physical=(100, 5000)), log_end=GIB)
    assert chosen.method == "log"
    assert chosen.bytes == 4900
    [store] = plan([chosen.request], LIMITS, same)
    assert store.cuts == (LogCut(100, 5000),)


def test_a_reason_for_the_log_is_respected() -> None:
    chosen = choice(queue(0, 10, (0, 10.0)), because="prepared records have no entries")
    assert chosen.method == "log"
    assert chosen.reason.startswith("prepared records have no entries")


def test_nothing_wanted_is_nothing_read() -> None:
    request = StoreRequest("a", 0, GIB, ())
    assert plan([request], LIMITS, same)[0].cuts == ()
    assert plan([StoreRequest("a", 5, 5)], LIMITS, same)[0].cuts == ()
    assert plan([], LIMITS, same) == []


def test_known_places() -> None:
    [store] = plan([StoreRequest("a", 10, 100, None, (50, 7, 99, 100))], LIMITS, same)
    assert store.method == "places"
    assert store.reason == "2 records can be meant, by the index"
    assert store.cuts == (PlacesCut((50, 99)),)
    [none] = plan([StoreRequest("a", 10, 100, None, ())], LIMITS, same)
    assert none.cuts == ()


def test_stores_are_planned_together_and_cut_apart() -> None:
    asked: list[tuple[str, int]] = []

    def align(name: str, place: int) -> int:
        asked.append((name, place))
        return place + 1

    small = StoreRequest("b", 0, GIB, (queue(0, 100, (0, 10.0)),))
    first, second = plan([StoreRequest("a", 0, 256 * MIB), small], LIMITS, align)
    edges = [0, *(1 + 64 * k * MIB for k in (1, 2, 3)), 256 * MIB]
    assert first.cuts == tuple(LogCut(start, end) for start, end in itertools.pairwise(edges))
    assert {name for name, _ in asked} == {"a"}
    [cut] = second.cuts
    assert isinstance(cut, QueueCut)
    assert cut.parts[0].end == 100


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1.5 * GIB, "1.5 GiB"), (5 << 40, "5.0 TiB")],
)
def test_bytes_for_people(size: float, text: str) -> None:
    assert format_bytes(size) == text
