"""Following queues over a restart of their broker, at another address."""

from pathlib import Path

import pytest

from embermq.client.admin import Admin, TopicConfig
from tests.support.probed_cluster import ProbedCluster
from tests.support.waiting import wait_until


@pytest.mark.slow(seconds=8)
def test_a_tail_goes_on_after_the_broker_came_back_elsewhere(tmp_path: Path) -> None:
    first = ProbedCluster(tmp_path)
    with Admin(first.name_server) as admin:
        admin.topics.put(TopicConfig("t", 1, 1), admin.brokers.places())
        bodies: list[bytes] = []
        with admin.messages.tail([(admin.messages.queues("t")[0], 0)]) as tail:

            def came(count: int) -> bool:
                bodies.extend(one.message.payload for one in tail.next(0.2))
                return len(bodies) == count

            first.send("t", b"before")
            wait_until(lambda: came(1))
            first.stop()
            assert tail.next(0.2) == []
            with ProbedCluster(tmp_path, name_server=first.name_server) as second:
                assert second.address != first.address
                second.send("t", b"after")
                wait_until(lambda: came(2))
    assert bodies == [b"before", b"after"]
