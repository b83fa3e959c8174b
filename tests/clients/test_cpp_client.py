"""RocketMQ's C++ client against `embermq broker`: sends, batches, push and orderly consumption, tags, retries."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.inspect import Survey
from tests.support.broker_process import BrokerProcess

CHILD = Path(__file__).with_name("cpp_child.py")
CHILD_SECONDS = 180

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None,
        reason="the C++ client is not installed: PyPI has `rocketmq` for Linux on x86-64 only",
    ),
]

Said = dict[str, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    place = tmp_path_factory.mktemp("cpp")
    write_groups(place / "store", "cpp-dead", retries=1)
    with BrokerProcess(place, "--set", f"messageDelayLevel={' '.join(['1s'] * 18)}") as running:
        yield running


def write_groups(store: Path, group: str, *, retries: int) -> None:
    """The table of groups as an administrator leaves it."""
    table = {
        "dataVersion": {"counter": 1, "timestamp": 1},
        "subscriptionGroupTable": {group: {"groupName": group, "retryMaxTimes": retries, "retryQueueNums": 1}},
    }
    (store / "config").mkdir(parents=True)
    (store / "config" / "subscriptionGroup.json").write_text(json.dumps(table))


def script(broker: BrokerProcess, home: Path, *steps: str) -> list[Said]:
    """What each step of cpp_child.py said."""
    command = [sys.executable, str(CHILD), broker.name_server, *steps]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
        env=os.environ | {"HOME": str(home)},  # It keeps a log there.
    )
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [one["step"] for one in said] == list(steps), f"{ran.stdout}\n{ran.stderr}\n{broker.log}"
    return said


def test_produce_and_push(broker: BrokerProcess, tmp_path: Path) -> None:
    produced, pushed, tagged = script(broker, tmp_path, "produce", "push", "tags")
    assert (produced["statuses"], produced["batch"]) == ([0] * 6, 0)
    kinds = [*(f"sync-{n} 0" for n in range(6)), *(f"{kind}-{n} 0" for kind in ("oneway", "batch") for n in range(4))]
    assert sorted(pushed["seen"]) == sorted(kinds)
    assert sorted(tagged["seen"]) == ["sync-1 0", "sync-3 0", "sync-5 0"]


def test_orderly(broker: BrokerProcess, tmp_path: Path) -> None:
    (said,) = script(broker, tmp_path, "orderly")
    for queue in range(2):
        of_queue = [body for body in said["seen"] if body.startswith(f"{queue}-")]
        assert of_queue == [f"{queue}-{number} 0" for number in range(queue, 20, 2)]


def test_delay(broker: BrokerProcess, tmp_path: Path) -> None:
    (said,) = script(broker, tmp_path, "delay")
    assert said["seen"] == ["at-once 0", "late 0"]
    assert said["seconds"][0] >= 0.95


def test_retry_and_dead_letter(broker: BrokerProcess, tmp_path: Path) -> None:
    again, dead = script(broker, tmp_path, "retry", "dead")
    assert again["seen"] == ["again 0", "again 1"]
    assert dead["seen"] == ["hopeless 0", "hopeless 1"]
    deadline = time.monotonic() + 30
    while "%DLQ%cpp-dead" not in topics(broker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "%DLQ%cpp-dead" in topics(broker)


def topics(broker: BrokerProcess) -> set[str]:
    """Topics with messages in the store, looked at from outside."""
    return {topic for topic, _queue in Survey.open(broker.store).queues()}
