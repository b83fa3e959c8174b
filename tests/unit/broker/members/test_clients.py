"""Heartbeats, members, locks, offsets, queries, messages given back: over the wire."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.remoting import (
    Call,
    Command,
    Connector,
    NoHeader,
    RequestCode,
    RequestTable,
    ResponseCode,
    Row,
    parse_json,
    write_json,
)
from embermq.store.tables import GroupConfig
from tests.support.brokers import RunningBroker, consumer, play, subscription, until


class Notices:
    """A client that writes down what it is told about its groups."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.table = RequestTable([Row(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NoHeader, self.note)])

    def note(self, call: Call[NoHeader]) -> None:
        self.groups.append((call.request.ext or {})["consumerGroup"])


def heartbeat_body(client_id: str, group: str, *topics: str) -> bytes:
    return write_json(
        {"clientID": client_id, "consumerDataSet": [consumer(group, *(subscription(topic) for topic in topics))]}
    )


# -- heartbeats ------------------------------------------------------------------------------------------------


def test_a_heartbeat_makes_the_group_and_its_retry_topic(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.heartbeat("c1", [consumer("g", subscription("T"))], ["pg"])
        assert (answer.code, answer.ext, answer.version) == (0, None, 409)
        retry = broker.broker.topics.find("%RETRY%g")
        assert retry is not None
        assert (retry.read_queue_nums, retry.perm) == (1, 6)
        assert broker.broker.groups.known("g") is not None
        members = await broker.call(38, {"consumerGroup": "g"})
        assert parse_json(members.body) == {"consumerIdList": ["c1"]}
        assert [member.client_id for member in broker.broker.clients.producers("pg")] == ["c1"]

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"c1","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,"consumeFromWhere":0,'
        b'"subscriptionDataSet":[{"topic":"T","subString":"a||b","subVersion":"100","codeSet":[0,0]}]}]}',
        b'{"clientID":"c1","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"a||b",'
        b'"subVersion":100,"tagsSet":null}]}],"producerDataSet":null}\n',
    ],
)
def test_what_old_clients_leave_out_or_send_as_numbers(tmp_path: Path, body: bytes) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.call(34, None, body)).code == 0
        group = broker.broker.clients.consumers("g")
        assert group is not None
        assert group.model == "CLUSTERING"
        assert group.subscriptions["T"].document()["codeSet"] == [97, 98]
        assert group.subscriptions["T"].version == 100

    play(scenario, tmp_path)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"clientID":5}'])
def test_what_is_no_heartbeat(tmp_path: Path, body: bytes) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.call(34, None, body)).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


def test_members_hear_of_each_other(tmp_path: Path) -> None:
    first, second = Notices(), Notices()

    async def scenario(broker: RunningBroker) -> None:
        other = Connector(second.table)
        await broker.call(34, None, heartbeat_body("c1", "g", "T"))
        await until(lambda: first.groups == ["g"])
        await other.call(broker.address, Command(34, body=heartbeat_body("c2", "g", "T")), 5.0)
        await until(lambda: first.groups == ["g"] * 2 and second.groups == ["g"])
        await broker.call(34, None, heartbeat_body("c1", "g", "T"))
        await broker.call(34, None, heartbeat_body("c1", "g", "T", "U"))
        await until(lambda: first.groups == ["g"] * 3 and second.groups == ["g"] * 2)
        await other.close()
        await until(lambda: first.groups == ["g"] * 4)
        assert parse_json((await broker.call(38, {"consumerGroup": "g"})).body) == {"consumerIdList": ["c1"]}

    play(scenario, tmp_path, client_table=first.table)


def test_groups_that_want_no_notices(tmp_path: Path) -> None:
    notices = Notices()

    async def scenario(broker: RunningBroker) -> None:
        broker.broker.groups.put(GroupConfig("quiet", notify_consumer_ids_changed_enable=False))
        await broker.call(34, None, heartbeat_body("c1", "quiet", "T"))
        await broker.call(34, None, heartbeat_body("c1", "loud", "T"))
        await until(lambda: notices.groups == ["loud"])

    play(scenario, tmp_path, client_table=notices.table)


def test_leaving(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("g", subscription("T"))], ["pg"])
        answer = await broker.call(35, {"clientID": "c1", "consumerGroup": "", "producerGroup": "pg"})
        assert (answer.code, answer.ext) == (0, {})
        assert broker.broker.clients.producers("pg") == []
        assert broker.broker.groups.known("") is None
        await broker.call(35, {"clientID": "c1", "consumerGroup": "g"})
        gone = await broker.call(38, {"consumerGroup": "g"})
        assert (gone.code, gone.ext) == (ResponseCode.SYSTEM_ERROR, {})

    play(scenario, tmp_path)


