"""The history checker finds what it is for, and nothing else."""

import pytest

from tests.support.histories import History

QUEUE = ("orders", 0)


def sent(count: int) -> History:
    history = History()
    for number in range(count):
        history.sent(number, QUEUE, number)
    return history


def test_a_good_history_passes() -> None:
    history = sent(3)
    for number in (0, 1, 2, 1):  # One comes twice, which is allowed at least once.
        history.delivered("a", QUEUE, number, number)
    history.check()
    assert history.repeated() == {1: 2}
    with pytest.raises(AssertionError, match="more than once"):
        history.check(exactly_once=True)


def test_a_lost_message_is_named() -> None:
    history = sent(3)
    history.delivered("a", QUEUE, 0, 0)
    history.delivered("a", QUEUE, 2, 2)
    assert history.unconsumed() == [1]
    with pytest.raises(AssertionError, match=r"1 of 3 sent messages were not consumed: \[1\]"):
        history.check()


def test_what_failed_in_its_handler_was_not_consumed() -> None:
    history = sent(1)
    with pytest.raises(RuntimeError), history.handling("a", QUEUE, 0, 0):
        raise RuntimeError("handler")
    assert history.unconsumed() == [0]
    with history.handling("a", QUEUE, 0, 0):
        pass
    history.check(exactly_once=True)


def test_a_message_that_was_never_sent_is_a_stranger_unless_it_was_tried() -> None:
    history = sent(1)
    history.trying("maybe")
    history.delivered("a", QUEUE, 0, 0)
    history.delivered("a", QUEUE, 1, "maybe")
    history.check()
    history.delivered("a", QUEUE, 2, "ghost")
    assert history.strangers() == ["ghost"]
    with pytest.raises(AssertionError, match="never sent"):
        history.check()


def test_order_is_that_of_first_consumptions() -> None:
    history = sent(4)
    for number in (0, 2, 1, 2, 3):
        history.delivered("a", QUEUE, number, number)
    ((later, earlier),) = history.out_of_order()
    assert (later.position, earlier.position) == (2, 1)
    history.check(ordered=False)
    with pytest.raises(AssertionError, match="out of order"):
        history.check()


def test_streams_have_orders_of_their_own() -> None:
    history = History()
    for number, queue in ((5, "q1"), (0, "q2"), (6, "q1"), (1, "q2")):
        history.sent((queue, number), queue, number)
        history.delivered("a", queue, number, (queue, number))
    history.check()


def test_two_owners_at_once_are_found() -> None:
    history = sent(2)
    first = history.begin("a", QUEUE, 0, 0)
    second = history.begin("b", QUEUE, 1, 1)
    history.finish(first)
    history.finish(second)
    ((one, other),) = history.two_owners()
    assert {one.owner, other.owner} == {"a", "b"}
    history.check(single_owner=False)
    with pytest.raises(AssertionError, match="two owners"):
        history.check()


def test_one_owner_may_handle_several_and_owners_may_take_turns() -> None:
    history = sent(4)
    first, second = history.begin("a", QUEUE, 0, 0), history.begin("a", QUEUE, 1, 1)
    history.finish(first)
    history.finish(second)
    history.delivered("b", QUEUE, 2, 2)
    died = history.begin("b", QUEUE, 3, 3)
    history.delivered("c", QUEUE, 3, 3)
    assert died.end is None
    history.check()


def test_a_long_handling_overlaps_all_that_come_meanwhile() -> None:
    history = sent(3)
    long = history.begin("a", QUEUE, 0, 0)
    history.delivered("a", QUEUE, 1, 1)
    history.delivered("b", QUEUE, 2, 2)
    history.finish(long)
    assert [(one.position, other.position) for one, other in history.two_owners()] == [(0, 2)]
