"""Questions of an administrator that one client answers (307, 309). The loop waits for the client, not the broker."""

import asyncio

import msgspec

from embermq.broker.admin.shapes import failed
from embermq.broker.answers import Later
from embermq.broker.members import Clients
from embermq.errors import CallTimeout, MessageIdInvalid, RemotingError
from embermq.remoting import Call, Command, Reply, RequestCode, ResponseCode, Row, ask
from embermq.store import MessageStore

# From this protocol version on (3.1.8) a consumer knows the two requests.
VERSION_MIN = 62
CLIENT_SECONDS = 10.0


class RunningInfoHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str


class ConsumeHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str = ""
    msg_id: str = ""


class RelayAdmin:
    """Passes requests on."""

    def __init__(self, store: MessageStore, clients: Clients, later: Later) -> None:
        self._store, self._clients, self._later = store, clients, later

    def rows(self) -> list[Row]:
        return [
            self._later.row(RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader, self.running_info),
            self._later.row(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeHeader, self.consume),
        ]

    async def running_info(self, call: Call[RunningInfoHeader]) -> Reply:
        return await self._pass_on(call.request, call.header.consumer_group, call.header.client_id, b"")

    async def consume(self, call: Call[ConsumeHeader]) -> Reply:
        header = call.header
        record = await asyncio.to_thread(self._record, header.msg_id)
        if record is None:
            return failed(f"no message of this broker has the id {header.msg_id!r}")
        return await self._pass_on(call.request, header.consumer_group, header.client_id, record)

    def _record(self, message_id: str) -> bytes | None:
        try:
            found = self._store.get(message_id)
        except MessageIdInvalid:
            return None
        return None if found is None else self._store.read_log(found.physical_offset, found.size)

    async def _pass_on(self, request: Command, group_name: str, client_id: str, body: bytes) -> Reply:
        group = self._clients.consumers(group_name)
        member = group.member(client_id) if group is not None else None
        if member is None:
            return failed(f"The Consumer <{group_name}> <{client_id}> not online")
        if member.version < VERSION_MIN:
            return failed(
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to"
                " V3_1_8_SNAPSHOT"
            )
        try:
            answer = await ask(member.peer, Command(request.code, ext=request.ext, body=body), CLIENT_SECONDS)
        except CallTimeout as problem:
            return failed(f"consumer <{group_name}> <{client_id}> Timeout: {problem}", ResponseCode.CONSUME_MSG_TIMEOUT)
        except RemotingError as problem:
            return failed(f"invoke consumer <{group_name}> <{client_id}> Exception: {problem}")
        return Reply(answer.code, answer.remark, answer.ext, answer.body)
