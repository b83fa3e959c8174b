"""Topics and groups by request: made, changed, deleted; durable before the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.files import RealFiles
from embermq.remoting import ResponseCode, parse_json, write_json
from embermq.settings import BrokerRole
from embermq.store.tables import GROUPS, TOPICS, GroupConfig, TopicConfig, load_entries
from tests.support.brokers import RunningBroker, play

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": True,
}


def test_a_topic_is_on_the_disk_before_the_answer(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(17, TOPIC)
        assert (answer.code, answer.remark) == (0, None)
        wanted = TopicConfig("T", 3, 2, 6)  # The header's order is not taken.
        assert broker.broker.topics.find("T") == wanted
        assert load_entries(RealFiles(), broker.store.path, TOPICS)["T"] == wanted
        before = broker.broker.topics.version
        assert (await broker.call(17, TOPIC | {"perm": 4, "topicFilterType": "MULTI_TAG"})).code == 0
        assert broker.broker.topics.find("T") == TopicConfig("T", 3, 2, 4, "MULTI_TAG")
        assert broker.broker.topics.version.counter == before.counter + 1
        assert (await broker.call(17, {**TOPIC, "topic": "old", "topicFilterType": "SINGLE_TAG"})).code == 0

    play(scenario, tmp_path)


def test_what_is_no_topic_for_an_administrator(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"topic": "a.b"}, "illegal"),
        ({"topic": " "}, "blank"),
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "b"}, "conflict with system topic"),
        ({"topic": "rmq_sys_x"}, "conflict with system topic"),
        ({"readQueueNums": -1}, "queues"),
        ({"writeQueueNums": 10**6}, "queues"),
        ({"perm": 16}, "permission"),
        ({"topicFilterType": "ANY"}, "topicFilterType"),
        ({"perm": "x"}, "perm"),
    ]

    async def scenario(broker: RunningBroker) -> None:
        for more, remark in cases:
            answer = await broker.call(17, TOPIC | more)
            assert (answer.code, remark in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), (more, answer)
        assert broker.broker.topics.find("T") is None
        for topic in ("", "TBW102", "SCHEDULE_TOPIC_XXXX"):
            assert (await broker.call(215, {"topic": topic})).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


def test_no_more_names_than_the_settings_allow(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(17, TOPIC)
        assert (answer.code, "emberMaxNames" in (answer.remark or "")) == (1, True)
        answer = await broker.call(200, None, write_json({"groupName": "g"}))
        assert (answer.code, "emberMaxNames" in (answer.remark or "")) == (1, True)

    play(scenario, tmp_path, names_max=1)


def test_a_slave_changes_nothing(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for code, fields, body in (
            (17, TOPIC, b""),
            (215, {"topic": "T"}, b""),
            (200, None, write_json({"groupName": "g"})),
            (207, {"groupName": "g"}, b""),
        ):
            answer = await broker.call(code, fields, body)
            assert (answer.code, "slave" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

    play(scenario, tmp_path, store={"role": BrokerRole.SLAVE, "broker_id": 1})


def test_lists_of_topics(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.call(17, TOPIC)
        document = parse_json((await broker.call(21)).body)
        assert document["dataVersion"].keys() == {"counter", "timestamp"}
        assert document["topicConfigTable"]["T"] == {
            "order": False,
            "perm": 6,
            "readQueueNums": 3,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
        system = parse_json((await broker.call(305)).body)["topicList"]
        assert {"TBW102", "SELF_TEST_TOPIC", "b", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} <= set(system)
        one = parse_json((await broker.call(351, {"topic": "T", "lo": "true"})).body)
        assert (one["topicName"], one["attributes"]) == ("T", {})
        assert (await broker.call(351, {"topic": "none"})).code == ResponseCode.TOPIC_NOT_EXIST

    play(scenario, tmp_path)


def test_a_topic_that_is_deleted_begins_anew(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"old")
        await broker.call(15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1})
        assert (await broker.call(215, {"topic": "T"})).code == 0
        assert broker.broker.topics.find("T") is None
        assert "T" not in load_entries(RealFiles(), broker.store.path, TOPICS)
        assert "T" not in await asyncio.to_thread(broker.store.topics)
        assert broker.broker.offsets.query("g", "T", 0) == 1  # Offsets of groups stay, as in RocketMQ.
        assert (await broker.call(202, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
        answer = await broker.send("T", b"new")
        assert (answer.ext or {})["queueOffset"] == "0"
        assert [message.body for message in await broker.stored("T")] == [b"new"]
        assert (await broker.call(215, {"topic": "never was"})).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(215, {"topic": "never-was"})).code == 0

    play(scenario, tmp_path)


def test_create_send_delete_under_load(tmp_path: Path) -> None:
    """RocketMQ 4.9 dies of this: a topic is deleted while its newest messages are on their way to their queues."""

    async def scenario(broker: RunningBroker) -> None:
        stop = asyncio.Event()
        codes: set[int] = set()

        async def produce() -> None:
            while not stop.is_set():
                answers = await asyncio.gather(*(broker.send("T", b"x" * 100) for _ in range(20)))
                codes.update(answer.code for answer in answers)
                codes.add((await broker.send("U", b"y")).code)

        producing = asyncio.create_task(produce())
        for _ in range(10):
            assert (await broker.call(17, TOPIC)).code == 0
            assert (await broker.send("T")).code == 0
            assert (await broker.call(215, {"topic": "T"})).code == 0
        stop.set()
        await producing
        assert codes == {0}
        assert (await broker.call(215, {"topic": "T"})).code == 0
        assert (await broker.send("T", b"last")).code == 0
        assert [message.body for message in await broker.stored("T")] == [b"last"]
        assert {message.body for message in await broker.stored("U")} == {b"y"}

    play(scenario, tmp_path)


def test_a_change_is_announced_to_name_servers(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        began = asyncio.get_running_loop().time()
        assert (await broker.call(17, TOPIC)).code == 0  # A name server that is not there delays it, no more.
        assert asyncio.get_running_loop().time() - began < 5
        assert broker.broker.unreachable_name_servers == {"127.0.0.1:1"}

    play(scenario, tmp_path, name_servers=("127.0.0.1:1",))


# -- groups ----------------------------------------------------------------------------------------------------


def test_a_group_is_on_the_disk_before_the_answer(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        document = {
            "brokerId": 0,
            "consumeBroadcastEnable": False,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "groupName": "g",
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 3,
            "retryQueueNums": 2,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        assert (await broker.call(200, None, write_json(document | {"groupSysFlag": 5}))).code == 0
        wanted = GroupConfig(
            "g", consume_broadcast_enable=False, retry_max_times=3, retry_queue_nums=2, others={"groupSysFlag": 5}
        )
        assert load_entries(RealFiles(), broker.store.path, GROUPS)["g"] == wanted
        table = parse_json((await broker.call(201)).body)
        assert table["dataVersion"].keys() == {"counter", "timestamp"}
        assert table["subscriptionGroupTable"]["g"] == document | {"groupSysFlag": 5}
        assert parse_json((await broker.call(352, {"group": "g"})).body) == document | {"groupSysFlag": 5}

    play(scenario, tmp_path)


def test_what_is_no_group(tmp_path: Path) -> None:
    bodies = [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"groupName":""}',
        b'{"groupName":"g","retryMaxTimes":"many"}',
        b'{"groupName":"g","retryQueueNums":1000000}',
        write_json({"groupName": "g" * 256}),
    ]

    async def scenario(broker: RunningBroker) -> None:
        for body in bodies:
            assert (await broker.call(200, None, body)).code == ResponseCode.SYSTEM_ERROR, body
        assert (await broker.call(352, {"group": "g"})).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    play(scenario, tmp_path, auto_create_groups=False)


@pytest.mark.parametrize("remove", [False, True])
def test_a_group_is_deleted_with_or_without_its_offsets(tmp_path: Path, remove: bool) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.call(200, None, write_json({"groupName": "g"}))
        await broker.call(15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 7})
        fields = {"groupName": "g", "removeOffset": True} if remove else {"groupName": "g"}
        assert (await broker.call(207, fields)).code == 0
        assert broker.broker.groups.known("g") is None
        assert "g" not in load_entries(RealFiles(), broker.store.path, GROUPS)
        assert broker.broker.offsets.query("g", "T", 0) == (-1 if remove else 7)
        assert (await broker.call(207, {"groupName": "unknown"})).code == 0

    play(scenario, tmp_path)
