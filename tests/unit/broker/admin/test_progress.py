"""How far topics and groups are, offset tables, entries of queues, cleaning."""

import asyncio
from pathlib import Path
from typing import Any

from embermq.files import RealFiles
from embermq.format.java import string_hash
from embermq.model.names import PREDEFINED_GROUPS
from embermq.remoting import ResponseCode, key_object, parse_json
from embermq.store.tables import CONSUMER_OFFSETS, TopicConfig, TopicGroup, load_entries
from tests.support.brokers import RunningBroker, consumer, play, subscription


def by_queue(table: dict[str, Any]) -> dict[tuple[str, int], Any]:
    named = {text: key_object(text) for text in table}
    return {(named[text]["topic"], named[text]["queueId"]): value for text, value in table.items()}


async def commit(broker: RunningBroker, group: str, offset: int, topic: str = "T", queue_id: int = 0) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await broker.call(15, fields)).code == 0


async def filled(broker: RunningBroker) -> None:
    """Three messages in queue 0 of T, which has one queue to write and two to read."""
    broker.broker.topics.put(TopicConfig("T", 2, 1))
    for _ in range(3):
        await broker.send("T", b"x", "TAGS\x01a")
    await asyncio.to_thread(broker.store.wait_for_dispatch)


def test_progress_of_a_topic(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        newest = (await broker.stored("T"))[-1].store_timestamp
        answer = await broker.call(202, {"topic": "T"})
        assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:')
        assert by_queue(parse_json(answer.body)["offsetTable"]) == {
            ("T", 0): {"lastUpdateTimestamp": newest, "maxOffset": 3, "minOffset": 0}
        }
        assert (await broker.call(202, {"topic": "none"})).code == ResponseCode.TOPIC_NOT_EXIST
        answer = await broker.call(202, {"topic": "SELF_TEST_TOPIC"})
        (empty,) = parse_json(answer.body)["offsetTable"].values()
        assert empty == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}

    play(scenario, tmp_path)


