"""What brokers ask a consumer: bodies in both forms, groups that are another's, figures."""

from collections import deque
from typing import Any

import pytest

from embermq.client.consume.broker_requests import (
    BrokerRequests,
    NotifyHeader,
    ResetHeader,
    RunningHeader,
    StatusHeader,
    parse_offset_table,
    thread_stacks,
)
from embermq.client.consume.handle.figures import WINDOW_SECONDS, ConsumedFigures, ConsumerFigures
from embermq.client.consume.handle.handlers import CONSUMED, LATER, Context, HandlerOutcome
from embermq.client.consume.handle.workers import HandlerCall
from embermq.client.message_queue import MessageQueue
from embermq.remoting import Call, Command, Reply, parse_json
from tests.support.received import QUEUE, received, several

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
JAVA = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
CPP = b"""{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"},
                          {"brokerName":"b","offset":7,"queueId":1,"topic":"T"}]}"""


class Consumer:
    """Notes what it is asked."""

    group = "g"

    def __init__(self) -> None:
        self.rebalances = 0
        self.works: list[Any] = []

    def rebalance_soon(self) -> None:
        self.rebalances += 1

    def soon(self, work: Any) -> None:
        self.works.append(work)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        return {Q0: 5} if topic == "T" else {}

    def running_info(self) -> dict[str, Any]:
        return {"properties": {}}


def call(header: Any, body: bytes = b"") -> Any:
    return Call(None, Command(0, body=body), header, lambda _request, _reply: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [JAVA, CPP])
def test_resets_come_as_a_map_or_as_a_list(body: bytes) -> None:
    assert parse_offset_table(body) == {Q0: 5, Q1: 7}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"offsetTable":[{"topic":"T"}]}', b'{"offsetTable":[1]}'])
def test_a_reset_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_offset_table(body)
    consumer = Consumer()
    assert BrokerRequests(consumer).reset(call(ResetHeader("T", "g"), body)) is None  # type: ignore[arg-type]
    assert consumer.works == []


def test_what_is_for_another_group_is_left_alone() -> None:
    consumer = Consumer()
    requests = BrokerRequests(consumer)  # type: ignore[arg-type]
    requests.members_changed(call(NotifyHeader("other")))
    requests.reset(call(ResetHeader("T", "other"), JAVA))
    assert (consumer.rebalances, consumer.works) == (0, [])
    for reply in (
        requests.status(call(StatusHeader("T", "other"))),
        requests.running_info(call(RunningHeader("other"))),
    ):
        assert isinstance(reply, Reply)
        assert reply.code == 1
        assert "other is not in this client" in (reply.remark or "")
    requests.members_changed(call(NotifyHeader("g")))
    requests.reset(call(ResetHeader("T", "g"), JAVA))
    assert (consumer.rebalances, len(consumer.works)) == (1, 1)


def test_offsets_are_told_in_java_s_form() -> None:
    reply = BrokerRequests(Consumer()).status(call(StatusHeader("T", "g")))  # type: ignore[arg-type]
    assert reply.body == b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'


def test_stacks_are_told_when_they_are_wanted() -> None:
    requests = BrokerRequests(Consumer())  # type: ignore[arg-type]
    assert "jstack" not in parse_json(requests.running_info(call(RunningHeader("g"))).body)
    assert "jstack" in parse_json(requests.running_info(call(RunningHeader("g", "", True))).body)
    assert "test_stacks_are_told" in thread_stacks()


def made(count: int, outcome: HandlerOutcome, seconds: float = 0.01) -> HandlerCall:
    one = HandlerCall(print, several(0, count), Context(QUEUE, "g"))
    one.outcome, one.seconds = outcome, seconds
    return one


def test_figures_by_topic() -> None:
    figures = ConsumerFigures()
    other = HandlerCall(print, [received(0, queue=MessageQueue("bills", "a", 0))], Context(QUEUE, "g"))
    other.outcome = LATER
    figures.handled([made(3, CONSUMED), made(2, LATER), other])
    assert (figures.consumed("orders"), figures.consumed("bills"), figures.consumed("nothing")) == (3, 0, 0)
    documents = figures.documents()
    assert documents["orders"]["consumeFailedMsgs"] == 2
    assert documents["orders"]["consumeRT"] == pytest.approx(10.0)
    assert documents["bills"]["consumeFailedMsgs"] == 1


def test_rates_are_those_of_the_last_minute() -> None:
    topic = ConsumedFigures()
    topic.add(0.0, 600, 0, 600, 6.0)
    topic.add(30.0, 0, 30, 30, 0.0)
    document = topic.document(30.0)
    assert (document["consumeOKTPS"], document["consumeFailedTPS"]) == (20.0, 1.0)
    later = topic.document(2 * WINDOW_SECONDS)
    assert (later["consumeOKTPS"], later["consumeFailedMsgs"]) == (0.0, 30)
    topic.add(10 * WINDOW_SECONDS, 1, 0, 1, 0.0)
    assert len(topic.steps) == 1
    assert isinstance(topic.steps, deque)
