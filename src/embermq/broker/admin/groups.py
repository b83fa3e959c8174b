"""Consumer groups by request (200, 201, 207, 352). The loop's thread; saving on another."""

import asyncio
from typing import Any

import msgspec

from embermq.broker.admin.shapes import QUEUES_MAX, answered, failed, slave_objection
from embermq.broker.answers import Later
from embermq.broker.statistics import Statistics
from embermq.broker.tables import ConsumerOffsets, GroupTable
from embermq.model.names import is_group_name
from embermq.remoting import Call, NoHeader, Reply, RequestCode, ResponseCode, Row, parse_json
from embermq.store import MessageStore
from embermq.store.tables import GroupConfig, decode_entry, encode_entry


class DeleteGroupHeader(msgspec.Struct, rename="camel"):
    group_name: str
    remove_offset: bool = False


class GroupNameHeader(msgspec.Struct):
    group: str


class GroupAdmin:
    """Answers about consumer groups."""

    def __init__(
        self, store: MessageStore, groups: GroupTable, offsets: ConsumerOffsets, statistics: Statistics, later: Later
    ) -> None:
        self._store, self._groups, self._offsets = store, groups, offsets
        self._statistics, self._later = statistics, later

    def rows(self) -> list[Row]:
        return [
            self._later.row(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoHeader, self.change),
            Row(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NoHeader, self.all, blocking=True),
            self._later.row(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader, self.delete),
            Row(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupNameHeader, self.one, note="of 5.x tools"),
        ]

    async def change(self, call: Call[NoHeader]) -> Reply:
        objection = slave_objection(self._store)
        if objection is not None:
            return objection
        try:
            config = decode_entry(GroupConfig, parse_json(call.body))
        except ValueError as problem:
            return failed(f"the group's configuration cannot be read: it {problem}")
        if (why := self._objection(config)) is not None:
            return failed(why)
        self._groups.put(config)
        await asyncio.to_thread(self._groups.save)
        return Reply()

    async def delete(self, call: Call[DeleteGroupHeader]) -> Reply:
        objection = slave_objection(self._store)
        if objection is not None:
            return objection
        header = call.header
        self._groups.remove(header.group_name)
        self._statistics.forget_group(header.group_name)
        if header.remove_offset:
            self._offsets.remove_group(header.group_name)
        await asyncio.to_thread(self._save_both)
        return Reply()

    def _save_both(self) -> None:
        self._groups.save()
        self._offsets.save()

    def all(self, _call: Call[NoHeader]) -> Reply:
        return Reply(body=self._groups.document().encode())

    def one(self, call: Call[GroupNameHeader]) -> Reply:
        config = self._groups.find(call.header.group)
        if config is None:
            return failed(
                f"subscription group[{call.header.group}] not exist", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        return answered(group_document(config))

    def _objection(self, config: GroupConfig) -> str | None:
        if not is_group_name(config.group_name):
            return "the group's configuration has no usable groupName"
        if config.retry_queue_nums > QUEUES_MAX:
            return f"group {config.group_name}: {config.retry_queue_nums} retry queues; {QUEUES_MAX} are possible"
        if self._groups.known(config.group_name) is None and not self._groups.has_room:
            return "there are too many groups already (emberMaxNames)"
        return None


def group_document(config: GroupConfig) -> dict[str, Any]:
    return encode_entry(config)
