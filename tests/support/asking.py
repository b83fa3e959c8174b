"""Requests to a broker from a test that does not run on a loop."""

import asyncio
from typing import Any, Self

from embermq.remoting import Command, Connector, RequestCode, RequestTable, write_json
from embermq.testing.loop_thread import LoopThread
from tests.support.brokers import SECONDS, as_texts, pull_fields, send_fields


class Asker:
    """One connection to each address that is asked."""

    def __init__(self, address: str, table: RequestTable | None = None) -> None:
        self.address = address
        self._loop = LoopThread("asker")
        self._client = self._loop.call(lambda: Connector(table))

    def call(
        self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", *, seconds: float = SECONDS
    ) -> Command:
        request = Command(code, ext=as_texts(ext), body=body)
        return self._loop.run(self._client.call(self.address, request, seconds))

    def call_later(self, code: int, ext: dict[str, Any]) -> "asyncio.Future[Command]":
        """A request whose answer is not waited for: `result` of what this gives waits."""
        request = self._client.call(self.address, Command(code, ext=as_texts(ext)), SECONDS)
        return asyncio.run_coroutine_threadsafe(request, self._loop.loop)  # type: ignore[return-value]

    def send(self, topic: str, body: bytes = b"x", properties: str = "", **more: Any) -> Command:
        seconds = more.pop("seconds", SECONDS)
        fields = send_fields(topic, properties) | more
        return self.call(RequestCode.SEND_MESSAGE_V2, fields, body, seconds=seconds)

    def pull(self, topic: str, offset: int, **more: Any) -> Command:
        return self.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset) | more)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        assert self.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

    def be_producer(self, group: str) -> None:
        body = {"clientID": "asker", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
        assert self.call(RequestCode.HEART_BEAT, None, write_json(body)).code == 0

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