def test_clients_are_bounded(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.heartbeat("c1", producers=["a", "b"])).code == 0
        assert (await broker.heartbeat("c1", producers=["a", "c"])).code == ResponseCode.SYSTEM_BUSY
        assert (await broker.heartbeat("c1", producers=["a", "b"])).code == 0

    play(scenario, tmp_path, clients_max=2)


def test_a_silent_member_is_closed(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        clients = broker.broker.clients
        (member,) = clients.producers("pg")
        assert clients.close_silent(member.seen_at + 120) == []
        assert clients.close_silent(member.seen_at + 121) == [member.peer]
        assert clients.producers("pg") == []

    play(scenario, tmp_path)


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), (None, 0), ("SQL92", 1)])
def test_check_client_config(tmp_path: Path, kind: str | None, code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        data = {"topic": "T", "subString": "a > 1", "expressionType": kind}
        body = write_json({"clientId": "c", "group": "g", "subscriptionData": data})
        assert (await broker.call(46, None, body)).code == code

    play(scenario, tmp_path)


# -- queue locks -----------------------------------------------------------------------------------------------


def lock_body(client_id: str, *queues: int) -> bytes:
    named = [{"brokerName": "b", "queueId": number, "topic": "T"} for number in queues]
    return write_json({"clientId": client_id, "consumerGroup": "g", "mqSet": named})


async def lock(broker: RunningBroker, client_id: str, *queues: int) -> list[int]:
    answer = await broker.call(41, None, lock_body(client_id, *queues))
    return sorted(queue["queueId"] for queue in parse_json(answer.body)["lockOKMQSet"])


def test_a_queue_is_locked_by_one_member(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert await lock(broker, "c1", 0) == [0]
        assert await lock(broker, "c2", 0, 1) == [1]
        assert await lock(broker, "c1", 0, 1) == [0]
        await broker.call(42, None, lock_body("c2", 0))
        assert await lock(broker, "c2", 0) == []
        assert (await broker.call(42, None, lock_body("c1", 0))).code == 0
        assert await lock(broker, "c2", 0) == [0]

    play(scenario, tmp_path)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}'])
def test_what_is_no_lock_request(tmp_path: Path, body: bytes) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.call(41, None, body)).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(42, None, body)).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


# -- offsets ---------------------------------------------------------------------------------------------------


async def queue_number(broker: RunningBroker, code: int, name: str = "offset", **more: Any) -> int:
    answer = await broker.call(code, {"topic": "T", "queueId": 0} | more)
    assert answer.code == 0
    return int((answer.ext or {})[name])


def test_offsets_of_queues(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert await queue_number(broker, 30) == 0
        assert await queue_number(broker, 32, "timestamp") == -1
        for _ in range(3):
            await broker.send("T")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        assert (await queue_number(broker, 30), await queue_number(broker, 31)) == (3, 0)
        times = [message.store_timestamp for message in await broker.stored("T")]
        assert await queue_number(broker, 32, "timestamp") == times[0]
        assert await queue_number(broker, 29, timestamp=1) == 0
        assert await queue_number(broker, 29, timestamp=2**60) == 2

    play(scenario, tmp_path)


def test_offsets_of_groups(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        assert (await broker.call(14, fields)).ext == {"offset": "0"}
        committed = await broker.call(15, fields | {"commitOffset": 42})
        assert (committed.code, committed.ext) == (0, {})
        await broker.call(15, fields | {"commitOffset": -1})
        assert (await broker.call(14, fields)).ext == {"offset": "42"}
        await broker.call(15, fields | {"commitOffset": 7})
        assert (await broker.call(14, fields)).ext == {"offset": "7"}

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    "more", [{"queueId": 65_536}, {"queueId": -1}, {"topic": "t" * 256}, {"consumerGroup": "g" * 256}]
)
def test_committed_offsets_are_bounded(tmp_path: Path, more: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await broker.call(15, fields | more)).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(15, fields)).code == 0
        assert (await broker.call(15, fields | {"topic": "U"})).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(15, fields | {"commitOffset": 2})).code == 0

    play(scenario, tmp_path, offsets_max=1)


