"""A name server that gets bytes of no client: the connection is closed or the frame answered, others are served on."""

import asyncio
import logging
from pathlib import Path

import pytest

from embermq.namesrv import NameServer
from embermq.remoting import Command, Connector
from embermq.settings import NamesrvSettings
from tests.support.nasty_frames import check_nasty


def test_the_corpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def whole() -> None:
        server = NameServer(
            NamesrvSettings(kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "namesrv.properties")
        )
        address = await server.start("127.0.0.1", 0)
        await check_nasty(address.address, address.port)
        client = Connector()
        assert (await client.call(str(address), Command(106), 5.0)).code == 0
        await client.close()
        await server.stop()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(whole())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert list(tmp_path.iterdir()) == []
