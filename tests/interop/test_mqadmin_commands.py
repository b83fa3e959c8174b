"""Every command of mqadmin 4.9 against RocketMQ's broker and against ours, with a consumer that is there: both print
the same, but for addresses, ids, times and speeds.

Left out: commands for DLedger and access control, and those that watch a cluster and never end.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop import java_broker, reference
from tests.interop.admin_session import AdminSession
from tests.interop.java_broker import broker_config, free_port, java_server, mqadmin
from tests.interop.recorder.clients import consumer, subscription
from tests.interop.recorder.sends import fields, properties
from tests.interop.recorder.wire import Player, Step
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

LEFT_OUT = {
    # access control, which EmberMQ does not have
    "updateAclConfig",
    "deleteAclConfig",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr",
    "getAclConfig",
    # they watch, and never end
    "startMonitoring",
    "clusterRT",
}


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
        if reference.java_version() < 11:
            pytest.skip("java 11 is needed to run mqadmin's commands in one go")
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


class Member(threading.Thread):
    """A consumer and producer that answers what it is asked."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._player, self._is_over = Player(port), threading.Event()
        beat = {
            "clientID": "reader-1",
            "consumerDataSet": [consumer("readers", subscription("orders"), subscription("%RETRY%readers"))],
            "producerDataSet": [{"groupName": "writers"}],
        }
        messages = [
            Step(f"send {number}", 310, fields("orders", i=texts, e=str(number % 2)), b"message")
            for number, texts in enumerate([properties(KEYS="k1", UNIQ_KEY="U1", TAGS="a"), properties(KEYS="k1"), ""])
        ]
        commit = {"consumerGroup": "readers", "topic": "orders", "commitOffset": "1"}
        commits = [Step(f"commit {queue}", 15, commit | {"queueId": str(queue)}) for queue in range(2)]
        again = [Step("dispatched", 11, _pull("orders", 1), again_while=(19, 21))]
        topic = {
            "topic": "orders",
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        begin = [Step("topic", 17, topic), Step("heartbeat", 34, None, json.dumps(beat).encode())]
        self._player.play([*begin, *messages, *again, *commits])
        first = self._player.answers["send 0"]
        assert first is not None
        self.message_id = str(first.header["extFields"]["msgId"])

    def run(self) -> None:
        queue = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
        info = b'{"properties":{"PROP_CONSUMER_START_TIMESTAMP":"1","PROP_CLIENT_VERSION":"V4_9_7","PROP_CONSUME_TYPE":'
        info += b'"CONSUME_PASSIVELY"},"statusTable":{},"subscriptionSet":[],"mqTable":{}}'
        result = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":null,"spentTimeMills":9}'
        status = b'{"consumerTable":{},"messageQueueTable":{' + queue + b":1}}"
        while not self._is_over.is_set():
            self._player.serve({307: (0, info), 309: (0, result), 221: (0, status)}, seconds=0.2)

    def end(self) -> None:
        self._is_over.set()
        self.join()
        self._player.close()


def _pull(topic: str, offset: int) -> dict[str, Any]:
    names = ("queueId", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion")
    values = ("0", "4", "0", "0", "0")
    whole = dict(zip(names, values, strict=True)) | {"subscription": "*", "maxMsgNums": "32", "consumerGroup": "probe"}
    return whole | {"topic": topic, "queueOffset": str(offset)}


@contextmanager
def their_broker(directory: Path) -> Iterator[tuple[int, str]]:
    """Port and name server."""
    (directory / "ns").mkdir(parents=True)
    name_server = free_port()
    with java_server("namesrv.NamesrvStartup", directory / "ns", {"listenPort": name_server}):
        config = broker_config(directory, f"127.0.0.1:{name_server}")
        with java_server("broker.BrokerStartup", directory, config):
            yield int(str(config["listenPort"])), f"127.0.0.1:{name_server}"


@contextmanager
def our_broker(directory: Path) -> Iterator[tuple[int, str]]:
    directory.mkdir(parents=True)
    with BrokerProcess(directory, "--set", "brokerName=broker-a", "--set", "brokerIP1=127.0.0.1") as broker:
        yield int(broker.address.rpartition(":")[2]), broker.name_server


def commands(broker: str, id_: str, export: Path) -> list[list[str]]:
    """Every command, in an order in which each finds what it asks for; `id_` is that of a message."""
    one, direct = "broker-a", "-g readers -d reader-1"
    listed = f"""
        clusterList
        topicList
        topicList -c
        topicRoute -t orders
        topicStatus -t orders
        topicStatus -t nowhere
        topicClusterList -t orders
        updateTopic -b {broker} -t made -r 4 -w 4
        updateTopicPerm -b {broker} -t made -p 4
        updateTopic -c DefaultCluster -t made -r 2 -w 2
        updateTopic -b {broker} -t TBW102
        updateSubGroup -b {broker} -g other
        updateBrokerConfig -b {broker} -k traceOn -v false
        getBrokerConfig -b {broker}
        getConsumerConfig -g readers
        brokerStatus -b {broker}
        queryMsgById -i {id_}
        queryMsgById -i {id_} {direct}
        queryMsgByKey -t orders -k k1
        queryMsgByUniqueKey -t orders -i U1
        queryMsgByUniqueKey -t orders -i U1 {direct}
        queryMsgByOffset -t orders -b {one} -i 0 -o 0
        queryMsgTraceById -i U1 -t orders
        printMsg -t orders -d true
        printMsgByQueue -t orders -a {one} -i 0 -p true -d true -f true
        consumeMessage -t orders -b {one} -i 0 -o 0 -c 2
        brokerConsumeStats -b {broker}
        producerConnection -g writers -t orders
        producerConnection -g nobody -t orders
        producer -b {broker}
        consumerConnection -g readers
        consumerConnection -g nobody
        consumerProgress -g readers
        consumerProgress
        consumerStatus -g readers
        consumerStatus -g readers -i reader-1
        cloneGroupOffset -s readers -d copies -t orders
        consumerProgress -g copies
        resetOffsetByTime -g readers -t orders -s -1
        resetOffsetByTime -g readers -t orders -s now -f true
        resetOffsetByTime -g copies -t orders -s 0
        skipAccumulatedMessage -g readers -t orders -f true
        queryCq -t orders -q 0 -i 0 -c 3 -b {broker}
        statsAll -t orders
        allocateMQ -t orders -i ip1,ip2
        sendMessage -t orders -p hello -k key -c tag -b {one} -i 0
        sendMsgStatus -b {one} -s 10 -c 2
        checkMsgSendRT -t orders -a 2 -s 10
        cleanExpiredCQ -b {broker}
        cleanUnusedTopic -b {broker}
        deleteExpiredCommitLog -b {broker}
        updateKvConfig -s ns -k k -v v
        deleteKvConfig -s ns -k k
        updateOrderConf -t orders -m put -v {one}:2
        updateOrderConf -t orders -m get
        updateOrderConf -t orders -m delete
        getNamesrvConfig
        updateNamesrvConfig -k orderMessageEnable -v true
        wipeWritePerm -b {one}
        addWritePerm -b {one}
        exportMetadata -c DefaultCluster -f {export}
        exportConfigs -c DefaultCluster -f {export}
        exportMetrics -c DefaultCluster -f {export}
        deleteSubGroup -b {broker} -g other -r true
        deleteSubGroup -c DefaultCluster -g copies
        deleteTopic -c DefaultCluster -t made
        deleteTopic -c DefaultCluster -t TBW102
    """
    return [line.split() for line in listed.strip().splitlines()]


# What a command prints depends on the broker's own settings or load: names are compared, values are not.
TABLES = {"getBrokerConfig", "brokerStatus", "getNamesrvConfig"}
_WORDS = [
    (re.compile(r"\b[0-9A-F]{32}([0-9A-F]{24})?\b"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d+)?"), "TIME"),
    (re.compile(r"\b1[67]\d{11}\b"), "TIME"),
    (re.compile(r"rt=\d+ms"), "rt"),
    (re.compile(r"\b(true|false)(\s+)\d+\s*$", re.MULTILINE), r"\1"),  # how long a send took
    (re.compile(r"V4_9_[78]"), "VERSION"),
    (re.compile(r"\d+\.\d+"), "NUMBER"),
    # statsAll: sums of the last samples, of which a broker takes one every 10 s.
    (re.compile(r"(NUMBER\s+NUMBER)\s+\d+\s+\d+\s*$", re.MULTILINE), r"\1 SUMS"),
    (re.compile(r"(/[\w.-]+)+/export"), "EXPORT"),
    (re.compile(r".*http://rocketmq\.apache\.org/docs/faq.*"), ""),
]


def printed(words: list[str], text: str) -> list[str]:
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
    return (
        sorted(line.partition("=" if "=" in line else ":")[0].strip() for line in lines)
        if words[0] in TABLES
        else lines
    )


def play(directory: Path, port: int, name_server: str) -> list[tuple[str, list[str]]]:
    """Commands, and what each printed."""
    with ExitStack() as stack:
        member = Member(port)
        stack.callback(member.end)
        member.start()
        (directory / "admin").mkdir()
        admin = stack.enter_context(AdminSession(directory / "admin", name_server))
        listed = commands(f"127.0.0.1:{port}", member.message_id, directory / "export")
        return [(" ".join(words), printed(words, admin.run(*words))) for words in listed]


def test_every_command_prints_the_same(tmp_path: Path) -> None:
    with their_broker(tmp_path / "theirs") as (port, name_server):
        theirs = play(tmp_path / "theirs", port, name_server)
    with our_broker(tmp_path / "ours") as (port, name_server):
        ours = play(tmp_path / "ours", port, name_server)
    for (command, expected), (_, said) in zip(theirs, ours, strict=True):
        if command.startswith("brokerStatus"):
            assert {name for name in expected if not name.startswith("commitLogDiskRatio_")} - set(said) == set()
        elif command.split()[0] not in TABLES:
            assert said == expected, command
    exported = [sorted(path.name for path in (tmp_path / one / "export").rglob("*.json")) for one in ("theirs", "ours")]
    assert exported[0] == exported[1]
    assert "configs.json" in exported[1]


def test_no_command_is_left_out(tmp_path: Path) -> None:
    shown = re.findall(r"^   (\w+) +\S", mqadmin(tmp_path, []), re.MULTILINE)
    assert len(shown) > 50
    tried = {words[0] for words in commands("127.0.0.1:10911", "id", tmp_path)}
    assert set(shown) - tried == LEFT_OUT
