"""RocketMQ's C++ client, a process of its own, against the broker of a test."""

from pathlib import Path

import pytest

from embermq.testing import LocalBroker
from tests.clients import programs
from tests.interop.reference import ReferenceMissing


@pytest.mark.slow(seconds=3)
def test_a_client_in_another_process(rocketmq_broker: LocalBroker, tmp_path: Path) -> None:
    try:
        client = programs.cpp()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    client.run(rocketmq_broker.name_server, tmp_path / "home", ["produce"])
    rocketmq_broker.kill_and_restart()
    sent = [message.body.decode() for message in rocketmq_broker.sent("cpp-plain")]
    assert sorted(sent) == sorted(
        f"{kind}-{number}" for kind, count in (("sync", 6), ("oneway", 4), ("batch", 4)) for number in range(count)
    )
    said = client.run(rocketmq_broker.name_server, tmp_path / "home", ["push"])
    assert said["push"]["seen"] == sorted(f"{body} 0" for body in sent)
    committed = rocketmq_broker.committed("cpp-push")
    assert sorted(message.body.decode() for message in committed) == sorted(sent)
