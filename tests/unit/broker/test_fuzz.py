"""Requests with any header and any body: each is answered, none is a mistake of ours, and good clients go on."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embermq.format.client_batch import encode_batch_items
from embermq.model.message import BatchItem
from embermq.remoting import RequestCode, Row, write_json
from tests.support.brokers import RunningBroker, consumer, play, send_fields, subscription

ROUNDS = 40
TEXTS = (
    "",
    " ",
    "T",
    "g",
    "pg",
    "%RETRY%g",
    "%DLQ%g",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "a/../b",
    "..",
    "\0",
    "x" * 300,
    "☃",
    "true",
    "1",
    "TAG",
    "SQL92",
    "*",
    "||",
    "a || b",
    "KEYS\x01k\x02",
    "DELAY\x013",
    "DELAY\x01x",
    "TRAN_MSG\x01true",
    "\x01\x02\x01",
    "WAIT\x01false",
    "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b",
    "127.0.0.1:10911",
    "7F000001" * 4,
)
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 3, 16, 64, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**30)
BODIES = (
    b"",
    b"x",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b'{"clientID":"c"}',
    b'{"clientID":[]}',
    b"\xff" * 50,
    bytes(30),
    b'{"mqSet":[{"topic":"T"}]}',
    b'{"clientId":"c","consumerGroup":"g","mqSet":5}',
    b"key=value\nrocketmqHome=/tmp",
    b'{"groupName":5}',
    b"{" * 5000,
    write_json({"clientID": "f", "consumerDataSet": [consumer("g", subscription("T"))]}),
    encode_batch_items([BatchItem(b"one"), BatchItem(b"two")]),
    encode_batch_items([BatchItem(b"one")])[:-1],
)


def random_fields(row: Row, dice: random.Random) -> dict[str, Any]:
    """Most fields of a header, most of them of the right kind."""
    fields: dict[str, Any] = {}
    for info in msgspec.structs.fields(row.header):
        if dice.random() < 0.07:
            continue
        is_text = "str" in str(info.type) and dice.random() < 0.9
        fields[info.encode_name] = dice.choice(TEXTS) if is_text else dice.choice(NUMBERS)
    if row.code == RequestCode.END_TRANSACTION:
        fields["commitOrRollback"] = dice.choice((8, 12))  # All others are not answered.
    return fields


def test_any_request_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T", b"good", "KEYS\x01k\x02TAGS\x01a")
        await broker.heartbeat("c1", [consumer("g", subscription("T"))], ["pg"])
        for row in broker.broker.table:
            dice = random.Random(row.code)
            calls = [broker.call(row.code, random_fields(row, dice), dice.choice(BODIES)) for _ in range(ROUNDS)]
            answers = await asyncio.gather(*calls)
            assert all(answer.is_response for answer in answers), row.name
        for call in [await broker.send("T", b"still good"), await broker.pull("T", 0)]:
            assert call.code == 0

    with caplog.at_level(logging.ERROR):
        play(scenario, tmp_path, store={"long_polling": False}, short_polling_ms=20)
    assert [record.getMessage() for record in caplog.records] == []


def test_names_never_leave_the_store(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for name in ("../outside", "..", "/tmp/outside", "a/b", "a\0b", "%RETRY%../x"):
            answer = await broker.call(310, send_fields(name), b"x")
            assert answer.code == 1
            await broker.call(36, {"offset": 0, "group": name, "delayLevel": -1})
            await broker.call(14, {"consumerGroup": name, "topic": name, "queueId": 0})
            await broker.call(30, {"topic": name, "queueId": 0})

    play(scenario, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
