"""The tries of a message as a table: no socket, no clock."""

import pytest

from embermq.client.message_queue import MessageQueue
from embermq.client.produce.attempts import PAUSE_SECONDS, RETRIED_CODES, Attempts, Try
from embermq.client.produce.queue_choice import QueueChoice
from embermq.errors import BrokerUnreachable, ClientError, RequestRefused, SendFailed

A0, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def attempts(*queues: MessageQueue, is_fixed: bool = False, retries: int = 2) -> Attempts:
    """Of a message with 3 s from 0 on, whose first try went to the first of the queues."""
    listed, choice = list(queues) or [A0, B0], QueueChoice()
    return Attempts(
        "T",
        listed[0],
        lambda avoided, now: choice.choose("T", listed, avoided, now),
        is_fixed=is_fixed,
        retries=retries,
        deadline=3.0,
        seconds=3.0,
    )


def unreachable(is_sent: bool, broker: str = "a") -> BrokerUnreachable:
    return BrokerUnreachable(broker, "1.1.1.1:1", "SEND", "gone", topic="T", is_sent=is_sent)


def refused(code: int) -> RequestRefused:
    return RequestRefused("SEND", code, f"code {code}", "no", broker="a", address="1.1.1.1:1", topic="T")


RETRIED = [unreachable(False), unreachable(True), *(refused(code) for code in sorted(RETRIED_CODES))]


@pytest.mark.parametrize("error", RETRIED, ids=str)
def test_another_broker_is_tried_at_once(error: ClientError) -> None:
    one = attempts()
    first = one.last
    second = one.failed(error, 1.0)
    assert isinstance(second, Try)
    assert second.queue.broker != first.broker
    assert (second.pause, second.seconds) == (0.0, 2.0)
    third = one.failed(error, 2.0)
    assert isinstance(third, Try)
    assert third.queue.broker == first.broker
    assert one.count == 3


@pytest.mark.parametrize("error", [refused(code) for code in (2, 13, 26, 3)], ids=str)
def test_what_no_broker_would_take_is_said_at_once(error: ClientError) -> None:
    one = attempts()
    assert one.failed(error, 0.1) is error


def test_the_same_broker_is_tried_after_a_growing_pause() -> None:
    one = attempts(A0)
    assert one.failed(unreachable(False), 0.0) == Try(A0, 3.0 - PAUSE_SECONDS, PAUSE_SECONDS)
    assert one.failed(unreachable(False), 1.0) == Try(A0, 2.0 - 4 * PAUSE_SECONDS, 4 * PAUSE_SECONDS)


def test_when_tries_are_used_up_all_errors_are_told() -> None:
    one = attempts()
    errors = [unreachable(True, "a"), unreachable(False, "b"), refused(14)]
    for error in errors[:2]:
        assert isinstance(one.failed(error, 0.1), Try)
    end = one.failed(errors[2], 0.2)
    assert isinstance(end, SendFailed)
    assert end.attempts == tuple(errors)
    assert end.__cause__ is errors[2]
    assert "3 tries failed" in str(end)
    assert "'T'" in str(end)


def test_without_retries_the_error_itself_is_raised() -> None:
    one = attempts(retries=0)
    error = unreachable(True)
    assert one.failed(error, 0.1) is error


def test_no_try_begins_after_the_time_of_the_message() -> None:
    one = attempts()
    end = one.failed(unreachable(True), 3.0)
    assert isinstance(end, SendFailed)
    assert "3 s are over" in str(end)


@pytest.mark.parametrize(
    ("error", "is_tried_again"), [(unreachable(False), True), (unreachable(True), False), (refused(14), False)]
)
def test_a_fixed_queue_is_tried_again_only_if_nothing_was_sent(error: ClientError, is_tried_again: bool) -> None:
    one = attempts(B0, A0, is_fixed=True)
    step = one.failed(error, 0.1)
    assert (step == Try(B0, 2.9 - PAUSE_SECONDS, PAUSE_SECONDS)) is is_tried_again
    if not is_tried_again:
        assert step is error


def test_an_error_that_ends_it_after_others_keeps_them() -> None:
    one = attempts()
    one.failed(unreachable(True), 0.1)
    end = one.failed(refused(13), 0.2)
    assert isinstance(end, SendFailed)
    assert len(end.attempts) == 2
