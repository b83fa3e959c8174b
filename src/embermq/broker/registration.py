"""Registration with name servers: all topics at the start and every half minute, one topic when it changes.

Each name server is asked on its own; one that cannot be reached does not hold up the others, and is tried again at the
next turn. On the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from embermq.broker.topics import READ_WRITE, Topics
from embermq.errors import RemotingError
from embermq.remoting import Command, Connector, RequestCode, parse_json, write_json
from embermq.settings import BrokerSettings
from embermq.store.tables import DataVersion, TopicConfig

log = logging.getLogger(__name__)


class Registration:
    """One broker at its name servers."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        topics: Topics,
        connector: Connector,
        address: str,
        ha_address: str,
        broker_id: int,
    ) -> None:
        self._settings, self._topics, self._connector = settings, topics, connector
        self._address, self._ha_address, self._broker_id = address, ha_address, broker_id
        self._silent: set[str] = set()  # name servers that did not answer at the last turn

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._settings().name_servers

    @property
    def unreachable(self) -> frozenset[str]:
        return frozenset(self._silent)

    async def register_all(self) -> None:
        """Announce every topic to every name server."""
        body = self._body(self._topics.all().values(), self._topics.version)
        await asyncio.gather(*(self._register(server, body) for server in self.name_servers))

    async def register_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Announce some topics only, under the new version of the table."""
        body = self._body(configs, self._topics.version)
        await asyncio.gather(*(self._register(server, body) for server in self.name_servers))

    async def unregister(self) -> None:
        fields = self._fields()
        request = Command(RequestCode.UNREGISTER_BROKER, ext={name: fields[name] for name in _IDENTITY})
        for server in self.name_servers:
            try:
                await self._connector.call(server, _copy(request), 3.0)
            except RemotingError as problem:
                log.info("event=unregister_failed name_server=%s reason=%r", server, str(problem))

    def _fields(self) -> dict[str, str]:
        settings = self._settings()
        return {
            "brokerName": settings.broker_name,
            "brokerAddr": self._address,
            "clusterName": settings.cluster_name,
            "haServerAddr": self._ha_address,
            "brokerId": str(self._broker_id),
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

    async def _register(self, server: str, body: bytes) -> None:
        request = Command(RequestCode.REGISTER_BROKER, ext=self._fields(), body=body)
        try:
            answer = await self._connector.call(server, request, self._settings().register_timeout_ms / 1000)
        except RemotingError as problem:
            if server not in self._silent:
                log.warning("event=register_failed name_server=%s reason=%r", server, str(problem))
            self._silent.add(server)
            return
        if answer.code != 0:
            log.warning("event=register_refused name_server=%s code=%d remark=%r", server, answer.code, answer.remark)
            self._silent.add(server)
            return
        if server in self._silent:
            self._silent.discard(server)
            log.info("event=registered name_server=%s", server)
        self._take_order_config(answer.body)

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


def _copy(request: Command) -> Command:
    return Command(request.code, ext=request.ext, body=request.body)
