"""Replies: pushed to the producer that waits, stored in the reply topic."""

from pathlib import Path
from typing import Any

import pytest

from embermq.model.properties import decode_properties
from embermq.remoting import Call, Command, NoHeader, Reply, RequestCode, RequestTable, ResponseCode, Row
from embermq.settings import FlushDisk
from tests.support.brokers import RunningBroker, play, send_fields

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "REPLY_TO_CLIENT\x01c1\x02CORRELATION_ID\x0142\x02MSG_TYPE\x01reply\x02TTL\x013000"


class Requester:
    """A producer that waits for replies."""

    def __init__(self) -> None:
        self.pushed: list[Command] = []
        self.reply = Reply()
        self.table = RequestTable([Row(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, NoHeader, self.take)])

    def take(self, call: Call[NoHeader]) -> Reply:
        self.pushed.append(call.request)
        return self.reply


@pytest.mark.parametrize("flush", [FlushDisk.ASYNC, FlushDisk.SYNC])
def test_a_reply_reaches_the_producer_and_is_kept(tmp_path: Path, flush: FlushDisk) -> None:
    requester = Requester()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        answer = await broker.call(325, send_fields(TOPIC, PROPERTIES), b"answer")
        (pushed,) = requester.pushed
        assert pushed.ext is not None
        assert (pushed.body, pushed.is_oneway) == (b"answer", False)
        assert pushed.ext.items() >= {"topic": TOPIC, "producerGroup": "pg", "queueId": "0", "flag": "0"}.items()
        properties = decode_properties(pushed.ext["properties"].encode())
        assert properties["CORRELATION_ID"] == "42"
        assert int(properties["PUSH_REPLY_TIME"]) == int(pushed.ext["storeTimestamp"])
        assert pushed.ext["bornHost"].startswith("127.0.0.1:")
        (stored,) = await broker.stored(TOPIC)
        assert (stored.body, stored.properties["CORRELATION_ID"]) == (b"answer", "42")
        assert answer.code == 0
        assert answer.ext is not None
        assert answer.ext["msgId"] == stored.message_id
        assert (answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["TRACE_ON"]) == ("0", "0", "true")
        if flush is FlushDisk.SYNC:
            assert broker.store.flushed_offset >= stored.physical_offset + stored.size

    play(scenario, tmp_path, client_table=requester.table, store={"flush": flush})


def test_a_reply_that_is_not_kept(tmp_path: Path) -> None:
    requester = Requester()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        answer = await broker.call(325, send_fields(TOPIC, PROPERTIES), b"answer")
        assert answer.ext is not None
        assert (answer.code, answer.ext["msgId"]) == (0, "0")
        assert broker.store.max_physical == 0

    play(scenario, tmp_path, client_table=requester.table, store_replies=False)


def test_a_reply_that_reaches_no_one_is_an_error_and_is_kept(tmp_path: Path) -> None:
    requester = Requester()

    async def scenario(broker: RunningBroker) -> None:
        fields = send_fields(TOPIC, PROPERTIES)
        unknown = await broker.call(325, fields, b"1")
        assert (unknown.code, "<c1> not found" in (unknown.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert "msgId" in (unknown.ext or {})
        nobody = await broker.call(325, fields | {"i": ""}, b"2")
        assert (nobody.code, "REPLY_TO_CLIENT" in (nobody.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        await broker.heartbeat("c1", producers=["pg"])
        requester.reply = Reply(1, "no request waits")
        failed = await broker.call(325, fields, b"3")
        assert (failed.code, "no request waits" in (failed.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert [message.body for message in await broker.stored(TOPIC)] == [b"1", b"2", b"3"]

    play(scenario, tmp_path, client_table=requester.table)


def test_the_checks_of_a_send_hold_for_a_reply(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"b": "a.b"}, 1),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"b": "T", "c": "none"}, 17),
        ({"e": 99}, 1),
        ({"i": "TRAN_MSG\x01true"}, 13),
        ({"f": 4}, 13),
    ]
    requester = Requester()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        for more, code in cases:
            answer = await broker.call(325, send_fields(TOPIC, PROPERTIES) | more, b"x")
            assert (answer.code, set(answer.ext or {})) == (code, {"MSG_REGION", "TRACE_ON"}), more
        assert (await broker.call(324, {"topic": TOPIC})).code == ResponseCode.SYSTEM_ERROR
        assert requester.pushed == []
        assert broker.store.max_physical == 0
        broker.store.set_writable(False)
        answer = await broker.call(325, send_fields(TOPIC, PROPERTIES), b"x")
        assert (answer.code, (answer.ext or {})["msgId"]) == (0, "0")  # It was pushed, which is what was asked.

    play(scenario, tmp_path, client_table=requester.table)