def test_what_a_broker_knows_survives_a_restart(tmp_path: Path) -> None:
    async def first(broker: RunningBroker) -> None:
        await broker.send("T", d=3)
        await broker.heartbeat("c1", [consumer("g", subscription("T"))])
        await broker.call(15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1})

    async def second(broker: RunningBroker) -> None:
        config = broker.broker.topics.find("T")
        assert config is not None
        assert config.read_queue_nums == 3
        assert broker.broker.groups.known("g") is not None
        assert (await broker.call(14, {"consumerGroup": "g", "topic": "T", "queueId": 0})).ext == {"offset": "1"}
        assert broker.broker.adopted == []
        assert broker.broker.findings == []

    play(first, tmp_path)
    play(second, tmp_path)


@pytest.mark.parametrize("damage", ["removed", "garbage"])
def test_a_lost_topic_table_hides_no_messages(tmp_path: Path, damage: str) -> None:
    async def first(broker: RunningBroker) -> None:
        await broker.send("T", e=2)

    async def second(broker: RunningBroker) -> None:
        assert "T" in broker.broker.adopted
        assert (await broker.pull("T", 0, queueId=2)).code == 0

    play(first, tmp_path)
    for file in (tmp_path / "store" / "config").glob("topics.json*"):
        file.unlink() if damage == "removed" else file.write_bytes(b"\0garbage")
    play(second, tmp_path)


# -- queries ---------------------------------------------------------------------------------------------------


def test_messages_by_key_and_by_place(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for number in range(3):
            await broker.send("T", b"%d" % number, f"KEYS\x01same k{number}\x02UNIQ_KEY\x01U{number}")
        stored = await broker.stored("T")
        query = {"topic": "T", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
        answer = await broker.call(12, query | {"key": "same"})
        assert len(answer.body) == sum(message.size for message in stored)
        assert answer.ext is not None
        assert int(answer.ext["indexLastUpdatePhyoffset"]) == stored[-1].physical_offset
        unique = await broker.call(12, query | {"key": "U1", "_UNIQUE_KEY_QUERY": True, "maxNum": 0})
        assert len(unique.body) == stored[1].size
        for key in ("nothing", ""):
            assert (await broker.call(12, query | {"key": key})).code == ResponseCode.QUERY_NOT_FOUND
        viewed = await broker.call(33, {"offset": stored[1].physical_offset})
        assert viewed.body == broker.store.read_log(stored[1].physical_offset, stored[1].size)
        for offset in (stored[1].physical_offset + 1, 10**12, -1):
            assert (await broker.call(33, {"offset": offset})).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path)


# -- messages given back ---------------------------------------------------------------------------------------


async def give_back(broker: RunningBroker, level: int = 0, **more: Any) -> int:
    (message, *_) = await broker.stored("T")
    fields = {"offset": message.physical_offset, "group": "g", "delayLevel": level}
    return (await broker.call(36, fields | more)).code


@pytest.mark.parametrize(("level", "queue", "delay"), [(0, 2, "3"), (5, 4, "5")])
def test_a_message_given_back_waits_in_the_retry_topic(tmp_path: Path, level: int, queue: int, delay: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        sent = await broker.send("T", b"body", "TAGS\x01a")
        assert await give_back(broker, level) == 0
        (parked,) = await broker.stored("SCHEDULE_TOPIC_XXXX", queue)
        assert (parked.body, parked.reconsume_times) == (b"body", 1)
        assert parked.properties == {
            "TAGS": "a",
            "CLUSTER": "DefaultCluster",
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": (sent.ext or {})["msgId"],
            "WAIT": "false",
            "DELAY": delay,
            "REAL_TOPIC": "%RETRY%g",
            "REAL_QID": "0",
        }

    play(scenario, tmp_path)


@pytest.mark.parametrize(("level", "more"), [(-1, {}), (0, {"maxReconsumeTimes": 0})])
def test_a_message_that_is_given_up(tmp_path: Path, level: int, more: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"body", "DELAYED\x01no")
        assert await give_back(broker, level, **more) == 0
        (dead,) = await broker.stored("%DLQ%g")
        assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"body", 1, "0")
        config = broker.broker.topics.find("%DLQ%g")
        assert config is not None
        assert (config.write_queue_nums, config.perm) == (1, 6)

    play(scenario, tmp_path)


def test_what_cannot_be_given_back(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        assert (await broker.call(36, {"offset": 5, "group": "g", "delayLevel": 0})).code == ResponseCode.SYSTEM_ERROR
        broker.broker.groups.put(GroupConfig("none", retry_queue_nums=0))
        assert await give_back(broker, group="none") == 0
        assert await broker.stored("SCHEDULE_TOPIC_XXXX", 2) == []

    play(scenario, tmp_path)


def test_a_group_that_is_not_there(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        assert await give_back(broker) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    play(scenario, tmp_path, auto_create_groups=False)
