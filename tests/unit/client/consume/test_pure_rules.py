"""Starts, locks, retries, subscriptions, handler answers: a test for each row."""

from datetime import UTC, datetime

import pytest

from embermq.client.calls import SQL92, TAG, SubscriptionData
from embermq.client.consume.handle.by_topic import grouped
from embermq.client.consume.handle.handlers import CONSUMED, LATER, is_async, outcome_of
from embermq.client.consume.handle.retries import (
    as_handled,
    retry_message,
    send_back_of,
    suspend_seconds,
    tried_again,
)
from embermq.client.consume.queues.locks import HOLD_SECONDS, HeldLocks
from embermq.client.consume.queues.starts import (
    At,
    AtEnd,
    ConsumeFrom,
    Start,
    StartAtTime,
    parse_consume_from,
    parse_timestamp,
    start_of,
)
from embermq.client.consume.subscribing import Subscriptions, TagMatch, subscription_of
from embermq.client.message_queue import MessageQueue
from embermq.errors import OptionInvalid
from embermq.model.properties import decode_properties
from tests.support.received import received

Q0, Q1, Q2 = (MessageQueue("orders", broker, 0) for broker in "aab")
Q1 = MessageQueue("orders", "a", 1)
RETRY = MessageQueue("%RETRY%g", "a", 0)


# -- starts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "topic", "stored", "expected"),
    [
        (ConsumeFrom.LAST, "orders", 7, At(7)),
        (ConsumeFrom.LAST, "orders", 0, At(0)),
        (ConsumeFrom.LAST, "orders", None, AtEnd()),
        (ConsumeFrom.LAST, "orders", -1, AtEnd()),
        (ConsumeFrom.LAST, "%RETRY%g", None, At(0)),
        (ConsumeFrom.FIRST, "orders", 7, At(7)),
        (ConsumeFrom.FIRST, "orders", None, At(0)),
        (ConsumeFrom.FIRST, "%RETRY%g", None, At(0)),
        (ConsumeFrom.TIMESTAMP, "orders", 7, At(7)),
        (ConsumeFrom.TIMESTAMP, "orders", None, StartAtTime(1234)),
        (ConsumeFrom.TIMESTAMP, "%RETRY%g", None, AtEnd()),
    ],
)
def test_where_a_group_begins(policy: ConsumeFrom, topic: str, stored: int | None, expected: Start) -> None:
    assert start_of(policy, topic, stored, 1234) == expected


@pytest.mark.parametrize("name", ["last", "LAST", "CONSUME_FROM_LAST_OFFSET", ConsumeFrom.LAST])
def test_names_of_policies(name: str | ConsumeFrom) -> None:
    assert parse_consume_from(name) is ConsumeFrom.LAST


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(OptionInvalid, match="consume_from = 'middle': one of last, first, timestamp"):
        parse_consume_from("middle")


def test_times() -> None:
    assert parse_timestamp(None, 10_000_000) == 10_000_000 - 1_800_000
    assert parse_timestamp(77, 0) == 77
    assert parse_timestamp(datetime(2024, 1, 1, tzinfo=UTC), 0) == 1_704_067_200_000
    local = int(datetime(2024, 1, 2, 3, 4, 5).timestamp() * 1000)
    assert parse_timestamp("20240102030405", 0) == local
    with pytest.raises(OptionInvalid, match="14 digits"):
        parse_timestamp("yesterday", 0)


# -- locks ---------------------------------------------------------------------------------------------------------


def test_a_granted_lock_is_held_for_30_seconds_from_the_asking() -> None:
    locks = HeldLocks()
    assert locks.answered([Q0, Q1], {Q0}, 100.0) == []
    assert locks.is_held(Q0, 100.0 + HOLD_SECONDS - 0.1)
    assert not locks.is_held(Q0, 100.0 + HOLD_SECONDS)
    assert not locks.is_held(Q1, 100.0)
    assert locks.by_broker() == {"a": [Q0]}


