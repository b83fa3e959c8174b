"""Apache RocketMQ's Java client 4.9.8 against `embermq broker`, as applications use it, with both kinds of header."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop.reference import ROOT, ReferenceMissing, class_path, java_command
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

PROJECT = ROOT / "tests" / "interop" / "java_client"
SCRIPT_SECONDS = 300
HEADERS = ["JSON", "ROCKETMQ"]

Said = dict[str, dict[str, Any]]


def script(name_server: str, home: Path, steps: Sequence[str], *jvm: str) -> Said:
    """What each step of ClientScript said."""
    try:
        classes = class_path(PROJECT / "pom.xml", (PROJECT,))
    except ReferenceMissing as why:
        pytest.skip(str(why))
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    places = [f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}/logs", "-Drocketmq.client.logLevel=WARN"]
    command = java_command("ClientScript", [name_server, *steps], jvm=[*quick, *places, *jvm], classes=classes)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_SECONDS, check=False)
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert ran.returncode == 0, f"{said}\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
    return {one["step"]: one for one in said}


@pytest.mark.parametrize("header", HEADERS)
def test_a_java_application(header: str, tmp_path: Path) -> None:
    steps = ["produce", "concurrent", "tags", "orderly", "broadcast", "delay", "retry", "deadLetter", "query"]
    with BrokerProcess(tmp_path) as broker:
        said = script(broker.name_server, tmp_path, steps, f"-Drocketmq.serialize.type={header}")
        assert broker.stop() == 0
    kinds = ("sync", "async", "oneway", "batch")
    produced = sorted(f"{kind}-{number}" for kind in kinds for number in range(10))
    assert said["produce"]["statuses"] == ["SEND_OK"] * 10
    assert (said["produce"]["answered"], said["produce"]["failed"]) == (True, [])
    assert (said["produce"]["batch"], said["produce"]["batchIds"]) == ("SEND_OK", 10)
    assert sorted(said["concurrent"]["bodies"]) == produced
    odd = sorted(f"{kind}-{number}" for kind in kinds[:2] for number in (1, 3, 5, 7, 9))
    assert sorted(said["tags"]["bodies"]) == odd
    _check_orderly(said["orderly"])
    to_all = [f"to-all-{number}" for number in range(6)]
    assert sorted(said["broadcast"]["first"]) == to_all
    assert sorted(said["broadcast"]["second"]) == to_all
    assert (said["delay"]["status"], said["delay"]["times"]) == ("SEND_OK", 1)
    assert said["delay"]["waitedMs"] >= 950
    # The client gives the messages of a retry topic their own topic back.
    assert said["retry"]["seen"] == [f"retried once-more {times}" for times in range(3)]
    assert said["deadLetter"]["seen"] == ["dead 0", "dead 1"]
    assert said["query"]["byKey"] == ["found"]
    assert said["query"]["byOffsetId"] == said["query"]["byUniqueId"] == "found"
    # A time after the last message finds the last message.
    assert said["query"]["bounds"] == [0, 1, 0]


def _check_orderly(said: dict[str, Any]) -> None:
    assert said["refused"] == ["1-13"]
    for queue in range(3):
        of_queue = [body for body in said["bodies"] if body.startswith(f"{queue}-")]
        assert of_queue == [f"{queue}-{number}" for number in range(queue, 30, 3)]


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        first = script(broker.name_server, tmp_path, ["produce", "concurrent"])
        assert len(first["concurrent"]["bodies"]) == 40
        assert broker.stop() == 0
    with BrokerProcess(tmp_path) as again:
        # Through the port two below as well: what this client calls the VIP channel.
        vip = "-Dcom.rocketmq.sendMessageWithVIPChannel=true"
        second = script(again.name_server, tmp_path, ["sendMore", "resume"], vip)
    assert sorted(second["resume"]["bodies"]) == [f"more-{number}" for number in range(5)]
