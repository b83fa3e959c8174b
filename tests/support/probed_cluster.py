"""A running broker with its name server, and clients that send raw requests to it: for tests of the network commands.

with ProbedCluster(tmp_path) as cluster:
    cluster.send("orders", b"x", keys="k")     # the id that the broker gave
    cluster.join("billing", "orders")          # a member that answers what it is asked
    cluster.bury("billing", message_id)        # among the dead letters
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from embermq.model.ids import parse_message_id
from embermq.model.names import dead_letter_topic
from embermq.remoting import Call, Command, Connector, NoHeader, Reply, RequestCode, RequestTable, Row, write_json
from tests.support.broker_process import BrokerProcess
from tests.support.brokers import consumer, send_fields, subscription
from tests.support.waiting import wait_until

T = TypeVar("T")
SECONDS = 60.0
INFO = (
    b'{"properties":{"PROP_CONSUMER_START_TIMESTAMP":"1","PROP_CLIENT_VERSION":"V4_9_7"},"statusTable":{"orders":'
    b'{"consumeFailedMsgs":1,"consumeFailedTPS":0.5,"consumeOKTPS":2.5,"consumeRT":3.0,"pullRT":1.0,"pullTPS":4.0}},'
    b'"subscriptionSet":[],"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:{"cachedMsgCount":2,'
    b'"cachedMsgSizeInMiB":1,"commitOffset":7,"droped":false,"lastConsumeTimestamp":5,"lastPullTimestamp":4,'
    b'"locked":true}}}'
)


class Member:
    """A connection of its own, in a group; it remembers the resets that it was sent."""

    def __init__(self, cluster: "ProbedCluster", client_id: str) -> None:
        self._cluster, self.client_id = cluster, client_id
        self.resets: list[bytes] = []
        self._connector: Connector | None = None

    async def start(self, group: str, topics: Sequence[str], producer: str) -> None:
        rows = [
            Row(RequestCode.GET_CONSUMER_RUNNING_INFO, NoHeader, lambda _call: Reply(body=INFO)),
            Row(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, NoHeader, self._reset),
            Row(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NoHeader, lambda _call: Reply()),
        ]
        self._connector = Connector(RequestTable(rows))
        beat = {
            "clientID": self.client_id,
            "consumerDataSet": [consumer(group, *(subscription(topic) for topic in topics))],
            "producerDataSet": [{"groupName": producer}],
        }
        request = Command(RequestCode.HEART_BEAT, body=write_json(beat))
        answer = await self._connector.call(self._cluster.address, request, SECONDS)
        assert answer.code == 0

    def _reset(self, call: Call[NoHeader]) -> Reply:
        self.resets.append(call.body)
        return Reply()

    async def leave(self) -> None:
        assert self._connector is not None
        await self._connector.close()


class ProbedCluster:
    """One broker, called broker-a."""

    def __init__(self, place: Path, *arguments: str, name_server: str = "127.0.0.1:0") -> None:
        self.broker = BrokerProcess(place, "--set", "brokerName=broker-a", *arguments, name_server=name_server)
        self.address, self.name_server = self.broker.address, self.broker.name_server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="probed-cluster", daemon=True)
        self._thread.start()
        self._connector = self._run(_connector())
        self._members: list[Member] = []

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        fields = None if ext is None else {name: _text(value) for name, value in ext.items()}
        return self._run(self._connector.call(self.address, Command(code, ext=fields, body=body), SECONDS))

    def call_name_server(self, code: int, ext: dict[str, Any]) -> Command:
        fields = {name: _text(value) for name, value in ext.items()}
        return self._run(self._connector.call(self.name_server, Command(code, ext=fields), SECONDS))

    def send(self, topic: str, body: bytes = b"x", *, queue_id: int = 0, **properties: str) -> str:
        """Store a message; the id that the broker gave it."""
        text = "\x02".join(f"{name.upper()}\x01{value}" for name, value in properties.items())
        answer = self.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, text) | {"e": queue_id}, body)
        assert answer.code == 0, answer
        assert answer.ext is not None
        return answer.ext["msgId"]

    def bury(self, group: str, message_id: str) -> None:
        """Have a group give up on a message."""
        offset = parse_message_id(message_id).physical_offset
        fields = {"offset": offset, "group": group, "delayLevel": -1}
        assert self.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
        wait_until(lambda: self._has_route(dead_letter_topic(group)))  # The broker registers a new topic by the way.

    def _has_route(self, topic: str) -> bool:
        return self.call_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        assert self.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

    def dispatched(self, topic: str, count: int, queue_id: int = 0) -> None:
        """Wait until a queue has so many messages that can be read."""
        fields = {"topic": topic, "queueId": queue_id}

        def there() -> bool:
            ext = self.call(RequestCode.GET_MAX_OFFSET, fields).ext or {}
            return int(ext["offset"]) >= count

        wait_until(there)

    def dispatched_somewhere(self, topic: str, count: int, queues: int = 8) -> None:
        """The same for all queues together."""

        def there() -> bool:
            answers = [
                self.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}) for queue in range(queues)
            ]
            return sum(int((one.ext or {})["offset"]) for one in answers) >= count

        wait_until(there)

    def join(self, group: str, *topics: str, client_id: str = "reader-1", producer: str = "writers") -> Member:
        """A member of a group, which is a producer too."""
        member = Member(self, client_id)
        self._run(member.start(group, topics, producer))
        self._members.append(member)
        return member

    def part(self, member: Member) -> None:
        self._members.remove(member)
        self._run(member.leave())

    def stop(self) -> None:
        for member in list(self._members):
            self.part(member)
        self._run(self._connector.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.broker.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def _connector() -> Connector:
    return Connector()


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
