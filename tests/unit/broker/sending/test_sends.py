"""Sends: every check in its order, what is stored, what is answered."""

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from embermq.broker import Refused, SendContext
from embermq.format.client_batch import encode_batch_items
from embermq.model.message import BatchItem
from embermq.remoting import BINARY, Command, RequestCode, ResponseCode
from embermq.settings import FlushDisk
from embermq.store.tables import GroupConfig, TopicConfig
from tests.support.brokers import RunningBroker, play, send_fields

LONG_NAMES = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
]


def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.send("T", b"hello", "KEYS\x01k\x02TAGS\x01a\x02WAIT\x01true\x02", e=2, h=7, f=1)
        assert answer.code == 0
        assert answer.ext is not None
        assert answer.ext.items() >= {"queueId": "2", "queueOffset": "0", "MSG_REGION": "DefaultRegion"}.items()
        assert answer.ext["TRACE_ON"] == "true"
        (message,) = await broker.stored("T", 2)
        assert (message.body, message.flag, message.sys_flag) == (b"hello", 7, 1)
        assert message.properties == {"KEYS": "k", "TAGS": "a", "CLUSTER": "DefaultCluster"}
        assert message.born_timestamp == 1_700_000_000_000
        assert message.born_host.address == "127.0.0.1"
        assert message.born_host.port > 0
        assert message.message_id == answer.ext["msgId"]

    play(scenario, tmp_path)


@pytest.mark.parametrize("code", [10, 310])
def test_long_and_short_names_and_both_headers(tmp_path: Path, code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = send_fields("T")
        if code == 10:
            fields = {
                long: fields[short] for long, short in zip(LONG_NAMES, "abcdefghijklm", strict=True) if short in fields
            }
        for number, serialization in enumerate((0, BINARY)):
            answer = await broker.call(code, {**fields, "n": "b"}, b"x", serialization=serialization)
            assert (answer.code, answer.serialization) == (0, serialization)
            assert answer.ext is not None
            assert answer.ext["queueOffset"] == str(number)

    play(scenario, tmp_path)


def test_an_unknown_topic_is_made_with_the_senders_number_of_queues(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", d=3)
        config = broker.broker.topics.find("T")
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
        await broker.send("U", d=99, c="DefaultCluster")
        config = broker.broker.topics.find("U")
        assert config is not None
        assert config.write_queue_nums == 16

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"b": "a.b"}, 1, "illegal characters"),
        ({"b": " "}, 1, "blank"),
        ({"b": "t" * 128}, 1, "longer"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "forbidden"),
        ({"b": "SELF_TEST_TOPIC"}, 16, "forbidden"),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "forbidden"),
        ({"c": "unknown"}, 17, "topic[T] not exist, apply first please!"),
        ({"c": "SELF_TEST_TOPIC"}, 17, "not exist"),
        ({"e": 99}, 1, "queueId[99] is illegal"),
        ({"f": 4}, 13, "TRAN_MSG"),
        ({"i": f"a\x01{'x' * 33_000}"}, 13, "properties"),
    ],
)
def test_a_check_that_objects_answers(tmp_path: Path, more: dict[str, Any], code: int, remark: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.send("T", **more)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert answer.ext is not None
        assert answer.ext.keys() == {"MSG_REGION", "TRACE_ON"}
        assert broker.store.max_physical == 0

    play(scenario, tmp_path)


@pytest.mark.parametrize("fields", [{"a": "pg", "b": "T"}, {"i": "DELAY\x01soon"}, {"e": "x"}])
def test_a_request_that_cannot_be_read_is_an_error_without_fields(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        sent = fields if len(fields) == 2 else send_fields("T") | fields
        answer = await broker.call(310, sent, b"x")
        assert (answer.code, answer.ext) == (ResponseCode.SYSTEM_ERROR, None)
        assert broker.store.max_physical == 0

    play(scenario, tmp_path)


def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.send("T", bytes(2049))).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await broker.send("T", bytes(2048))).code == 0
        assert (await broker.send("T", b"")).code == 0

    play(scenario, tmp_path, store={"message_bytes_max": 2048})


def test_topics_are_not_made_where_that_is_switched_off(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.send("T")).code == ResponseCode.TOPIC_NOT_EXIST
        broker.broker.topics.put(TopicConfig("T", 1, 1))
        assert (await broker.send("T")).code == 0

    play(scenario, tmp_path, auto_create_topics=False)


def test_before_its_time_a_broker_takes_nothing(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.send("T")).code == ResponseCode.SYSTEM_ERROR

    play(scenario, tmp_path, accept_sends_from_ms=2**62)


