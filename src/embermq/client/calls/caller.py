"""Caller: every request of a client goes through here: signed, sent, and its failure reported with broker and topic.

    answer = await caller.call(to, Command(...), 3.0, topic="orders")      # BrokerUnreachable when there is none
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, RequestCode.GET_MAX_OFFSET, answer, topic="orders")

The loop's thread only.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from embermq.client.credentials import Credentials, sign
from embermq.errors import AnswerInvalid, BrokerUnreachable, ConnectFailed, HeaderInvalid, RemotingError
from embermq.remoting import Command, Connector, decode_header, request_name

H = TypeVar("H", bound=msgspec.Struct)
V = TypeVar("V")


class BrokerAddress(NamedTuple):
    """A broker by name, and where it is asked. A name server has no name."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})" if self.name else self.address


class Caller:
    """Requests to brokers and name servers on kept connections."""

    def __init__(self, connector: Connector, credentials: Credentials | None = None) -> None:
        self.connector, self._credentials = connector, credentials

    def sign(self, request: Command) -> None:
        """Add the account's signature, if there is an account. The last thing before a request is sent."""
        if self._credentials is not None:
            sign(request, self._credentials)

    async def call(
        self, to: BrokerAddress, request: Command, seconds: float, *, topic: str = "", group: str = ""
    ) -> Command:
        """The answer, whatever its code; BrokerUnreachable when there is none within `seconds`."""
        self.sign(request)
        is_sent = False
        try:
            if self.connector.find(to.address) is None:
                async with asyncio.timeout(seconds):
                    await self.connector.link(to.address)
            is_sent = True
            return await self.connector.call(to.address, request, seconds)
        except TimeoutError:
            reason = f"no connection within {seconds:g} s"
        except RemotingError as problem:
            reason, is_sent = str(problem), is_sent and not isinstance(problem, ConnectFailed)
        what = request_name(request.code)
        raise BrokerUnreachable(to.name, to.address, what, reason, topic=topic, group=group, is_sent=is_sent)

    async def tell(self, to: BrokerAddress, request: Command, *, topic: str = "", group: str = "") -> None:
        """Send a request that wants no answer; BrokerUnreachable when it cannot be sent."""
        self.sign(request)
        try:
            if await self.connector.tell(to.address, request):
                return
            reason = "it does not read what it was sent before"
        except RemotingError as problem:
            reason = str(problem)
        what = request_name(request.code)
        raise BrokerUnreachable(to.name, to.address, what, reason, topic=topic, group=group, is_sent=False)


def fields_of(to: BrokerAddress, code: int, answer: Command, kind: type[H]) -> H:
    """The header of an answer; AnswerInvalid when a field is missing."""
    try:
        return decode_header(kind, answer.ext)
    except HeaderInvalid as problem:
        raise AnswerInvalid(request_name(code), str(to), str(problem)) from None


def body_of(to: BrokerAddress, code: int, answer: Command, parse: Callable[[bytes], V]) -> V:
    """The body of an answer; AnswerInvalid when `parse` raises ValueError."""
    try:
        return parse(answer.body)
    except ValueError as problem:
        raise AnswerInvalid(request_name(code), str(to), str(problem)) from None
