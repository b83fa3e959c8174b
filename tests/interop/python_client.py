"""Clusters for the Python client: Apache RocketMQ 4.9.7 and 5.3.3 with access control, and `embermq broker`; and what
is stored there.

Apache's brokers ask for signatures, so that every test against them proves them; EmberMQ's does not look at them.
"""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from embermq.client.calls import Heartbeat, Pull, PullStatus, pull
from embermq.client.instance import Instance
from embermq.client.received import ReceivedMessage, parse_records
from embermq.client.settings import ClientSettings
from embermq.errors import RouteMissing
from tests.interop.apache5 import ACCOUNT
from tests.interop.java_broker import broker_config, free_port, home_of, java_server
from tests.support.broker_process import BrokerProcess

APACHE, APACHE5, EMBERMQ = "Apache RocketMQ", "Apache RocketMQ 5", "EmberMQ"
_ACL = "globalWhiteRemoteAddresses: []\naccounts:\n- {accessKey: rocketmq2, secretKey: '12345678', admin: true}\n"
# Undecided transactions are asked about after a second; a busy machine is no reason to refuse a send.
_SETTINGS = {
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
}
_PATIENCE = {f"waitTimeMillsIn{queue}Queue": 60_000 for queue in ("Send", "Pull", "Reply", "Heartbeat", "Transaction")}
_PATIENCE |= {"mappedFileSizeCommitLog": 16 << 20, "osPageCacheBusyTimeOutMills": 60_000}
APACHE_SETTINGS: dict[str, object] = {**_SETTINGS, **_PATIENCE}
WAIT_SECONDS = 60.0


class ClusterUnderTest(msgspec.Struct):
    """A name server's address, and whose broker stands behind it."""

    kind: str
    name_server: str


@contextmanager
def apache_cluster(place: Path) -> Iterator[ClusterUnderTest]:
    (home_of(place) / "conf" / "plain_acl.yml").write_text(_ACL)
    address = f"127.0.0.1:{free_port()}"
    config = broker_config(place, address) | APACHE_SETTINGS | {"aclEnable": "true"}
    with (
        java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": address.partition(":")[2]}),
        java_server("broker.BrokerStartup", place, config),
    ):
        yield ClusterUnderTest(APACHE, address)


@contextmanager
def embermq_cluster(place: Path) -> Iterator[ClusterUnderTest]:
    settings = {"brokerName": "broker-a", **_SETTINGS}
    words = [word for setting in settings.items() for word in ("--set", "=".join(map(str, setting)))]
    with BrokerProcess(place, *words) as broker:
        yield ClusterUnderTest(EMBERMQ, broker.name_server)


def trusting_context() -> ssl.SSLContext:
    """Apache's test mode makes a certificate of its own at every start."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def stored(cluster: ClusterUnderTest, topic: str, at_least: int) -> list[ReceivedMessage]:
    """Everything in a topic, once there is so much; queue by queue, in order."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = asyncio.run(_stored(cluster, topic))
        if len(found) >= at_least or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


async def _stored(cluster: ClusterUnderTest, topic: str) -> list[ReceivedMessage]:
    settings = ClientSettings(name_servers=(cluster.name_server,), credentials=ACCOUNT)
    instance = Instance(settings, lambda: Heartbeat("reader"))
    found: list[ReceivedMessage] = []
    try:
        route = await instance.routes.route(topic)
        for queue in route.read_queues():
            to = instance.routes.broker(queue.broker)
            assert to is not None
            offset = 0
            while True:
                wanted = Pull("reader", topic, queue.queue_id, offset, expression="*")
                answer = await pull(instance.caller, to, wanted, 10.0)
                found += parse_records(answer.records, queue.broker)
                if answer.status in (PullStatus.NO_NEW, PullStatus.OFFSET_MOVED) or answer.next_offset <= offset:
                    break
                offset = answer.next_offset
    except RouteMissing:
        pass  # The topic is made by the first message.
    finally:
        await instance.close()
    return found


def bodies(messages: Sequence[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]