def test_progress_of_a_group(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        second = (await broker.stored("T"))[1].store_timestamp
        await commit(broker, "g", 2)
        await commit(broker, "g", 1, "unknown")
        await broker.pull("T", 0)
        document = parse_json((await broker.call(208, {"consumerGroup": "g"})).body)
        assert document["consumeTps"] > 0
        assert by_queue(document["offsetTable"]) == {
            ("T", 0): {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": second},
            ("T", 1): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        }
        one = parse_json((await broker.call(208, {"consumerGroup": "other", "topic": "T"})).body)
        assert by_queue(one["offsetTable"])["T", 0]["consumerOffset"] == 0
        assert one["consumeTps"] == 0.0
        await broker.heartbeat("c", [consumer("g", subscription("elsewhere"))])
        online = parse_json((await broker.call(208, {"consumerGroup": "g"})).body)
        assert online == {"consumeTps": 0.0, "offsetTable": {}}  # It does not read T any more.

    play(scenario, tmp_path)


def test_progress_of_all_groups(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        await broker.pull("T", 0)
        await commit(broker, "g", 1)
        document = parse_json((await broker.call(317, {"isOrder": False})).body)
        assert (document["brokerAddr"], document["totalDiff"]) == (broker.broker.address, 2)
        of_groups = {name: stats for one in document["consumeStatsList"] for name, stats in one.items()}
        (stats,) = of_groups.pop("g")
        assert of_groups == {name: [] for name in PREDEFINED_GROUPS}
        assert by_queue(stats["offsetTable"])["T", 0]["consumerOffset"] == 1
        ordered = parse_json((await broker.call(317, {"isOrder": True})).body)
        names = ("g", *PREDEFINED_GROUPS)
        assert sorted(ordered["consumeStatsList"], key=str) == sorted(({name: []} for name in names), key=str)
        assert ordered["totalDiff"] == 0

    play(scenario, tmp_path)


def test_time_spans(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        stored = [message.store_timestamp for message in await broker.stored("T")]
        await commit(broker, "g", 2)
        fields = {"topic": "T", "group": "g"}
        (span,) = parse_json((await broker.call(303, fields)).body)["consumeTimeSpanSet"]
        assert span["delayTime"] >= 0
        del span["delayTime"]
        assert span == {
            "consumeTimeStamp": stored[1],
            "maxTimeStamp": stored[2],
            "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
            "minTimeStamp": stored[0],
        }
        await commit(broker, "g", 3)
        (span,) = parse_json((await broker.call(303, fields)).body)["consumeTimeSpanSet"]
        assert span["delayTime"] == 0
        (span,) = parse_json((await broker.call(303, {"topic": "b", "group": "g"})).body)["consumeTimeSpanSet"]
        assert (span["minTimeStamp"], span["maxTimeStamp"], span["delayTime"]) == (-1, -1, 0)
        assert (await broker.call(303, {"topic": "none", "group": "g"})).code == ResponseCode.TOPIC_NOT_EXIST

    play(scenario, tmp_path)


# -- offset tables ---------------------------------------------------------------------------------------------


def test_offset_tables_for_slaves(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await commit(broker, "g", 5, queue_id=3)
        table = parse_json((await broker.call(43)).body)
        assert table["offsetTable"] == {"T@g": {"3": 5}}
        await broker.send("T", b"x", "DELAY\x011")
        delays = parse_json((await broker.call(45)).body)["offsetTable"]
        assert all(level.isdecimal() and offset >= 0 for level, offset in delays.items())

    play(scenario, tmp_path)


def test_correction_of_offsets(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await commit(broker, "slow", 3)
        await commit(broker, "fast", 9)
        await commit(broker, "fast", 4, queue_id=1)

        async def correction(group: str, left_out: str = "") -> Any:
            fields = {"topic": "T", "compareGroup": group, "filterGroups": left_out}
            return parse_json((await broker.call(308, fields)).body)["correctionOffsets"]

        assert await correction("none") == {"0": 3, "1": 4}
        assert await correction("none", "slow,other") == {"0": 9, "1": 4}
        assert await correction("slow", "slow") == {"0": 2**63 - 1, "1": 4}

    play(scenario, tmp_path)


def test_a_group_gets_the_offsets_of_another(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for topic in ("T", "U"):
            await broker.send(topic)
            await commit(broker, "from", 1, topic)
        await commit(broker, "from", 7, "unknown")
        fields = {"srcGroup": "from", "destGroup": "one", "topic": "T", "offline": False}
        assert (await broker.call(314, fields)).code == 0
        offsets = broker.broker.offsets
        assert (offsets.query("one", "T", 0), offsets.query("one", "U", 0)) == (1, -1)
        saved = load_entries(RealFiles(), broker.store.path, CONSUMER_OFFSETS)
        assert saved[TopicGroup("T", "one")] == {0: 1}
        await broker.heartbeat("c", [consumer("from", subscription("U"))])
        assert (await broker.call(314, {"srcGroup": "from", "destGroup": "two", "offline": False})).code == 0
        assert offsets.topics_of("two") == ["U"]
        assert (await broker.call(314, {"srcGroup": "from", "destGroup": "all", "offline": True})).code == 0
        assert offsets.topics_of("all") == ["T", "U"]

    play(scenario, tmp_path)


# -- queues ----------------------------------------------------------------------------------------------------


def test_entries_of_a_queue(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        stored = await broker.stored("T")
        fields = {"topic": "T", "queueId": 0, "index": 1, "count": 10}
        document = parse_json((await broker.call(321, fields)).body)
        assert (document["minQueueIndex"], document["maxQueueIndex"]) == (0, 3)
        assert document["queueData"] == [
            {
                "eval": False,
                "physicOffset": message.physical_offset,
                "physicSize": message.size,
                "tagsCode": string_hash("a"),
            }
            for message in stored[1:]
        ]
        assert "subscriptionData" not in document
        document = parse_json((await broker.call(321, fields | {"consumerGroup": "g"})).body)
        assert document["filterData"] == "g@T is not online!"
        for expression, matches in (("a", True), ("b", False), ("*", True)):
            await broker.heartbeat("c", [consumer("g", subscription("T", expression, 100 + ord(expression)))])
            document = parse_json((await broker.call(321, fields | {"consumerGroup": "g"})).body)
            assert {one["eval"] for one in document["queueData"]} == {matches}, expression
            assert document["subscriptionData"]["subString"] == expression
            await broker.call(35, {"clientID": "c", "consumerGroup": "g"})
        assert parse_json((await broker.call(321, fields | {"count": 0})).body)["queueData"] == []
        for more in ({"index": 3}, {"index": -1}):
            answer = await broker.call(321, fields | more)
            assert (answer.code, answer.body, "is not exist!" in (answer.remark or "")) == (0, b"", True), more
        for wrong in ({"topic": "none"}, {"queueId": 7}, {"queueId": -1}):
            assert (await broker.call(321, fields | wrong)).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


def test_cleaning(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        await broker.send("orphan")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        broker.broker.topics.remove("orphan")
        for code in (306, 316, 329):
            assert (await broker.call(code)).code == 0
        topics = await asyncio.to_thread(broker.store.topics)
        assert "orphan" not in topics
        assert len(await broker.stored("T")) == 3

    play(scenario, tmp_path)
