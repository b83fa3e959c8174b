"""Requests and answers that were seen with Apache RocketMQ 4.9.8, as one conversation: later rows see what earlier ones
did. `tests/interop` holds many more, compared with a running RocketMQ."""

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from embermq.remoting import Command, parse_json
from tests.support.brokers import RunningBroker, consumer, play, pull_fields, send_fields

Vector = tuple[str, int, dict[str, Any], bytes, int, dict[str, str]]
TAG_A, TAG_B = "TAGS\x01TagA", "TAGS\x01TagB"
GROUP = {"consumerGroup": "CG_P"}


def sent(name: str, code: int, topic: str, /, body: bytes = b"x", **more: Any) -> Vector:
    return name, 310, send_fields(topic) | more, body, code, {}


def pulled(name: str, code: int, offset: int, /, ext: dict[str, str] | None = None, **more: Any) -> Vector:
    fields = pull_fields("TP", offset, "CG_P") | more
    return name, 11, fields, b"", code, ext or {}


def asked(name: str, number: int, code: int, /, ext: Any = None, **more: Any) -> Vector:
    return name, number, more, b"", code, ext or {}


def item(body: bytes) -> bytes:
    return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


SENDS = [
    sent("to an unknown topic", 0, "TP", i=TAG_A),
    sent("again", 0, "TP", i=TAG_B),
    sent("a queue the broker chooses", 0, "Chosen", e=-1),
    sent("queue 99", 1, "TP", e=99),
    sent("a dot in the topic", 1, "a.b"),
    sent("a blank topic", 1, " "),
    sent("the schedule topic", 16, "SCHEDULE_TOPIC_XXXX"),
    sent("the self test topic", 16, "SELF_TEST_TOPIC"),
    sent("an unknown default topic", 17, "Other", c="nowhere"),
    sent("the cluster's topic for a default", 0, "Other", c="DefaultCluster"),
    sent("an empty body", 0, "Other", b""),
    sent("delayed", 0, "Other", i="DELAY\x013"),
    sent("33,000 characters of properties", 13, "Other", i=f"A\x01{'x' * 33_000}"),
    sent("a batch that is delayed", 13, "Other", item(b"1"), m=True, i="DELAY\x013"),
    ("two fields only", 310, {"a": "pg", "b": "TP"}, b"x", 1, {}),
    ("a batch of two", 320, send_fields("Batch") | {"m": True}, item(b"1") + item(b"2"), 0, {"queueOffset": "0"}),
]
PULLS = [
    pulled("two tags", 0, 0, subscription="TagA || TagB"),
    pulled("all", 0, 0, {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2", "suggestWhichBrokerId": "0"}),
    pulled("separators", 23, 0, subscription="||"),
    pulled("an empty expression", 23, 0, subscription="", expressionType="SQL92"),
    pulled("a newer subscription", 25, 0, sysFlag=0, subVersion=999),
    pulled("a group that is not registered", 24, 0, sysFlag=0, consumerGroup="Elsewhere"),
    pulled("queue 50", 1, 0, queueId=50),
    pulled("an unknown topic", 17, 0, topic="Nowhere"),
    pulled("an empty queue", 19, 0, {"nextBeginOffset": "0"}, queueId=3),
    pulled("an empty queue at 5", 21, 5, {"nextBeginOffset": "0"}, queueId=3),
    pulled("past the end", 21, 1000, {"nextBeginOffset": "2"}),
    pulled("at the end", 19, 2, {"nextBeginOffset": "2"}),
    pulled("with a commit", 0, 0, sysFlag=5, commitOffset=7),
]
QUEUE = {"topic": "TP", "queueId": 0}
OFFSETS = [
    asked("what the pull committed", 14, 0, {"offset": "7"}, **GROUP, **QUEUE),
    asked("of a new group", 14, 0, {"offset": "0"}, consumerGroup="New", **QUEUE),
    asked("of an unknown topic", 14, 0, {"offset": "0"}, consumerGroup="New", topic="Nowhere", queueId=0),
    asked("-1 is committed", 15, 0, consumerGroup="New", commitOffset=-1, **QUEUE),
    asked("and is not there", 14, 0, {"offset": "0"}, consumerGroup="New", **QUEUE),
    asked("at time 1", 29, 0, {"offset": "0"}, timestamp=1, **QUEUE),
    asked("far ahead", 29, 0, {"offset": "1"}, timestamp=4_000_000_000_000, **QUEUE),
    asked("the end of an unknown topic", 30, 0, {"offset": "0"}, topic="Nowhere", queueId=0),
    asked("the first time of an unknown queue", 32, 0, {"timestamp": "-1"}, topic="TP", queueId=60),
]
OTHERS = [
    asked("members", 38, 0, **GROUP),
    asked("members of nothing", 38, 1, consumerGroup="Nothing"),
    asked("an unknown key", 12, 22, topic="TP", key="none", maxNum=32, beginTimestamp=0, endTimestamp=2**62),
    asked("the record at 0", 33, 0, offset=0),
    asked("inside a record", 33, 1, offset=5),
    asked("given back", 36, 0, group="CG_P", offset=0, delayLevel=0),
    asked("given up", 36, 0, group="CG_P", offset=0, delayLevel=-1),
    asked("given back from nowhere", 36, 1, group="CG_P", offset=10**9, delayLevel=0),
    asked("connections", 203, 0, **GROUP),
    asked("connections of nothing", 203, 206, consumerGroup="Nothing"),
    asked("producers of nothing", 204, 1, producerGroup="Nothing"),
    asked("reset of a group without offsets", 222, 1, topic="TP", group="New", timestamp=1, isForce=False),
    ("a setting that is forbidden", 25, {}, b"rocketmqHome=/tmp", 16, {}),
    ("a setting that is not", 25, {}, b"traceOn=false", 0, {}),
    ("a send says so", 310, send_fields("Other"), b"x", 0, {"TRACE_ON": "false"}),
]


async def _take(broker: RunningBroker, vector: Vector) -> Command:
    name, code, fields, body, expected, ext = vector
    answer = await broker.call(code, fields, body)
    assert answer.code == expected, (name, answer)
    assert ext.items() <= (answer.ext or {}).items(), (name, answer)
    return answer


def test_a_conversation(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answers = {vector[0]: await _take(broker, vector) for vector in SENDS}
        assert len((answers["a batch of two"].ext or {})["msgId"].split(",")) == 2
        assert (answers["two fields only"].ext, answers["queue 99"].ext is None) == (None, False)
        # A C++ client: ordinals, a version that is a text, codes that are zeros.
        topic = {"topic": "TP", "subString": "TagA", "subVersion": "100", "codeSet": ["0"]}
        ordinals = {"consumeType": 1, "messageModel": 1, "consumeFromWhere": 0}
        assert (await broker.heartbeat("c1", [consumer("CG_P", topic, **ordinals)])).code == 0
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        for vector in [*PULLS, *OFFSETS, *OTHERS]:
            await _take(broker, vector)
        dead = broker.broker.topics.find("%DLQ%CG_P")
        assert dead is not None
        assert (dead.write_queue_nums, dead.perm) == (1, 6)

    play(scenario, tmp_path)


# -- rows of other tables --------------------------------------------------------------------------------------


def test_each_retry_waits_longer_than_the_one_before(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for times in range(17):
            await broker.send("T", b"x", j=times)
        for message in await broker.stored("T"):
            fields = {"offset": message.physical_offset, "group": "g", "delayLevel": 0}
            assert (await broker.call(36, fields)).code == 0
        for times in range(16):
            (parked,) = await broker.stored("SCHEDULE_TOPIC_XXXX", 2 + times)
            assert (parked.reconsume_times, parked.properties["DELAY"]) == (times + 1, str(3 + times))
        (dead,) = await broker.stored("%DLQ%g")
        assert dead.reconsume_times == 17

    play(scenario, tmp_path)


def test_flags_of_topics_that_are_made_on_a_send(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        wanted = {("Plain", False): 0, ("Unit", True): 1, ("%RETRY%a", False): 0, ("%RETRY%b", True): 2}
        for topic, unit_mode in wanted:
            assert (await broker.send(topic, k=unit_mode)).code == 0
        found = {key: broker.broker.topics.find(key[0]) for key in wanted}
        assert {key: one.topic_sys_flag for key, one in found.items() if one is not None} == wanted
        # A retry topic is made whatever the default topic says, then with one queue.
        assert (await broker.send("%RETRY%c", c="nowhere")).code == 0
        config = broker.broker.topics.find("%RETRY%c")
        assert config is not None
        assert (config.write_queue_nums, config.perm) == (1, 6)

    play(scenario, tmp_path)


def test_messages_of_a_topic_with_several_tags_are_marked(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "MULTI_TAG", "topic": "T"}
        assert (await broker.call(17, fields)).code == 0
        await broker.send("T", f=1)
        (message,) = await broker.stored("T")
        assert message.sys_flag == 3

    play(scenario, tmp_path)


def test_where_slow_consumers_are_sent(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await broker.call(200, None, b'{"groupName":"g","brokerId":3,"whichBrokerWhenConsumeSlowly":2}')
        assert ((await broker.pull("T", 0)).ext or {})["suggestWhichBrokerId"] == "3", "a group that keeps up"

    play(scenario, tmp_path, slave_read=True)


@pytest.mark.slow(seconds=2)
def test_without_long_polling_a_pull_is_held_for_a_short_time(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        began = asyncio.get_running_loop().time()
        answer = await broker.pull("T", 1, sys_flag=6, suspendTimeoutMillis=60_000)
        assert (answer.code, asyncio.get_running_loop().time() - began < 20) == (19, True)

    play(scenario, tmp_path, store={"long_polling": False}, short_polling_ms=10)


def test_topics_absent_from_a_heartbeat_are_gone_for_the_whole_group(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        def topics(*names: str) -> list[dict[str, Any]]:
            data = [{"topic": name, "subString": "*", "subVersion": 1} for name in names]
            return [consumer("g", *data)]

        await broker.heartbeat("c1", topics("T", "U"))
        await broker.heartbeat("c1", topics("T"))
        shown = parse_json((await broker.call(203, {"consumerGroup": "g"})).body)
        assert list(shown["subscriptionTable"]) == ["T"]

    play(scenario, tmp_path)


def test_topics_and_groups_that_are_there_from_the_start(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        topics = parse_json((await broker.call(21)).body)["topicConfigTable"]
        assert {name: (one["writeQueueNums"], one["perm"]) for name, one in topics.items()} == {
            "SELF_TEST_TOPIC": (1, 6),
            "TBW102": (8, 7),
            "BenchmarkTest": (1024, 6),
            "DefaultCluster": (16, 7),
            "b": (1, 7),
            "OFFSET_MOVED_EVENT": (1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 6),
            "RMQ_SYS_TRACE_TOPIC": (1, 6),
            "DefaultCluster_REPLY_TOPIC": (1, 6),
        } | {name: (1, 6) for name in topics if name.startswith(("RMQ_SYS_TRANS", "TRANS_CHECK"))}
        groups = parse_json((await broker.call(201)).body)["subscriptionGroupTable"]
        assert {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"} <= set(groups)

    play(scenario, tmp_path, trace_topic=True)


def test_what_the_broker_writes_by_itself(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await broker.pull("T", 9, group="readers")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        (event,) = await broker.stored("OFFSET_MOVED_EVENT")
        assert event.properties == {"TAGS": "readers", "KEYS": "readers", "DELAY": "0"}
        assert parse_json(event.body) == {
            "consumerGroup": "readers",
            "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
            "offsetNew": 1,
            "offsetRequest": 9,
        }

    play(scenario, tmp_path)


def test_refusals_name_the_address_of_the_broker(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answers = [await broker.call(36, {"offset": 0, "group": "g", "delayLevel": 0}), await broker.pull("T", 0)]
        address = broker.store.settings.broker_ip
        assert [answer.code for answer in answers] == [16, 16]
        assert [answer.remark for answer in answers] == [
            f"the broker[{address}] {what} message is forbidden" for what in ("sending", "pulling")
        ]

    play(scenario, tmp_path, permission=0)
