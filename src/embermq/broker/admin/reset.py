"""Offsets that members of a group hold: set back through them (222, by 220), and asked of them (223, by 221).

The offsets in the broker's table change when the members commit: a member that is notified drops what it has, takes the
new offsets and commits those. A member that speaks C++ gets the queues as a list, every other one as Java's map.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from embermq.broker.admin.shapes import answered, failed, queue_key
from embermq.broker.answers import Later
from embermq.broker.members import Clients, Member
from embermq.broker.tables import ConsumerOffsets, TopicTable
from embermq.errors import RemotingError
from embermq.remoting import (
    I64,
    Call,
    Command,
    Reply,
    RequestCode,
    ResponseCode,
    Row,
    ask,
    key_object,
    parse_json,
    write_json,
    write_object_keyed,
)
from embermq.settings import BrokerSettings
from embermq.store import MessageStore

# From this protocol version on (3.0.7) a consumer knows the two requests.
VERSION_MIN = 28
STATUS_BYTES_MAX = 1 << 20
STATUS_SECONDS = 5.0
LATEST = -1


class ResetHeader(msgspec.Struct, rename="camel"):
    topic: str
    group: str
    timestamp: I64
    is_force: bool = False


class StatusHeader(msgspec.Struct, rename="camel"):
    topic: str
    group: str
    client_addr: str | None = None


class ResetAdmin:
    """Answers about offsets that clients hold."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        later: Later,
    ) -> None:
        self._settings, self._store, self._topics = settings, store, topics
        self._offsets, self._clients, self._later = offsets, clients, later

    def rows(self) -> list[Row]:
        return [
            self._later.row(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetHeader,
                self.reset,
                note="the form of the body is chosen for each member by its language",
            ),
            self._later.row(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, StatusHeader, self.status),
        ]

    # -- setting back ----------------------------------------------------------------------------------------

    async def reset(self, call: Call[ResetHeader]) -> Reply:
        header = call.header
        config = self._topics.find(header.topic)
        if config is None:
            return failed(f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}")
        committed = self._offsets.of_group(header.group, header.topic)
        if any(committed.get(queue_id, -1) < 0 for queue_id in range(config.write_queue_nums)):
            return failed(f"THe consumer group <{header.group}> not exist")
        targets = await asyncio.to_thread(self._targets, header, config.write_queue_nums, dict(committed))
        group = self._clients.consumers(header.group)
        if group is None:
            return failed(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic}"
                f" Timestamp: {header.timestamp}",
                ResponseCode.CONSUMER_NOT_ONLINE,
            )
        members = list(group.members.values())
        if (old := next((one for one in members if one.version < VERSION_MIN), None)) is not None:
            return failed(f"the client {old.client_id} does not support this feature. version={old.version}")
        for member in members:
            member.peer.tell(self._reset_request(header, targets, is_list=member.language == "CPP"))
        return answered({"offsetTable": write_object_keyed(self._keyed(header.topic, targets))})

    def _targets(self, header: ResetHeader, queues: int, committed: dict[int, int]) -> dict[int, int]:
        """Where each queue goes: without force, backwards only."""
        targets: dict[int, int] = {}
        for queue_id in range(queues):
            if header.timestamp == LATEST:
                wanted = self._store.max_offset(header.topic, queue_id)
            else:
                wanted = self._store.offset_at(header.topic, queue_id, header.timestamp)
            wanted = max(0, wanted)
            targets[queue_id] = wanted if header.is_force else min(wanted, committed[queue_id])
        return targets

    def _reset_request(self, header: ResetHeader, targets: dict[int, int], *, is_list: bool) -> Command:
        keyed = list(self._keyed(header.topic, targets))
        table: Any = [key | {"offset": offset} for key, offset in keyed] if is_list else write_object_keyed(keyed)
        fields = {
            "topic": header.topic,
            "group": header.group,
            "timestamp": str(header.timestamp),
            "isForce": "false",  # As RocketMQ has it: members take the offsets as they are.
        }
        return Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=fields, body=write_json({"offsetTable": table}))

    def _keyed(self, topic: str, targets: dict[int, int]) -> Iterable[tuple[dict[str, Any], int]]:
        name = self._settings().broker_name
        return ((queue_key(name, topic, queue_id), offset) for queue_id, offset in targets.items())

    # -- asking ----------------------------------------------------------------------------------------------

    async def status(self, call: Call[StatusHeader]) -> Reply:
        header = call.header
        group = self._clients.consumers(header.group)
        if group is None:
            return failed(f"No Any Consumer online in the consumer group: [{header.group}]")
        members = [one for one in group.members.values() if header.client_addr in (None, "", one.client_id)]
        if (old := next((one for one in members if one.version < VERSION_MIN), None)) is not None:
            return failed(f"the client {old.client_id} does not support this feature. version={old.version}")
        answers = await asyncio.gather(*(self._ask(member, header) for member in members))
        tables = {member.client_id: table for member, table in zip(members, answers, strict=True) if table is not None}
        return answered({"consumerTable": tables, "messageQueueTable": {}})

    async def _ask(self, member: Member, header: StatusHeader) -> msgspec.Raw | None:
        """A member's offsets; None from one that does not answer, as C++ clients do not."""
        fields = {"topic": header.topic, "group": header.group}
        try:
            answer = await ask(
                member.peer, Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext=fields), STATUS_SECONDS
            )
            if answer.code != ResponseCode.SUCCESS:
                return None
            table = parse_json(answer.body, STATUS_BYTES_MAX).get("messageQueueTable") or {}
            return write_object_keyed((key_object(key), at) for key, at in table.items())
        except (RemotingError, ValueError, AttributeError):
            return None
