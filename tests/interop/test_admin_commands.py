"""The network commands against RocketMQ's broker and name server and against ours: for the same data the same exit
codes and the same JSON, but for addresses, ids, times and what holds them."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embermq.cli.app import run
from tests.interop import java_broker, reference
from tests.interop.recorder.wire import Player, Step
from tests.interop.test_mqadmin_commands import Member, our_broker, their_broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

Captured = pytest.CaptureFixture[str]
# Every command in an order in which each finds what it asks for. {broker} is an address, {id} that of a message.
COMMANDS = """
    topic list
    topic route orders
    topic status orders
    topic clusters orders
    topic groups orders
    topic config orders
    topic status ordrs
    topic create made --queues 4
    topic create made
    topic update made --queues 2 --perm r
    topic config made
    topic update TBW102 --queues 3
    group create other --retries 3
    group update other --retries 5 --no-broadcast
    group config other
    group config readers
    group progress readers
    group progress readers --topic orders
    group progress nobody-of-this-name
    group connections readers
    group connections other
    group producers writers
    group status readers
    group status other
    group clone-offsets readers copies --topic orders
    group progress copies
    group reset-offsets copies --topic orders --to latest --yes
    group progress copies
    group reset-offsets copies --topic orders --to earliest --yes
    group reset-offsets copies --topic orders --queue broker-a:1 --offset 1 --yes
    group progress copies
    group reset-offsets readers --topic orders --to earliest --yes
    group delete other --yes
    message find --topic orders --key k1
    message find --topic orders --unique-id U1
    message find --topic orders --key nothing
    message get {id}
    message get --topic orders --queue broker-a:0 --offset 1
    message get --topic orders --queue broker-a:0 --offset 77
    message consume orders --body text
    message consume orders --tags a --body text
    message tail orders --from earliest --limit 3
    message lag readers
    message send orders hello --tags t --key k7 --queue broker-a:1
    message find --topic orders --key k7 --body text
    message send orders traced --key k8 --queue broker-a:1 --trace --group shop
    message trace --key k8
    message dead-letters list readers
    message dead-letters resend readers --yes
    message dead-letters resend readers --yes
    message dead-letters list nobody-of-this-name
    cluster list
    broker config get brokerName brokerRole flushDiskType traceOn
    broker config update traceOn=false
    broker config get traceOn
    broker config update trasOn=false
    broker status --match bootTimestamp
    broker clean queues topics log
    broker writable broker-a off
    topic route orders
    broker writable broker-a on
    topic delete made --yes
    topic list
""".strip().splitlines()
# What is unknown or a mistake is 2; what is not there, not online or refused is 1.
FAILING = {
    "topic status ordrs": 2,
    "topic create made": 2,
    "topic update TBW102 --queues 3": 1,
    "group progress nobody-of-this-name": 2,
    "group connections other": 1,
    "group status other": 1,
    "message find --topic orders --key nothing": 1,
    "message get --topic orders --queue broker-a:0 --offset 77": 1,
    "message dead-letters list nobody-of-this-name": 2,
    "broker config update trasOn=false": 2,
}

# Values that are of one broker, of one moment, or hold such.
OWN = re.compile(r"(addr|address|host|id|key|offset|timestamp|tps|ms|version|today|percent|crc|size)s?$", re.IGNORECASE)
COMPARED = {"queueId", "queueOffset", "minOffset", "maxOffset", "brokerOffset", "consumerOffset", "commitOffset"}
COMPARED |= {"brokerId", "clientId", "keys", "KEYS"}
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


def plain(value: Any, key: str = "") -> Any:
    """A document without what differs: own values become their type."""
    if key == "earliestMessageTimestamp":
        return None  # RocketMQ learns it later.
    if isinstance(value, str):
        value = ADDRESS.sub("ADDRESS", value)
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one, key) for one in value]
    if OWN.search(key) and key not in COMPARED and value is not None:
        return type(value).__name__
    return value


class Session:
    """The commands of one cluster, and what they said."""

    def __init__(self, port: int, name_server: str, capsys: Captured) -> None:
        self._name_server, self._capsys, self._port = name_server, capsys, port
        self._member = Member(port)
        self._member.start()

    def run(self, line: str) -> tuple[int, Any]:
        """Exit code, and the documents that were printed."""
        words = line.format(id=self._member.message_id).split()
        self._capsys.readouterr()
        code = run([*words, "-n", self._name_server, "--output", "json"])
        out = self._capsys.readouterr().out
        documents = [json.loads(out)] if out.startswith("{\n") else [json.loads(one) for one in out.splitlines()]
        found = plain(documents)
        if words[1] == "tail":  # Queues are followed side by side.
            found.sort(key=lambda one: (one["queueId"], one["queueOffset"]))
        return code, found

    def prepare(self) -> None:
        """A dead letter, and a wait until everything can be read."""
        player = Player(self._port)
        back = {"offset": str(int(self._member.message_id[16:], 16)), "group": "readers", "delayLevel": "-1"}
        player.play([Step("back", 36, back)])
        player.close()
        wait_until(lambda: self.run("message dead-letters list readers --key k1")[0] == 0)
        wait_until(lambda: len(self.run("message find --topic orders --key k1")[1][0]["messages"]) == 2)

    def settle(self, line: str) -> None:
        """Wait for what a command began: a broker dispatches to queues and index by the way."""
        if line.startswith("message send"):
            key = line.split("--key ")[1].split()[0]
            wait_until(lambda: self.run(f"message find --topic orders --key {key}")[0] == 0)
        if "--trace" in line:
            wait_until(lambda: self.run("message trace --key k8")[0] == 0)
        if line.startswith("message dead-letters resend"):
            wait_until(lambda: len(self.run("message find --topic orders --unique-id U1")[1][0]["messages"]) > 1)

    def end(self) -> None:
        self._member.end()


@pytest.fixture
def sessions(tmp_path: Path, capsys: Captured) -> Iterator[tuple[Session, Session]]:
    with ExitStack() as stack:
        theirs = Session(*stack.enter_context(their_broker(tmp_path / "theirs")), capsys)
        stack.callback(theirs.end)
        ours = Session(*stack.enter_context(our_broker(tmp_path / "ours")), capsys)
        stack.callback(ours.end)
        yield theirs, ours


def test_the_commands_say_the_same_of_both(sessions: tuple[Session, Session]) -> None:
    for session in sessions:
        session.prepare()
    different, failed = {}, {}
    for line in (one.strip() for one in COMMANDS):
        said = [session.run(line) for session in sessions]
        for session in sessions:
            session.settle(line)
        if said[0][0]:
            failed[line] = said[0][0]
        if said[0] != said[1]:
            different[line] = {"theirs": said[0], "ours": said[1]}
    assert different == {}, json.dumps(different, indent=1)
    assert failed == FAILING
