"""Which queue is next."""

from collections import Counter

import pytest

from embermq.client.message_queue import MessageQueue
from embermq.client.produce.queue_choice import FAILED_MS, LatencyFaults, QueueChoice, queue_for
from embermq.errors import ClientError, OptionInvalid
from embermq.model.message import Message

QUEUES = [MessageQueue("T", broker, number) for broker in "abc" for number in range(2)]
M = Message("T", b"x")


def test_every_queue_has_its_turn() -> None:
    choice = QueueChoice()
    counted = Counter(choice.choose("T", QUEUES, None, 0.0) for _ in range(60))
    assert counted == dict.fromkeys(QUEUES, 10)


def test_the_avoided_broker_is_taken_only_if_there_is_no_other() -> None:
    choice = QueueChoice()
    assert {choice.choose("T", QUEUES, "a", 0.0).broker for _ in range(20)} == {"b", "c"}
    assert choice.choose("T", QUEUES[:2], "a", 0.0).broker == "a"


def test_topics_have_turns_of_their_own() -> None:
    choice = QueueChoice()
    first = choice.choose("T", QUEUES, None, 0.0)
    for _ in range(5):
        choice.choose("S", QUEUES, None, 0.0)
    assert QUEUES.index(choice.choose("T", QUEUES, None, 0.0)) == (QUEUES.index(first) + 1) % 6


@pytest.mark.parametrize(
    ("latency_ms", "seconds"),
    [(10, 0), (549, 0), (550, 30), (1000, 60), (2000, 120), (3000, 180), (15_000, 600), (FAILED_MS, 600)],
)
def test_slow_brokers_are_left_alone_for_a_while(latency_ms: int, seconds: int) -> None:
    faults = LatencyFaults()
    faults.sent("a", latency_ms, 100.0)
    choice = QueueChoice(faults)
    assert faults.is_available("a", 100.0 + seconds)
    if seconds:
        assert not faults.is_available("a", 99.9 + seconds)
        assert "a" not in {choice.choose("T", QUEUES, None, 101.0).broker for _ in range(30)}
    assert "a" in {choice.choose("T", QUEUES, None, 100.0 + seconds).broker for _ in range(30)}


def test_among_bad_brokers_the_better_half_is_used() -> None:
    faults = LatencyFaults()
    for broker, latency in (("a", FAILED_MS), ("b", 600), ("c", 16_000)):
        faults.sent(broker, latency, 0.0)
    choice = QueueChoice(faults)
    assert {choice.choose("T", QUEUES, None, 1.0).broker for _ in range(30)} == {"b"}


def test_keys_go_where_java_puts_them() -> None:
    # "o-1".hashCode() is 108115, "polygenelubricants".hashCode() is Integer.MIN_VALUE
    assert queue_for("o-1", QUEUES, M) == QUEUES[108115 % 6]
    assert queue_for(b"o-1", QUEUES, M) == queue_for("o-1", QUEUES, M)
    assert queue_for("polygenelubricants", QUEUES, M) == QUEUES[2**31 % 6]
    assert queue_for(8, QUEUES, M) == queue_for(-8, QUEUES, M) == QUEUES[2]


def test_a_function_may_choose() -> None:
    assert queue_for(lambda queues, message: queues[-1], QUEUES, M) == QUEUES[-1]
    assert queue_for(lambda queues, message: 7, QUEUES, M) == QUEUES[1]
    with pytest.raises(OptionInvalid, match="none of the queues"):
        queue_for(lambda queues, message: MessageQueue("T", "x", 0), QUEUES, M)

    def bad(queues: object, message: Message) -> int:
        raise KeyError("k")

    with pytest.raises(ClientError, match="queue_by raised KeyError"):
        queue_for(bad, QUEUES, M)
