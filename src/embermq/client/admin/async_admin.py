"""Admin for asyncio: the families of questions over one set of connections. The loop's thread only."""

from collections.abc import Sequence
from ssl import SSLContext
from typing import Self

from embermq.client.admin.asking import Asking
from embermq.client.admin.brokers import Brokers
from embermq.client.admin.dead_letters import DeadLetters
from embermq.client.admin.groups import Groups
from embermq.client.admin.kv_configs import KvConfigs
from embermq.client.admin.messages import Messages
from embermq.client.admin.offsets import Offsets
from embermq.client.admin.rates import Rates
from embermq.client.admin.topics import Topics
from embermq.client.admin.traces import Traces
from embermq.client.calls import Caller
from embermq.client.credentials import Credentials
from embermq.client.name_servers import NameServers, parse_name_servers
from embermq.client.settings import ClientSettings
from embermq.remoting import Connector


class Admin:
    """What an administrator asks of a cluster, for asyncio.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.names()

    Made on the loop that uses it. It is no member of any group, and sends no heartbeats.
    """

    def __init__(
        self,
        name_server: str | Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: SSLContext | bool = False,
    ) -> None:
        settings = ClientSettings(name_servers=parse_name_servers(name_server), credentials=credentials, tls=tls)
        self._connector = Connector(tls=settings.tls_context())
        asking = Asking(Caller(self._connector, credentials), NameServers(settings.name_servers, 0))
        self.topics = Topics(asking)
        self.groups = Groups(asking, self.topics)
        self.rates = Rates(asking, self.topics, self.groups)
        self.brokers = Brokers(asking)
        self.kv_configs = KvConfigs(asking)
        self.messages = Messages(asking)
        self.offsets = Offsets(asking, self.groups, self.messages)
        self.traces = Traces(self.messages)
        self.dead_letters = DeadLetters(asking, self.messages)

    async def close(self) -> None:
        await self._connector.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.close()
