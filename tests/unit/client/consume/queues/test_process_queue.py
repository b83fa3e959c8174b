"""What may be committed of a queue, and when its pulls stop."""

import random

import pytest

from embermq.client.consume.queues.process_queue import CacheLimits, ProcessQueue
from embermq.client.received import ReceivedMessage
from tests.support.received import received, several


def cache(**limits: int) -> ProcessQueue:
    return ProcessQueue(CacheLimits(**limits))


def test_nothing_is_committable_before_the_first_message() -> None:
    assert cache().committable is None


def test_the_smallest_unfinished_offset_is_committable() -> None:
    process = cache()
    process.put(several(5, 9))
    assert process.committable == 5
    process.finish([6, 8])
    assert process.committable == 5
    process.finish([5])
    assert process.committable == 7
    process.finish([7])
    assert (process.committable, len(process), process.body_bytes) == (9, 0, 0)


def test_offsets_that_matched_nothing_are_passed() -> None:
    process = cache()
    process.put(several(5, 7))
    process.passed(100)
    process.finish([5])
    assert process.committable == 6
    process.finish([6])
    assert process.committable == 100


def test_finishing_twice_or_unknown_offsets_changes_nothing() -> None:
    process = cache()
    process.put(several(0, 2))
    process.finish([0, 0, 77])
    assert (process.committable, len(process), process.body_bytes) == (1, 1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_finishing_commits_only_what_is_below_everything_unfinished(seed: int) -> None:
    chance, process, left = random.Random(seed), cache(), set[int]()
    end = 0
    for _ in range(300):
        if chance.random() < 0.4:
            offsets = [end + step for step in sorted(chance.sample(range(5), 3))]
            process.put([received(offset) for offset in offsets])
            left.update(offsets)
            end = offsets[-1] + 1
        elif left:
            done = chance.sample(sorted(left), min(len(left), chance.randrange(1, 4)))
            process.finish(done)
            left.difference_update(done)
        if end:
            assert process.committable == (min(left) if left else end)
            assert process.first_offset == (min(left) if left else None)
            assert process.last_offset == (max(left) if left else None)
            assert len(process) == process.body_bytes == len(left)


@pytest.mark.parametrize(
    ("limits", "messages", "finished", "reason"),
    [
        pytest.param({"messages": 4}, several(0, 4), [], "4 messages are waiting, at most 4 may", id="count"),
        pytest.param({"messages": 4}, several(0, 3), [], None, id="count below"),
        pytest.param({"body_bytes": 10}, [received(0, b"x" * 10)], [], "10 bytes are waiting", id="bytes"),
        pytest.param({"body_bytes": 11}, [received(0, b"x" * 10)], [], None, id="bytes below"),
        pytest.param({"span": 9}, several(0, 10), [*range(1, 9)], "offset 0 is not finished, and 9", id="span"),
        pytest.param({"span": 9}, several(0, 10), [0], None, id="span below"),
    ],
)
def test_limits(
    limits: dict[str, int], messages: list[ReceivedMessage], finished: list[int], reason: str | None
) -> None:
    process = cache(**limits)
    process.put(messages)
    process.finish(finished)
    said = process.full_because()
    assert (said is None) if reason is None else (said is not None and reason in said)


def test_there_is_room_again_when_half_of_every_limit_is_free() -> None:
    process = cache(messages=4)
    process.put(several(0, 4))
    process.finish([0])
    assert process.full_because() is None
    assert not process.has_room()
    process.finish([1])
    assert process.has_room()


def test_an_orderly_cache_has_no_span() -> None:
    process = ProcessQueue(CacheLimits(span=2), is_orderly=True)
    process.put(several(0, 10))
    assert process.full_because() is None
    assert process.has_room()


def test_orderly_messages_are_taken_from_the_front_and_given_back_to_it() -> None:
    process = ProcessQueue(CacheLimits(), is_orderly=True)
    process.put(several(0, 5))
    taken = process.take(3)
    assert [one.queue_offset for one in taken] == [0, 1, 2]
    process.finish([0])
    process.give_back(taken[1:])
    assert [one.queue_offset for one in process.take(99)] == [1, 2, 3, 4]
    assert not process.has_waiting()
    assert process.committable == 1


def test_a_dropped_queue_hands_out_nothing() -> None:
    process = ProcessQueue(CacheLimits(), is_orderly=True)
    process.put(several(0, 5))
    process.drop()
    assert process.is_dropped
    assert process.take(5) == []


def test_after_a_restart_the_new_offset_counts() -> None:
    process = cache()
    process.put(several(50, 60))
    process.restart(3)
    assert (process.committable, len(process), process.body_bytes, process.span) == (3, 0, 0, 0)
    process.finish([55])  # A handler of before.
    assert process.committable == 3
    process.put(several(3, 5))
    assert process.committable == 3