def test_an_unwritable_broker_refuses_ordered_topics_only(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.broker.topics.put(TopicConfig("ordered", 1, 1, order=True))
        assert (await broker.send("ordered")).code == ResponseCode.NO_PERMISSION
        assert (await broker.send("T")).code == 0

    play(scenario, tmp_path, permission=4)


def test_a_negative_queue_is_chosen_by_the_broker(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answers = [await broker.send("T", e=-1) for _ in range(40)]
        chosen = {int((answer.ext or {})["queueId"]) for answer in answers}
        assert chosen <= {0, 1, 2, 3}
        assert len(chosen) > 1

    play(scenario, tmp_path)


def test_a_delayed_message_is_answered_with_its_place_in_the_schedule_topic(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.send("T", b"later", "DELAY\x013\x02WAIT\x01true", e=1)
        assert answer.ext is not None
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "1", "0")
        (parked,) = await broker.stored("SCHEDULE_TOPIC_XXXX", 2)
        assert parked.properties == {
            "DELAY": "3",
            "WAIT": "true",
            "REAL_TOPIC": "T",
            "REAL_QID": "1",
            "CLUSTER": "DefaultCluster",
        }

    play(scenario, tmp_path)


# -- batches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["true", "1"])
def test_a_batch_is_stored_side_by_side(tmp_path: Path, flag: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        items = [BatchItem(b"one", flag=1, properties={"TAGS": "a"}), BatchItem(b"two", properties={"KEYS": "k"})]
        answer = await broker.call(
            RequestCode.SEND_BATCH_MESSAGE, send_fields("T") | {"m": flag}, encode_batch_items(items)
        )
        assert answer.ext is not None
        assert (answer.code, answer.ext["queueOffset"]) == (0, "0")
        stored = await broker.stored("T")
        assert [message.body for message in stored] == [b"one", b"two"]
        assert ",".join(message.message_id for message in stored) == answer.ext["msgId"]
        assert stored[0].properties == {"TAGS": "a", "CLUSTER": "DefaultCluster"}

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("body", "more", "code"),
    [
        (struct.pack(">i", 99), {}, 1),
        (b"", {}, 1),
        (encode_batch_items([BatchItem(b"x")]), {"i": "DELAY\x011"}, 13),
        (encode_batch_items([BatchItem(b"x")]), {"f": 4}, 13),
        (encode_batch_items([BatchItem(bytes(4 << 20))]), {}, 13),
    ],
)
def test_a_batch_that_cannot_be_stored(tmp_path: Path, body: bytes, more: dict[str, Any], code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(310, send_fields("T") | {"m": True} | more, body)
        assert answer.code == code
        assert broker.store.max_physical == 0

    play(scenario, tmp_path)


# -- retries ---------------------------------------------------------------------------------------------------


def test_a_message_that_failed_too_often_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.broker.groups.put(GroupConfig("G", retry_max_times=2))
        assert (await broker.send("%RETRY%G", b"again", j=1)).code == 0
        assert (await broker.send("%RETRY%G", b"dead", "DELAY\x013", j=2)).code == 0
        assert (await broker.send("%RETRY%G", b"own limit", j=2, l=9)).code == 0
        assert (await broker.send("%RETRY%G", b"old client", j=2, l=9)).code == 0
        assert [message.body for message in await broker.stored("%RETRY%G")] == [b"again", b"own limit", b"old client"]
        (dead,) = await broker.stored("%DLQ%G")
        assert (dead.body, dead.reconsume_times, "DELAY" in dead.properties) == (b"dead", 2, False)

    play(scenario, tmp_path)


def test_a_retry_of_an_unknown_group(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.send("%RETRY%G")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    play(scenario, tmp_path, auto_create_groups=False)


# -- durability ------------------------------------------------------------------------------------------------


def test_under_sync_flush_an_answer_means_durable(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        async def one(number: int) -> None:
            answer = await broker.send("T", b"%d" % number)
            assert answer.code == 0
            assert answer.ext is not None
            end = int(answer.ext["msgId"][16:], 16)
            assert broker.store.flushed_offset > end

        await asyncio.gather(*(one(number) for number in range(100)))
        assert len(await broker.stored("T")) == 100

    play(scenario, tmp_path, store={"flush": FlushDisk.SYNC})


def test_a_store_that_refuses_is_not_available(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        broker.store.set_writable(False)
        assert (await broker.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.store.set_writable(True)
        assert (await broker.send("T")).code == 0

    play(scenario, tmp_path)


# -- hooks -----------------------------------------------------------------------------------------------------


class Audit:
    def __init__(self) -> None:
        self.seen: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        if context.topic == "secret":
            raise Refused("not this topic")
        if context.topic == "broken":
            raise ZeroDivisionError

    def after_send(self, context: SendContext) -> None:
        self.seen.append(context)


def test_hooks_see_and_refuse(tmp_path: Path) -> None:
    audit = Audit()

    async def scenario(broker: RunningBroker) -> None:
        refused = await broker.send("secret")
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not this topic")
        assert (await broker.send("broken")).code == 0
        answer = await broker.send("T", b"1234", "KEYS\x01k", e=1)
        assert answer.ext is not None
        (_broken, seen) = audit.seen
        assert (seen.topic, seen.queue_id, seen.body_bytes, seen.producer_group) == ("T", 1, 4, "pg")
        assert (seen.message_id, seen.queue_offset, seen.status) == (answer.ext["msgId"], 0, "PUT_OK")

    play(scenario, tmp_path, hooks=[audit])


def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = {name: str(value) for name, value in send_fields("T").items()}
        await broker.client.tell(broker.address, Command(310, ext=fields, body=b"quiet"))
        assert (await broker.send("T", b"loud")).code == 0
        assert [message.body for message in await broker.stored("T")] == [b"quiet", b"loud"]

    play(scenario, tmp_path)
