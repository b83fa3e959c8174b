"""Registration with name servers: all topics at the start and every half minute, those that changed in between.

Each name server is asked on its own; one that cannot be reached does not hold up the others, and is tried again at the
next turn. On the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from embermq.broker.tables import READ_WRITE, TopicTable
from embermq.errors import RemotingError
from embermq.remoting import Command, Connector, Link, RequestCode, ask, parse_json, write_json
from embermq.settings import BrokerSettings
from embermq.store.tables import DataVersion, TopicConfig

log = logging.getLogger(__name__)

TOPICS_ON_LOOP_MAX = 1000
UNREGISTER_SECONDS = 3.0
# How long a change waits for name servers that did not answer lately.
LATE_SECONDS = 0.25


class Registration:
    """One broker at its name servers."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        topics: TopicTable,
        connector: Connector,
        address: str,
        ha_address: str,
        broker_id: int,
        learned: Callable[[str | None, str | None], None] = lambda _address, _ha_address: None,
    ) -> None:
        """`learned` gets what a name server says of the master of this broker's name: its address, and the one for
        replication."""
        self._settings, self._topics, self._connector = settings, topics, connector
        self._address, self._ha_address, self.broker_id = address, ha_address, broker_id
        self._learned = learned
        self._silent: set[str] = set()  # name servers that did not answer at the last turn
        self._knows_all: dict[str, Link] = {}  # by name server: the connection on which it got all topics
        self._late: set[asyncio.Task[None]] = set()

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._settings().name_servers

    @property
    def unreachable(self) -> frozenset[str]:
        return frozenset(self._silent)

    async def register_all(self) -> None:
        """Announce every topic to every name server."""
        await self._register_at(self.name_servers)

    async def register_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Announce some topics only, under the new version of the table; all of them where a name server may have been
        restarted: it takes a version once. It returns when those that have answered lately have answered again."""
        body = self._body(configs, self._topics.version)
        servers = [server for server in self.name_servers if server not in self._silent]
        complete = [(server, self._knows_all[server]) for server in servers if self._is_complete(server)]
        others = [server for server in servers if not self._is_complete(server)]
        await asyncio.gather(
            self._try_silent(),
            self._register_at(others),
            *(self._register(server, link, body) for server, link in complete),
        )

    async def _try_silent(self) -> None:
        """Announce every topic to those that did not answer lately, and wait for them a moment only."""
        silent = [server for server in self.name_servers if server in self._silent]
        if not silent:
            return
        late = asyncio.create_task(self._register_at(silent))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        await asyncio.wait([late], timeout=LATE_SECONDS)

    async def _register_at(self, servers: Iterable[str]) -> None:
        linked = [(server, self._link(server)) for server in servers]
        links = await asyncio.gather(*(link for _server, link in linked))
        reached = [(server, link) for (server, _), link in zip(linked, links, strict=True) if link is not None]
        if not reached:
            return
        version, configs = self._topics.version, self._topics.all().values()
        # Of many topics it takes long: clients are answered meanwhile.
        is_long = len(configs) > TOPICS_ON_LOOP_MAX
        body = await asyncio.to_thread(self._body, configs, version) if is_long else self._body(configs, version)
        await asyncio.gather(*(self._register(server, link, body, is_all=True) for server, link in reached))

    def _is_complete(self, server: str) -> bool:
        link = self._knows_all.get(server)
        return link is not None and link.is_open

    async def unregister(self) -> None:
        """Leave the routes of every name server that answers; no longer than one of them may take."""
        for late in self._late:
            late.cancel()
        await asyncio.gather(*(self._unregister(server) for server in self.name_servers))

    async def _unregister(self, server: str) -> None:
        fields = self._fields()
        request = Command(RequestCode.UNREGISTER_BROKER, ext={name: fields[name] for name in _IDENTITY})
        try:
            async with asyncio.timeout(UNREGISTER_SECONDS):
                await self._connector.call(server, request, UNREGISTER_SECONDS)
        except (RemotingError, TimeoutError) as problem:
            reason = str(problem) or f"no answer within {UNREGISTER_SECONDS:g} s"
            log.info("event=unregister_failed name_server=%s reason=%r", server, reason)

    def _fields(self) -> dict[str, str]:
        settings = self._settings()
        return {
            "brokerName": settings.broker_name,
            "brokerAddr": self._address,
            "clusterName": settings.cluster_name,
            "haServerAddr": self._ha_address,
            "brokerId": str(self.broker_id),
            "compressed": "false",
            "bodyCrc32": "0",
        }

    def _body(self, configs: Iterable[TopicConfig], version: DataVersion) -> bytes:
        permission = self._settings().permission
        if permission & READ_WRITE != READ_WRITE:
            configs = [replace(config, perm=permission) for config in configs]
        return write_json(
            {
                "filterServerList": [],
                "topicConfigSerializeWrapper": {
                    "dataVersion": version.to_document(),
                    "topicConfigTable": {config.topic_name: topic_document(config) for config in configs},
                },
            }
        )

    async def _link(self, server: str) -> Link | None:
        try:
            return await self._connector.link(server)
        except RemotingError as problem:
            self._failed(server, problem)
            return None

    def _failed(self, server: str, problem: RemotingError) -> None:
        if server not in self._silent:
            log.warning("event=register_failed name_server=%s reason=%r", server, str(problem))
        self._silent.add(server)

    async def _register(self, server: str, link: Link, body: bytes, *, is_all: bool = False) -> None:
        request = Command(RequestCode.REGISTER_BROKER, ext=self._fields(), body=body)
        try:
            answer = await ask(link, request, self._settings().register_timeout_ms / 1000)
        except RemotingError as problem:
            self._failed(server, problem)
            return
        if answer.code != 0:
            log.warning("event=register_refused name_server=%s code=%d remark=%r", server, answer.code, answer.remark)
            self._silent.add(server)
            return
        if is_all:
            self._knows_all[server] = link
        if server in self._silent:
            self._silent.discard(server)
            log.info("event=registered name_server=%s", server)
        self._take_order_config(answer.body)
        fields = answer.ext or {}
        self._learned(fields.get("masterAddr"), fields.get("haServerAddr"))

    def _take_order_config(self, body: bytes) -> None:
        if not body:
            return
        try:
            table = parse_json(body).get("table")
        except (ValueError, AttributeError):
            return
        if isinstance(table, dict):
            self._topics.take_order_config({str(topic): str(queues) for topic, queues in table.items()})


_IDENTITY = ("brokerName", "brokerAddr", "clusterName", "brokerId")


def topic_document(config: TopicConfig) -> dict[str, Any]:
    """A topic as it stands in requests and answers."""
    return {
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic_name,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }
