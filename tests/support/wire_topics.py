"""Topics of brokers on loopback, made as administrators make them; for tests that fill stores directly."""

import asyncio
import time
from collections.abc import Iterable

from embermq.remoting import Command, Connector, RequestCode
from tests.support.waiting import PATIENCE_SECONDS


def create_topic(addresses: Iterable[str], name_server: str, topic: str, queues: int = 4) -> None:
    """Make a topic at every broker, and wait until the name server knows it at all of them."""
    asyncio.run(_create_topic(list(addresses), name_server, topic, queues))


async def _create_topic(addresses: list[str], name_server: str, topic: str, queues: int) -> None:
    connector = Connector()
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    try:
        for address in addresses:
            request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=dict(fields))
            assert (await connector.call(address, request, PATIENCE_SECONDS)).code == 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": topic})
            answer = await connector.call(name_server, request, PATIENCE_SECONDS)
            if answer.code == 0 and answer.body.count(f'"readQueueNums":{queues}'.encode()) >= len(addresses):
                return
            assert time.monotonic() < deadline, answer
            await asyncio.sleep(0.02)
    finally:
        await connector.close()