def test_a_renewed_lock_is_held_on() -> None:
    locks = HeldLocks()
    locks.answered([Q0], {Q0}, 100.0)
    assert locks.answered([Q0], {Q0}, 120.0) == []
    assert locks.is_held(Q0, 149.0)
    locks.answered([Q0], {Q0}, 110.0)  # An answer that was late does not shorten it.
    assert locks.held_at(Q0) == 120.0


def test_a_lock_that_another_has_is_lost_at_once() -> None:
    locks = HeldLocks()
    locks.answered([Q0, Q2], {Q0, Q2}, 100.0)
    assert locks.answered([Q0, Q1], set(), 101.0) == [Q0]  # Q1 was never held.
    assert not locks.is_held(Q0, 101.0)
    assert locks.is_held(Q2, 101.0)


def test_a_lock_that_was_given_back_during_its_renewal_stays_given_back() -> None:
    locks = HeldLocks()
    locks.answered([Q0, Q2], {Q0, Q2}, 100.0)
    assert locks.release(Q0)
    assert locks.renewed([Q0, Q2], {Q0, Q2}, 120.0) == []
    assert locks.queues() == [Q2]
    assert locks.held_at(Q2) == 120.0
    assert locks.renewed([Q0, Q2], set(), 140.0) == [Q2]


def test_locks_that_were_not_renewed_expire() -> None:
    locks = HeldLocks()
    locks.answered([Q0], {Q0}, 100.0)
    locks.answered([Q2], {Q2}, 110.0)
    assert locks.expired(129.0) == []
    assert locks.expired(130.0) == [Q0]
    assert locks.expired(130.0) == []
    assert len(locks) == 1


def test_only_a_held_lock_is_given_back() -> None:
    locks = HeldLocks()
    locks.answered([Q0], {Q0}, 100.0)
    assert locks.release(Q0)
    assert not locks.release(Q0)


# -- retries -------------------------------------------------------------------------------------------------------


def test_a_retry_is_seen_under_the_topic_it_was_sent_to() -> None:
    message = received(3, queue=RETRY, tries=2, RETRY_TOPIC="orders")
    (seen,) = as_handled([message], "")
    assert (seen.topic, seen.queue, seen.reconsume_times, seen.queue_offset) == ("orders", RETRY, 2, 3)


def test_the_namespace_is_not_seen() -> None:
    queue = MessageQueue("ns%orders", "a", 0)
    retry = MessageQueue("%RETRY%ns%g", "a", 0)
    assert as_handled([received(0, queue=queue)], "ns")[0].topic == "orders"
    assert as_handled([received(0, queue=retry, RETRY_TOPIC="ns%orders")], "ns")[0].topic == "orders"


def test_ordinary_messages_are_handed_on_as_they_are() -> None:
    messages = [received(0), received(1)]
    assert as_handled(messages, "") is messages


def test_a_message_is_given_back_by_its_place() -> None:
    back = send_back_of(received(3, UNIQ_KEY="U"), "g", -1, 16)
    assert (back.offset, back.group, back.delay_level, back.max_reconsume_times) == (3000, "g", -1, 16)
    assert (back.origin_msg_id, back.origin_topic) == ("U", "orders")
    assert send_back_of(received(0, queue=RETRY, RETRY_TOPIC="orders"), "g", 0, 16).origin_topic == "orders"


def test_a_message_for_the_retry_topic_keeps_what_matters() -> None:
    message = received(3, b"zip", tries=2, sys_flag=0x309, TAGS="t", UNIQ_KEY="U", TRAN_MSG="true")
    made = retry_message(message, "g", 3, 16)
    assert (made.topic, made.body, made.flag, made.sys_flag) == ("%RETRY%g", b"zip", 5, 0x301)
    assert (made.reconsume_times, made.max_reconsume_times) == (3, 16)
    assert decode_properties(made.properties.encode()) == {
        "TAGS": "t",
        "UNIQ_KEY": "U",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "U",
        "DELAY": "5",
        "WAIT": "true",
    }


def test_a_second_retry_keeps_its_origin() -> None:
    message = received(3, queue=RETRY, RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="first")
    properties = decode_properties(retry_message(message, "g", 1, 16).properties.encode())
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", "first")


