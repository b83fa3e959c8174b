"""What a read over the wire decides without asking anyone: ranges, slices, times, windows, ends of batches."""

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.columns import C_QUEUE_OFFSET, C_STORED_PHYSICAL, RecordColumns, Selection
from embermq.errors import DataLost, OptionInvalid
from embermq.format.frame import encode
from embermq.spark.options import read_options
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.planning.pushdown import Pushed, Span
from embermq.spark.wire.pulled_records import DamagedRecord, RecordReader, is_run_of, within
from embermq.spark.wire.pulling import WINDOW_BYTES, WindowSizes, expression_of, iter_windows
from embermq.spark.wire.stream_follower import WireFollower
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.time_search import first_at
from embermq.spark.wire.wanted import (
    SliceLimits,
    WireRange,
    chosen_queues,
    cut_ranges,
    slice_count,
    times_asked,
    wanted_ranges,
)
from tests.support.records import HOST, START_MS

RANGES = st.lists(
    st.builds(
        lambda topic, broker, queue_id, start, count: WireRange(topic, broker, queue_id, start, start + count),
        st.sampled_from("tu"),
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(1, 200),
    ),
    max_size=8,
    unique_by=lambda one: (one.topic, one.broker_name, one.queue_id),
)


def options_of(**given: str) -> read_options.ReadOptions:
    return read_options.parse({"nameServer": "h:9876"} | given, streaming=False)


def ends(queue_id: int, low: int, high: int, topic: str = "t", broker: str = "a") -> ReadableQueue:
    return ReadableQueue(topic, broker, queue_id, low, high)


@given(RANGES, st.integers(1, 30))
def test_slices_cover_every_offset_once_and_are_of_one_broker(ranges: list[WireRange], count: int) -> None:
    slices = cut_ranges(ranges, count)
    cut = [place for part in slices for one in part for place in _places(one)]
    assert sorted(cut) == sorted(place for one in ranges for place in _places(one))
    assert all(part and len({one.broker_name for one in part}) == 1 for part in slices)
    assert len(slices) <= count + len({one.broker_name for one in ranges})


def _places(one: WireRange) -> list[tuple[str, str, int, int]]:
    return [(one.topic, one.broker_name, one.queue_id, at) for at in range(one.start, one.end)]


def test_how_many_slices() -> None:
    limits = SliceLimits(None, 1 << 20, 2)
    assert slice_count(0, 1024, limits) == 1
    assert slice_count(100, 1024, limits) == 1
    assert slice_count(10_000, 10, limits) == 2
    assert slice_count(10_000, 1024, limits) == 10
    assert slice_count(11_000, 1024, limits) == 12  # both cores are busy in the last turn
    assert slice_count(10, 1, SliceLimits(5, 1 << 20, 2)) == 5


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(-1, 13), st.integers(-5, 40), st.integers(0, 5))
def test_the_first_message_of_a_time_whatever_the_broker_suggests(
    steps: Sequence[int], time_ms: int, hint: int, low: int
) -> None:
    times = sorted(steps)

    async def time_of(offset: int) -> int | None:
        return times[offset - low]

    found = asyncio.run(first_at(time_ms, low, low + len(times), hint, time_of))
    assert found == low + sum(one < time_ms for one in times)


def test_times_are_asked_for_where_options_name_them() -> None:
    queues = [ends(0, 0, 5), ends(1, 0, 5)]
    at = options_of(startingTimestamp="1700000000000", endingTimestamp="1700000000001")
    assert times_asked(at, queues) == [(one, 1700000000000 + n) for one in queues for n in (0, 1)]
    by_queue = options_of(startingOffsetsByTimestamp='{"t": {"1": 1700000000000}}', topic="t")
    assert times_asked(by_queue, queues) == [(queues[1], 1700000000000)]
    ranges = wanted_ranges(by_queue, Pushed(), queues, {(queues[1], 1700000000000): 3})
    assert [(one.queue_id, one.start, one.end) for one in ranges] == [(0, 0, 5), (1, 3, 5)]


def test_filters_of_a_query_narrow_ranges() -> None:
    queues = [ends(0, 0, 50), ends(1, 0, 50), ends(0, 0, 50, topic="u")]
    pushed = Pushed(topics=frozenset("t"), queue_offsets=Span(10, 12))
    assert wanted_ranges(options_of(), pushed, queues, {}) == [
        WireRange("t", "a", 0, 10, 12),
        WireRange("t", "a", 1, 10, 12),
    ]
    assert wanted_ranges(options_of(), Pushed(tags=frozenset()), queues, {}) == []
    assert chosen_queues(options_of(queues='{"u": [0]}'), queues) == [queues[2]]


def test_the_broker_filters_by_a_condition_or_by_tags() -> None:
    assert expression_of(Selection(), None).is_everything
    assert expression_of(Selection(tags=frozenset({"b", "a"})), None).text == "a || b"
    both = expression_of(Selection(tags=frozenset({"b"})), "price > 5")
    assert (both.text, both.kind) == ("price > 5", "SQL92")


@given(RANGES, st.lists(st.integers(0, 10_000_000), max_size=50))
def test_windows_cover_a_slice_in_order(ranges: list[WireRange], answered: list[int]) -> None:
    sizes, left = WindowSizes(), list(answered)
    windows = []
    for window in iter_windows(tuple(ranges), sizes):
        windows.append(window)
        if left:
            sizes.note(window.count, left.pop())
    assert [place for one in windows for place in _places(one)] == [place for one in ranges for place in _places(one)]


