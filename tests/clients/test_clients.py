"""RocketMQ's C++ client and its Node client against `embermq broker`.

What Apache's broker makes of the same scripts was recorded (outcomes.py); `make interop` asks it again.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.inspect import Survey
from tests.clients import programs
from tests.clients.outcomes import DELAY_LEVELS, ONE_RETRY, Client, Outcome, expected, write_tables
from tests.interop.reference import ReferenceMissing
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow(seconds=60)


def client_or_skip(made: Callable[[], Client]) -> Client:
    try:
        return made()
    except ReferenceMissing as why:
        pytest.skip(str(why))


def broker(place: Path) -> BrokerProcess:
    write_tables(place / "store")
    return BrokerProcess(place, "--set", f"messageDelayLevel={DELAY_LEVELS}")


def test_the_cpp_client_cannot_tell(tmp_path: Path) -> None:
    client = client_or_skip(programs.cpp)
    with broker(tmp_path) as running:
        outcome = client.run(running.name_server, tmp_path / "home", client.before)
        dead_letters = f"%DLQ%{ONE_RETRY}"
        wait_until(lambda: dead_letters in topics(running), f"messages of {dead_letters}", seconds=30)
    assert outcome == expected(client, of_embermq=True)


def topics(broker: BrokerProcess) -> set[str]:
    """Topics with messages in the store, looked at from outside."""
    return {topic for topic, _queue in Survey.open(broker.store).queues()}


def test_the_node_client_cannot_tell(tmp_path: Path) -> None:
    client = client_or_skip(programs.node)
    outcome: Outcome = {}
    for steps in (client.before, client.after):
        with broker(tmp_path) as running:
            outcome |= client.run(running.name_server, tmp_path / "home", steps)
            assert running.stop() == 0
    assert outcome == expected(client, of_embermq=True)
