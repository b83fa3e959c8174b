"""One store directory, RocketMQ's broker and ours in turn: topics, groups and offsets of both are there for both, after
clean stops and after kills."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from embermq.remoting import parse_json
from tests.interop import java_broker, reference
from tests.interop.java_broker import broker_config, java_server
from tests.interop.recorder.reads import fields as pull_fields
from tests.interop.recorder.sends import fields as send_fields
from tests.interop.recorder.sends import properties
from tests.interop.recorder.wire import Player, Step
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TURNS = ("theirs", "ours", "theirs")
SEGMENT = 16 << 20
NOTHING_MORE: Mapping[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


@dataclass
class History:
    """What the brokers were given so far."""

    topics: dict[str, int] = field(default_factory=dict)  # queues
    groups: dict[str, int] = field(default_factory=dict)  # how often they retry
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)  # by group and topic
    bodies: dict[str, list[bytes]] = field(default_factory=dict)


class Talk:
    """A connection to a broker; every request is answered with success."""

    def __init__(self, port: int) -> None:
        self._player, self._number = Player(port), 0

    def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", **more: Any) -> Any:
        self._number += 1
        name = str(self._number)
        self._player.play([Step(name, code, ext, body, **more)], quiet_seconds=0)
        answer = self._player.answers[name]
        assert answer is not None
        assert answer.header["code"] == 0, answer.header
        return answer

    def questions(self, code: int, seconds: float) -> list[Any]:
        """What the broker has asked this client by a request code so far, after a while of listening."""
        self._player.serve({}, seconds)
        return [frame for frames in self._player.pushed.values() for frame in frames if frame.header["code"] == code]

    def close(self) -> None:
        self._player.close()


@contextmanager
def broker(whose: str, place: Path, *, is_killed: bool, settings: Mapping[str, str] = NOTHING_MORE) -> Iterator[Talk]:
    """A broker of RocketMQ or of ours on the store in `place`."""
    if whose == "theirs":
        config = broker_config(place, "") | {"mappedFileSizeCommitLog": SEGMENT} | dict(settings)
        del config["namesrvAddr"]
        with java_server("broker.BrokerStartup", place, config) as process:
            yield from _talked(int(str(config["listenPort"])))
            process.kill() if is_killed else process.stop()
        return
    named = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1"} | dict(settings)
    words = [word for setting in named.items() for word in ("--set", "=".join(setting))]
    with BrokerProcess(place, *words) as ours:
        yield from _talked(int(ours.address.rpartition(":")[2]))
        if is_killed:
            ours.kill()
        else:
            assert ours.stop() == 0


def _talked(port: int) -> Iterator[Talk]:
    talk = Talk(port)
    try:
        yield talk
    finally:
        talk.close()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_the_tables_go_back_and_forth(is_killed: bool, tmp_path: Path) -> None:
    history = History()
    for turn, whose in enumerate(TURNS):
        with broker(whose, tmp_path, is_killed=is_killed) as talk:
            served(talk, history)
            changed(talk, history, turn)
            if is_killed:
                wait_until(lambda: _saved_offsets(tmp_path) >= _expected(history), "offsets are on the disk")
    with broker("ours", tmp_path, is_killed=False) as talk:
        served(talk, history)


def served(talk: Talk, history: History) -> None:
    """Everything that was given before is there."""
    topics = parse_json(talk.ask(21).body)["topicConfigTable"]
    groups = parse_json(talk.ask(201).body)["subscriptionGroupTable"]
    assert {name: topics[name]["writeQueueNums"] for name in history.topics} == history.topics
    assert {name: groups[name]["retryMaxTimes"] for name in history.groups} == history.groups
    for (group, topic), offset in history.offsets.items():
        found = talk.ask(14, {"consumerGroup": group, "topic": topic, "queueId": "0"})
        assert found.header["extFields"]["offset"] == str(offset), (group, topic)
    for topic, bodies in history.bodies.items():
        data = talk.ask(11, pull_fields(topic, 0), again_while=(19, 21)).body
        at = [data.find(body) for body in bodies]
        assert -1 not in at, topic
        assert at == sorted(at)


def changed(talk: Talk, history: History, turn: int) -> None:
    """Something new in each table, and a change to what another turn made."""
    topic, group = f"topic-{turn}", f"group-{turn}"
    for name, queues in ((topic, 4), ("shared", turn + 1)):
        talk.ask(17, _topic(name, queues))
        history.topics[name] = queues
    for name, times in ((group, 16), ("shared", turn)):
        talk.ask(200, None, json.dumps({"groupName": name, "retryMaxTimes": times}).encode())
        history.groups[name] = times
    for name in (topic, "shared"):
        body = f"from turn {turn}".encode()
        talk.ask(310, send_fields(name, i=properties(KEYS=f"k{turn}")), body)
        history.bodies.setdefault(name, []).append(body)
    for name, of, offset in ((group, topic, 1), ("shared", "shared", turn + 1)):
        talk.ask(15, {"consumerGroup": name, "topic": of, "queueId": "0", "commitOffset": str(offset)})
        history.offsets[name, of] = offset


def _topic(name: str, queues: int) -> dict[str, Any]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def _saved_offsets(place: Path) -> set[tuple[str, int]]:
    try:
        table = parse_json((place / "store" / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    except (OSError, ValueError):
        return set()  # Between two versions of the file.
    return {(name, int(offset)) for name, queues in table.items() for offset in queues.values()}


def _expected(history: History) -> set[tuple[str, int]]:
    return {(f"{topic}@{group}", offset) for (group, topic), offset in history.offsets.items()}
