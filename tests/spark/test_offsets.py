"""Limits of a read, resolved to offsets of queues."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import DataLost, OptionInvalid, TopicUnknown
from embermq.spark.planning.offsets import (
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    Limit,
    ReadableQueue,
    check_names,
    parse_limit,
    resolve,
)

ENDS = ReadableQueue("orders", "broker-a", 2, 10, 50)


def resolved(start: Limit, end: Limit, ends: ReadableQueue = ENDS, *, strict: bool = True) -> tuple[int, int]:
    return resolve(start, end, ends, offset_at=lambda time_ms: time_ms - 1000, fail_on_data_loss=strict)


def at(offset: int, option: str = "startingOffsets", broker: str | None = None) -> AtOffsets:
    return AtOffsets(option, {("orders", broker, 2): offset})


def test_words() -> None:
    assert resolved(Earliest(), Latest()) == (10, 50)
    assert resolved(Latest(), Latest()) == (50, 50)


def test_numbers() -> None:
    assert resolved(at(12), at(40, "endingOffsets")) == (12, 40)
    assert resolved(at(-2), at(-1)) == (10, 50)
    assert resolved(at(10), at(50)) == (10, 50)
    assert resolved(at(50), Latest()) == (50, 50)


def test_queues_without_a_number_are_read_whole() -> None:
    other = AtOffsets("startingOffsets", {("orders", None, 1): 30, ("returns", None, 2): 31})
    assert resolved(other, other) == (10, 50)


def test_the_entry_of_a_broker_wins() -> None:
    both = AtOffsets("startingOffsets", {("orders", None, 2): 20, ("orders", "broker-a", 2): 30})
    assert resolved(both, Latest()) == (30, 50)
    assert resolved(both, Latest(), ReadableQueue("orders", "broker-b", 2, 10, 50)) == (20, 50)


def test_times() -> None:
    assert resolved(AtTime("startingTimestamp", 1015), AtTime("endingTimestamp", 1020)) == (15, 20)
    times = AtTimes("startingOffsetsByTimestamp", {("orders", None, 2): 1017})
    assert resolved(times, Latest()) == (17, 50)
    assert resolved(AtTimes("x", {}), AtTimes("y", {})) == (10, 50)


def test_an_end_by_time_before_the_start_is_empty() -> None:
    assert resolved(at(30), AtTime("endingTimestamp", 1020)) == (30, 30)


def test_numbers_that_cross_are_a_mistake() -> None:
    with pytest.raises(OptionInvalid) as raised:
        resolved(at(30), at(20, "endingOffsets"))
    assert raised.value.option == "endingOffsets"
    assert "before its start 30" in str(raised.value)


def test_what_is_gone_is_lost_data() -> None:
    with pytest.raises(DataLost) as raised:
        resolved(at(3), Latest())
    assert "orders queue 2 on broker-a: offset 3 is gone" in str(raised.value)
    assert "failOnDataLoss=false" in str(raised.value)


def test_what_never_was_is_out_of_range() -> None:
    with pytest.raises(OptionInvalid) as raised:
        resolved(at(51), Latest())
    assert "offset 51 is out of range, offsets from 10 to 50 are there" in str(raised.value)


def test_without_fail_on_data_loss_what_is_there_is_read(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert resolved(at(3), at(70), strict=False) == (10, 50)
    assert len(caplog.records) == 2
    assert "used=10" in caplog.text
    assert "used=50" in caplog.text


PRESENT = [
    ReadableQueue("orders", "a", 0, 0, 9),
    ReadableQueue("orders", "b", 1, 0, 9),
    ReadableQueue("returns", "a", 0, 0, 9),
]


@pytest.mark.parametrize(
    "limit",
    [
        Earliest(),
        Latest(),
        AtTime("x", 0),
        AtOffsets("x", {("orders", None, 1): 1}),
        AtTimes("x", {("orders", "b", 1): 0}),
    ],
)
def test_names_that_are_there(limit: Limit) -> None:
    check_names(limit, PRESENT, "/store")


def test_a_topic_that_is_not_there_shows_the_nearest() -> None:
    with pytest.raises(TopicUnknown) as raised:
        check_names(AtOffsets("x", {("order", None, 0): 1}), PRESENT, "/store")
    assert raised.value.nearest == ("orders",)


def test_a_broker_or_queue_that_is_not_there() -> None:
    with pytest.raises(OptionInvalid, match="there is no broker 'c'; there is a, b"):
        check_names(AtOffsets("x", {("orders", "c", 0): 1}), PRESENT, "/store")
    with pytest.raises(OptionInvalid, match="topic orders has no queue 7; its queues: 0, 1"):
        check_names(AtOffsets("x", {("orders", None, 7): 1}), PRESENT, "/store")
    with pytest.raises(OptionInvalid, match="topic orders has no queue 0; its queues: 1"):
        check_names(AtOffsets("x", {("orders", "b", 0): 1}), PRESENT, "/store")


offsets = st.integers(-2, 60)


@given(offsets, offsets, st.integers(0, 30), st.integers(0, 30))
def test_what_is_resolved_is_inside_the_queue(start: int, end: int, low: int, length: int) -> None:
    ends = ReadableQueue("orders", "broker-a", 2, low, low + length)
    try:
        first, last = resolved(at(start), at(end), ends)
    except DataLost:
        assert 0 <= min(start, end) < low or 0 <= start < low or 0 <= end < low
    except OptionInvalid:
        assert max(start, end) > low + length or start > end or start == -1 or end == -2
    else:
        assert low <= first <= last <= low + length
    first, last = resolved(Earliest(), AtTime("x", 1000 + max(end, low)), ends, strict=False)
    assert low <= first <= last


@given(st.text(max_size=40))
def test_any_text_is_a_limit_or_refused(text: str) -> None:
    option = "startingOffsets"
    try:
        limit = parse_limit(option, text, "start", streaming=True)
    except OptionInvalid as problem:
        option = problem.option
    else:
        assert isinstance(limit, Earliest | Latest | AtOffsets)
    assert option == "startingOffsets"
