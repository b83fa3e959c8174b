"""Clients as administrators see them, and requests that are passed on to them."""

from pathlib import Path
from typing import Any

from embermq.remoting import (
    Call,
    Command,
    Connector,
    NoHeader,
    Reply,
    RequestTable,
    ResponseCode,
    Row,
    key_object,
    parse_json,
    write_json,
)
from embermq.store.tables import TopicConfig
from tests.support.brokers import RunningBroker, consumer, play, subscription, until


class Member:
    """A client that answers what a broker asks of it."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.reply: Reply | None = Reply()
        self.table = RequestTable(Row(code, NoHeader, self.answer) for code in (40, 220, 221, 307, 309))

    def answer(self, call: Call[NoHeader]) -> Reply | None:
        if call.request.code != 40:
            self.asked.append(call.request)
        return None if call.request.is_oneway else self.reply


def key(queue_id: int, topic: str = "T") -> dict[str, Any]:
    return {"brokerName": "b", "queueId": queue_id, "topic": topic}


def by_queue(table: dict[str, Any]) -> dict[int, Any]:
    """A map with queues for keys, by queue id."""
    return {key_object(text)["queueId"]: value for text, value in table.items()}


# -- connections -----------------------------------------------------------------------------------------------


def test_connections(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("g", subscription("T", "a||b"))], ["pg"], language="JAVA")
        group = parse_json((await broker.call(203, {"consumerGroup": "g"})).body)
        (connection,) = group["connectionSet"]
        address = connection.pop("clientAddr")
        assert address.startswith("127.0.0.1:")
        assert connection == {"clientId": "c1", "language": "JAVA", "version": 409}
        assert group["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
        assert (group["consumeType"], group["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert group["subscriptionTable"]["T"] == {
            "classFilterMode": False,
            "codeSet": [97, 98],
            "expressionType": "TAG",
            "subString": "a||b",
            "subVersion": 100,
            "tagsSet": ["a", "b"],
            "topic": "T",
        }
        producers = parse_json((await broker.call(204, {"producerGroup": "pg"})).body)
        assert producers == {"connectionSet": [connection | {"clientAddr": address}]}
        everything = parse_json((await broker.call(328)).body)["data"]
        (info,) = everything["pg"]
        assert info.pop("lastUpdateTimestamp") > 0
        assert info == {"clientId": "c1", "language": "JAVA", "remoteIP": f"/{address}", "version": 409}
        assert (await broker.call(203, {"consumerGroup": "other"})).code == ResponseCode.CONSUMER_NOT_ONLINE
        assert (await broker.call(204, {"producerGroup": "other"})).code == ResponseCode.SYSTEM_ERROR
        await broker.call(35, {"clientID": "c1", "producerGroup": "pg"})
        assert (await broker.call(204, {"producerGroup": "pg"})).code == ResponseCode.SYSTEM_ERROR
        assert parse_json((await broker.call(328)).body) == {"data": {}}

    play(scenario, tmp_path)


def test_who_reads_what(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("online", subscription("T"))])
        await broker.call(15, {"consumerGroup": "offline", "topic": "T", "queueId": 0, "commitOffset": 1})
        await broker.call(15, {"consumerGroup": "offline", "topic": "U", "queueId": 0, "commitOffset": 1})
        assert parse_json((await broker.call(300, {"topic": "T"})).body) == {"groupList": ["offline", "online"]}
        assert parse_json((await broker.call(300, {"topic": "none"})).body) == {"groupList": []}
        assert parse_json((await broker.call(343, {"group": "offline"})).body) == {"topicList": ["T", "U"]}
        found = parse_json((await broker.call(345, {"group": "online", "topic": "T"})).body)
        assert (found["group"], found["topic"], found["subscriptionData"]["subString"]) == ("online", "T", "*")
        found = parse_json((await broker.call(345, {"group": "offline", "topic": "T"})).body)
        assert found == {"group": "offline", "topic": "T"}

    play(scenario, tmp_path)


# -- passed on to one client -----------------------------------------------------------------------------------


def test_running_info_is_the_clients_own(tmp_path: Path) -> None:
    member = Member()
    member.reply = Reply(0, "not set any response code", None, b'{"mqTable":{},"properties":{}}')

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("g", subscription("T"))])
        fields = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": True}
        answer = await broker.call(307, fields)
        assert (answer.code, answer.body) == (0, b'{"mqTable":{},"properties":{}}')
        (asked,) = member.asked
        assert (asked.code, asked.ext) == (307, {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"})
        for more in ({"clientId": "c2"}, {"consumerGroup": "other"}):
            answer = await broker.call(307, fields | more)
            assert (answer.code, "not online" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        await broker.heartbeat("c1", [consumer("g", subscription("T"))], version=61)
        answer = await broker.call(307, fields)
        assert (answer.code, "too low" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

    play(scenario, tmp_path, client_table=member.table)


def test_a_client_that_does_not_answer(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("embermq.broker.admin.relay.CLIENT_SECONDS", 0.05)
    monkeypatch.setattr("embermq.broker.admin.reset.STATUS_SECONDS", 0.05)
    member = Member()
    member.reply = None

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("g", subscription("T"))])
        answer = await broker.call(307, {"consumerGroup": "g", "clientId": "c1"})
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        answer = await broker.call(223, {"topic": "T", "group": "g"})
        assert parse_json(answer.body) == {"consumerTable": {}, "messageQueueTable": {}}

    play(scenario, tmp_path, client_table=member.table)


def test_a_message_is_consumed_directly(tmp_path: Path) -> None:
    member = Member()
    member.reply = Reply(body=b'{"consumeResult":"CR_SUCCESS"}')

    async def scenario(broker: RunningBroker) -> None:
        sent = await broker.send("T", b"look at me")
        await broker.heartbeat("c1", [consumer("g", subscription("T"))])
        (stored,) = await broker.stored("T")
        fields = {"consumerGroup": "g", "clientId": "c1", "msgId": (sent.ext or {})["msgId"], "brokerName": "b"}
        answer = await broker.call(309, fields)
        assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
        (asked,) = member.asked
        assert asked.body == broker.store.read_log(stored.physical_offset, stored.size)
        assert asked.ext == {name: str(value) for name, value in fields.items()}
        for message_id in ("", "nonsense", "7F000001000051AF0000000000FFFFFF"):
            assert (await broker.call(309, fields | {"msgId": message_id})).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(309, fields | {"clientId": "c2"})).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path, client_table=member.table)


# -- offsets that members hold ---------------------------------------------------------------------------------

RESET = {"topic": "T", "group": "g", "timestamp": -1, "isForce": True}


async def filled(broker: RunningBroker) -> None:
    """A topic with two queues of three messages, and a group that has read two of each."""
    broker.broker.topics.put(TopicConfig("T", 2, 2))
    for queue_id in (0, 1):
        for _ in range(3):
            await broker.send("T", e=queue_id)
        await broker.call(15, {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "commitOffset": 2})


def test_offsets_are_set_back_in_the_form_that_each_member_reads(tmp_path: Path) -> None:
    java, cpp = Member(), Member()

    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        other = Connector(cpp.table)
        beat = write_json({"clientID": "c2", "consumerDataSet": [consumer("g", subscription("T"))]})
        await broker.heartbeat("c1", [consumer("g", subscription("T"))], language="JAVA")
        await other.call(broker.address, Command(34, body=beat, language="CPP", version=63), 5.0)
        answer = await broker.call(222, RESET)
        assert answer.code == 0
        assert b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:3,' in answer.body
        await until(lambda: bool(java.asked and cpp.asked))
        assert java.asked[0].is_oneway
        assert java.asked[0].ext == {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "false"}
        assert by_queue(parse_json(java.asked[0].body)["offsetTable"]) == {0: 3, 1: 3}
        assert parse_json(cpp.asked[0].body)["offsetTable"] == [key(0) | {"offset": 3}, key(1) | {"offset": 3}]
        assert broker.broker.offsets.query("g", "T", 0) == 2  # It changes when the members commit.
        answer = await broker.call(222, RESET | {"isForce": False})
        assert by_queue(parse_json(answer.body)["offsetTable"]) == {0: 2, 1: 2}
        answer = await broker.call(222, RESET | {"timestamp": 1, "isForce": False})
        assert by_queue(parse_json(answer.body)["offsetTable"]) == {0: 0, 1: 0}
        await other.close()

    play(scenario, tmp_path, client_table=java.table)


def test_offsets_that_cannot_be_set_back(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await filled(broker)
        answer = await broker.call(222, RESET)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert (await broker.call(222, RESET | {"topic": "none"})).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(222, RESET | {"group": "none"})).code == ResponseCode.SYSTEM_ERROR
        await broker.heartbeat("c1", [consumer("g", subscription("T"))], version=27)
        answer = await broker.call(222, RESET)
        assert (answer.code, "version=27" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        answer = await broker.call(223, {"topic": "T", "group": "g"})
        assert (answer.code, "version=27" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        broker.broker.topics.put(TopicConfig("T", 3, 3))
        assert (await broker.call(222, RESET)).code == ResponseCode.SYSTEM_ERROR  # One queue has no offset.

    play(scenario, tmp_path)


def test_members_say_where_they_are(tmp_path: Path) -> None:
    member = Member()
    member.reply = Reply(
        body=b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:42}}'
    )

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer("g", subscription("T"))])
        answer = await broker.call(223, {"topic": "T", "group": "g", "clientAddr": ""})
        assert answer.body == (
            b'{"consumerTable":{"c1":{{"brokerName":"b","queueId":1,"topic":"T"}:42}},"messageQueueTable":{}}'
        )
        assert member.asked[0].ext == {"topic": "T", "group": "g"}
        answer = await broker.call(223, {"topic": "T", "group": "g", "clientAddr": "c2"})
        assert parse_json(answer.body)["consumerTable"] == {}
        assert (await broker.call(223, {"topic": "T", "group": "none"})).code == ResponseCode.SYSTEM_ERROR
        member.reply = Reply(body=b"garbage")
        answer = await broker.call(223, {"topic": "T", "group": "g", "clientAddr": "c1"})
        assert parse_json(answer.body)["consumerTable"] == {}

    play(scenario, tmp_path, client_table=member.table)