def test_windows_of_large_messages_are_short() -> None:
    sizes = WindowSizes()
    sizes.note(32, 32 << 20)
    assert sizes.offsets == 2
    sizes.note(32, 32 * 1024)
    assert sizes.offsets == WINDOW_BYTES // 1024
    sizes.note(2, 64 << 20)
    assert sizes.offsets == 1


# -- answers of pulls ------------------------------------------------------------------------------------------


def run_of(*offsets: int) -> list[bytes]:
    return [
        encode(
            physical_offset=1000 * at,
            queue_id=0,
            queue_offset=at,
            topic="t",
            body=b"body %d" % at,
            properties=b"",
            born_timestamp=START_MS,
            born_host=HOST,
            store_timestamp=START_MS,
            store_host=HOST,
        )
        for at in offsets
    ]


def test_records_that_lie_side_by_side_are_read_with_their_own_places() -> None:
    (found,) = RecordReader(rows_max=100, verify_crc=True).read(b"".join(run_of(5, 6, 7)))
    assert isinstance(found, RecordColumns)
    assert found.column(C_STORED_PHYSICAL).tolist() == [5000, 6000, 7000]
    assert found.column(C_QUEUE_OFFSET).tolist() == [5, 6, 7]
    assert [found.body(i) for i in range(3)] == [b"body 5", b"body 6", b"body 7"]
    assert is_run_of(found, 0, 5)
    assert not is_run_of(found, 0, 4)
    assert not is_run_of(found, 1, 5)
    assert within(found, 8) is None
    assert within(found, 6) is not None


def test_portions_are_as_large_as_they_may_be() -> None:
    found = [len(one) for one in RecordReader(rows_max=2, verify_crc=True).read(b"".join(run_of(*range(5))))]  # type: ignore[arg-type]
    assert found == [2, 2, 1]


def test_a_damaged_record_is_passed_over() -> None:
    first, second, third = run_of(0, 1, 2)
    broken = second.replace(b"body", b"bady")
    found = list(RecordReader(rows_max=100, verify_crc=True).read(first + broken + third))
    assert [type(one) for one in found] == [RecordColumns, DamagedRecord, RecordColumns]
    assert found[1] == DamagedRecord(1000, 1000 + len(second), "bad crc")
    assert len(list(RecordReader(rows_max=100, verify_crc=False).read(first + broken + third))) == 1
    torn = struct.pack(">i", 1 << 30) + second[4:]
    *_, last = RecordReader(rows_max=100, verify_crc=True).read(first + torn + third)
    assert isinstance(last, DamagedRecord)
    assert last.end - last.start == len(torn) + len(third)


# -- streams ---------------------------------------------------------------------------------------------------


def test_offsets_survive_json() -> None:
    offset = WireOffset({("t", "a", 0): 5, ("t", "b", 11): 7, ("u", "a", 0): 0})
    assert WireOffset.from_json(offset.to_json()) == offset
    others: list[Any] = [{"topics": {}}, [], {"cluster": {"t": {"a": {"x": 1}}}}]
    for other in others:
        with pytest.raises(OptionInvalid, match="of another source"):
            WireOffset.from_json(other)


def follower(**given: str) -> WireFollower:
    return WireFollower(read_options.parse({"nameServer": "h:9876", "topic": "t"} | given, streaming=True))


def test_a_queue_whose_broker_does_not_answer_stays_as_it_is() -> None:
    start = WireOffset({("t", "a", 0): 5, ("t", "b", 0): 5})
    ranges = follower().ranges(start, [ends(0, 0, 9)])
    assert ranges == {("t", "a", 0): (5, 9)}
    assert follower().until(start, ranges).queues == {("t", "a", 0): 9, ("t", "b", 0): 5}


def test_a_new_queue_is_read_from_its_beginning_and_an_empty_one_is_not_named() -> None:
    ranges = follower().ranges(WireOffset({}), [ends(0, 3, 9), ends(1, 0, 0)])
    end = follower().until(WireOffset({}), ranges)
    assert end.queues == {("t", "a", 0): 9}
    assert follower().batch(WireOffset({}), end, [ends(0, 3, 9)]) == [WireRange("t", "a", 0, 3, 9)]


def test_what_was_deleted_before_it_was_read_is_lost() -> None:
    start = WireOffset({("t", "a", 0): 2})
    with pytest.raises(DataLost, match="offsets 2 to 5 were deleted"):
        follower().ranges(start, [ends(0, 5, 9)])
    lenient = follower(failOnDataLoss="false")
    assert lenient.ranges(start, [ends(0, 5, 9)]) == {("t", "a", 0): (5, 9)}
    assert lenient.batch(start, WireOffset({("t", "a", 0): 9}), [ends(0, 5, 9)]) == [WireRange("t", "a", 0, 5, 9)]


def test_a_batch_of_a_queue_that_is_not_seen_now_is_read_as_planned() -> None:
    start, end = WireOffset({("t", "a", 0): 2}), WireOffset({("t", "a", 0): 6})
    assert follower().batch(start, end, []) == [WireRange("t", "a", 0, 2, 6)]
    assert follower().batch(end, end, []) == []


def test_limits_are_shared_by_lag() -> None:
    one = follower(maxOffsetsPerTrigger="10")
    ranges = one.ranges(WireOffset({}), [ends(0, 0, 90), ends(1, 0, 10)])
    assert one.until(WireOffset({}), ranges, message_bytes=100.0).queues == {("t", "a", 0): 9, ("t", "a", 1): 1}
    by_bytes = follower(maxBytesPerTrigger="1000")
    assert by_bytes.until(WireOffset({}), ranges, message_bytes=100.0).queues == {("t", "a", 0): 9, ("t", "a", 1): 1}
    assert by_bytes.until(WireOffset({}), ranges).queues == {("t", "a", 0): 90, ("t", "a", 1): 10}
