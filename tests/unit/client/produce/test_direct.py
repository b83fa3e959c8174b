"""Single sends on the caller's thread: where they go, and what happens when they fail."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.client import Credentials, Message, Producer
from embermq.client.produce.direct import DirectSends, FailedTry
from embermq.client.produce.results import SendResult
from embermq.client.produce.settings import producer_settings
from embermq.errors import BrokerUnreachable, SendFailed
from tests.support.clusters import Cluster, cluster_on_thread

M = Message("orders", b"x")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path) as started:
        yield started


def directs(producer: Producer) -> DirectSends:
    found = producer._direct
    assert found is not None
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"credentials": Credentials("a", "b")},
        {"trace": True},
        {"tls": True},
        {"latency_faults": True},
        {"retry_unless_ok": True},
        {"namespace": "n"},
        {"hooks": [object()]},
    ],
)
def test_what_belongs_to_the_loop_stays_there(options: Any) -> None:
    assert DirectSends.suits(producer_settings("127.0.0.1:1", "g", {}))
    assert not DirectSends.suits(producer_settings("127.0.0.1:1", "g", options))


def test_queues_take_turns_and_results_are_whole(cluster: Cluster) -> None:
    with Producer(cluster.name_server, "g") as producer:
        results = [producer.send(M) for _ in range(9)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
        assert len({result.offset_message_id for result in results}) == 9
        assert all(result.ok and result.queue.broker == "a" for result in results)
        assert list(directs(producer)._connections) == [cluster.broker.address]
        tried = directs(producer).send(producer._pack(M), 10.0)
        assert isinstance(tried, SendResult)


def test_a_lost_connection_is_made_again_and_nothing_is_lost(cluster: Cluster) -> None:
    with Producer(cluster.name_server, "g") as producer:
        producer.send(M)
        producer.send(M)
        connection = directs(producer)._connections[cluster.broker.address]
        connection._socket.shutdown(socket.SHUT_RDWR)
        assert producer.send(M).ok
        assert directs(producer)._connections[cluster.broker.address] is not connection


def test_a_thread_that_finds_it_taken_goes_over_the_loop(cluster: Cluster) -> None:
    with Producer(cluster.name_server, "g") as producer:
        producer.send(M)
        with directs(producer)._turn:
            assert directs(producer).send(producer._pack(M), 10.0) is None
            assert producer.send(M).ok


def test_refusals_and_retries_are_those_of_the_loop(cluster: Cluster) -> None:
    with Producer(cluster.name_server, "g") as producer:
        for _ in range(2):  # The first one asks for the route, the second is tried directly.
            with pytest.raises(SendFailed, match="NO_PERMISSION") as raised:
                producer.send(Message("SELF_TEST_TOPIC", b"x"))
            assert len(raised.value.attempts) == 3


def test_a_broker_that_does_not_answer(cluster: Cluster) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Producer(cluster.name_server, "g", retries=0) as producer,
    ):
        producer.send(M)
        targets = producer.inner.core.sender._known["orders"]
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        targets.addresses["a"] = targets.addresses["a"]._replace(address=address)
        tried = directs(producer).send(producer._pack(M), 0.05)
        assert isinstance(tried, FailedTry)
        assert isinstance(tried.error, BrokerUnreachable)
        assert tried.error.is_sent
        with pytest.raises(BrokerUnreachable, match="no answer in time"):
            producer.send(M, timeout=0.05)


def test_closing_wakes_a_send_that_waits(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Producer(cluster.name_server, "g") as producer:
        producer.send(M)
        targets = producer.inner.core.sender._known["orders"]
        targets.addresses["a"] = targets.addresses["a"]._replace(address=f"127.0.0.1:{silent.getsockname()[1]}")
        outcome: list[Any] = []
        thread = threading.Thread(target=lambda: outcome.append(directs(producer).send(producer._pack(M), 300.0)))
        thread.start()
        peer = silent.accept()[0]
        assert peer.recv(1)
        directs(producer).close()
        thread.join(30)
        peer.close()
        assert isinstance(outcome[0], FailedTry)
        assert directs(producer).send(producer._pack(M), 0.5) is None
