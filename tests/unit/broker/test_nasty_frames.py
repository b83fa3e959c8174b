"""A broker that gets bytes of no client: the connection is closed or the frame answered, and others are served on."""

import asyncio
import logging
import random
from pathlib import Path

import pytest

from embermq.format.client_batch import encode_batch_items
from embermq.model.message import BatchItem
from embermq.remoting import Command, RequestCode, encode_frame
from tests.support.brokers import RunningBroker, play, send_fields
from tests.support.nasty_frames import Outcome, check_nasty, send_nasty

ROUNDS = 60


def place(broker: RunningBroker) -> tuple[str, int]:
    host, _, port = broker.address.rpartition(":")
    return host, int(port)


def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that a peer sends is a mistake of ours."""
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_corpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await check_nasty(*place(broker))
        assert (await broker.send("T", b"good")).code == 0
        assert (await broker.pull("T", 0)).code == 0
        assert broker.broker.server.counters.unread_bytes == 0

    with caplog.at_level(logging.DEBUG):
        play(scenario, tmp_path)
    quiet(caplog)


def test_sixteen_mebibytes_are_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        fields = {name: str(value) for name, value in send_fields("T").items()}
        empty = len(encode_frame(Command(310, ext=fields)))
        whole = encode_frame(Command(310, ext=fields, body=bytes((16 << 20) - empty)))
        assert len(whole) == 16 << 20
        assert await send_nasty(*place(broker), whole) is Outcome.ANSWERED
        longer = encode_frame(Command(310, ext=fields, body=bytes((16 << 20) - empty + 1)))
        assert await send_nasty(*place(broker), longer) is Outcome.CLOSED
        assert (await broker.send("T", b"good")).code == 0

    play(scenario, tmp_path)


def test_batches_with_changed_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch is stored whole or not at all."""

    async def scenario(broker: RunningBroker) -> None:
        dice = random.Random(5)
        good = encode_batch_items([BatchItem(b"one", {"KEYS": "k"}), BatchItem(b"two", flag=3), BatchItem(b"")])
        assert (await broker.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("T") | {"m": True}, good)).code == 0
        calls = []
        for _ in range(ROUNDS):
            data = bytearray(good)
            for _ in range(dice.randint(1, 3)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            del data[len(data) - dice.choice((0, 0, 1, 7)) :]
            body = bytes(data) + dice.choice((b"", b"", b"\0", bytes(12)))
            fields = send_fields("T") | {"m": True, "i": dice.choice(("", "\x01\x02", "DELAY\x013", "WAIT\x01false"))}
            calls.append(broker.call(RequestCode.SEND_BATCH_MESSAGE, fields, body))
        answers = await asyncio.gather(*calls)
        assert {answer.code for answer in answers} >= {0, 1}
        stored = await broker.stored("T")
        assert [message.queue_offset for message in stored] == list(range(len(stored)))
        assert (await broker.send("T", b"good")).code == 0

    with caplog.at_level(logging.WARNING):
        play(scenario, tmp_path)
    quiet(caplog)