def test_one_more_try() -> None:
    assert tried_again(received(0, tries=4)).reconsume_times == 5


@pytest.mark.parametrize(("asked", "seconds"), [(None, 1.0), (0.5, 0.5), (0.0, 0.01), (-1.0, 0.01), (99.0, 30.0)])
def test_a_queue_waits_within_bounds(asked: float | None, seconds: float) -> None:
    assert suspend_seconds(asked) == seconds


# -- subscriptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "sql", "expected"),
    [
        ("*", None, SubscriptionData("orders", "*", TAG, 9)),
        (None, None, SubscriptionData("orders", "*", TAG, 9)),
        ("", None, SubscriptionData("orders", "*", TAG, 9)),
        ("paid || sent", None, SubscriptionData("orders", "paid || sent", TAG, 9)),
        ("*", "amount > 10", SubscriptionData("orders", "amount > 10", SQL92, 9)),
    ],
)
def test_subscriptions(expression: str | None, sql: str | None, expected: SubscriptionData) -> None:
    assert subscription_of("orders", expression, sql, 9) == expected


@pytest.mark.parametrize(
    ("topic", "expression", "sql", "reason"),
    [
        ("orders", "||", None, "option expression = '||': no tag in it"),
        ("orders", "paid", "a > 1", "option sql: topic 'orders' has the tag expression 'paid' already"),
        ("orders", "*", "  ", "option sql = '  ': the expression is empty"),
        ("", "*", None, "option topic = ''"),
        ("a b", "*", None, "option topic = 'a b'"),
    ],
)
def test_subscriptions_that_mean_nothing(topic: str, expression: str, sql: str | None, reason: str) -> None:
    with pytest.raises(OptionInvalid) as caught:
        subscription_of(topic, expression, sql, 9)
    assert str(caught.value).startswith(reason)


def test_tags_are_compared_by_text() -> None:
    # The two texts have the same hash code: the broker cannot tell them apart.
    messages = [received(0, TAGS="Aa"), received(1, TAGS="BB"), received(2)]
    assert TagMatch(subscription_of("orders", "Aa || C", None, 0)).select(messages) == messages[:1]
    assert TagMatch(subscription_of("orders", "*", None, 0)).select(messages) is messages
    assert TagMatch(subscription_of("orders", None, "a > 1", 0)).select(messages) is messages


def test_a_changed_subscription_gets_a_higher_version() -> None:
    subscriptions = Subscriptions()
    subscriptions.put(SubscriptionData("orders", "a", TAG, 50))
    subscriptions.put(SubscriptionData("orders", "b", TAG, 50))
    found = subscriptions.find("orders")
    assert found is not None
    assert (found.expression, found.version) == ("b", 51)
    assert "orders" in subscriptions
    assert subscriptions.topics() == ["orders"]
    assert subscriptions.remove("orders")
    assert not subscriptions.remove("orders")


# -- handlers ------------------------------------------------------------------------------------------------------


def test_answers_of_handlers() -> None:
    assert outcome_of(None) is CONSUMED
    assert outcome_of(True) is CONSUMED
    assert outcome_of(False) is LATER
    odd = outcome_of("CONSUME_SUCCESS")
    assert not odd.is_consumed
    assert "returned a str" in str(odd.problem)


def test_coroutine_functions_are_known() -> None:
    class Plain:
        def __call__(self) -> None: ...

    class Coroutine:
        async def __call__(self) -> None: ...

    async def function() -> None: ...

    assert [is_async(one) for one in (function, Coroutine(), Plain(), print, None)] == [True, True, False, False, False]


def test_messages_come_in_groups_of_one_topic() -> None:
    other = MessageQueue("bills", "a", 0)
    messages = [received(0), received(1), received(2, queue=other), received(3), received(4), received(5)]
    assert [[one.queue_offset for one in batch] for batch in grouped(messages, 2)] == [[0, 1], [2], [3, 4], [5]]
    assert [len(batch) for batch in grouped(messages, 1)] == [1] * 6
    assert [len(batch) for batch in grouped(messages, 99)] == [2, 1, 3]
    assert list(grouped([], 2)) == []
