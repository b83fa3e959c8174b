"""Admin: the same questions for programs without a loop. Any thread, one call at a time.

Each method has the signature of its asynchronous twin and runs it on the background loop of the process (runtime.py).
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from ssl import SSLContext
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from embermq.client.admin import async_admin as for_asyncio
from embermq.client.admin.brokers import Brokers
from embermq.client.admin.dead_letters import EVERY_LETTER, Chosen, DeadLetters
from embermq.client.admin.groups import Groups
from embermq.client.admin.kv_configs import KvConfigs
from embermq.client.admin.messages import EVERYTHING, FoundMessage, Messages, Tail, WantedMessages
from embermq.client.admin.offsets import Offsets
from embermq.client.admin.rates import Rates
from embermq.client.admin.topics import Topics
from embermq.client.admin.traces import Traces
from embermq.client.credentials import Credentials
from embermq.client.message_queue import MessageQueue
from embermq.client.runtime import HeldRuntime

F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")


class RunCoroutine(Protocol):
    """Waits for a coroutine on the loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, R]) -> R: ...


def blocking(method: Callable[Concatenate[F, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """The method of a family as one that waits for its result."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> R:
        run: RunCoroutine = self.run
        return run(method(self.of, *args, **options))

    return call


@dataclass(frozen=True, slots=True)
class BlockingTopics:
    """Questions about topics."""

    run: RunCoroutine
    of: Topics

    names = blocking(Topics.names)
    listed = blocking(Topics.listed)
    route = blocking(Topics.route)
    clusters = blocking(Topics.clusters)
    groups = blocking(Topics.groups)
    status = blocking(Topics.status)
    reachable_status = blocking(Topics.reachable_status)
    configs = blocking(Topics.configs)
    of_broker = blocking(Topics.of_broker)
    put = blocking(Topics.put)
    delete = blocking(Topics.delete)


@dataclass(frozen=True, slots=True)
class BlockingGroups:
    """Questions about consumer groups."""

    run: RunCoroutine
    of: Groups

    names = blocking(Groups.names)
    require = blocking(Groups.require)
    summaries = blocking(Groups.summaries)
    configs = blocking(Groups.configs)
    put = blocking(Groups.put)
    delete = blocking(Groups.delete)
    connections = blocking(Groups.connections)
    progress = blocking(Groups.progress)
    reachable_progress = blocking(Groups.reachable_progress)
    of_all = blocking(Groups.of_all)
    running_info = blocking(Groups.running_info)
    producers = blocking(Groups.producers)


@dataclass(frozen=True, slots=True)
class BlockingOffsets:
    """Changes of offsets."""

    run: RunCoroutine
    of: Offsets

    reset = blocking(Offsets.reset)
    set = blocking(Offsets.set)
    clone = blocking(Offsets.clone)


@dataclass(frozen=True, slots=True)
class BlockingBrokers:
    """Questions about brokers."""

    run: RunCoroutine
    of: Brokers

    place = blocking(Brokers.place)
    places = blocking(Brokers.places)
    listed = blocking(Brokers.listed)
    status = blocking(Brokers.status)
    config = blocking(Brokers.config)
    change_config = blocking(Brokers.change_config)
    clean = blocking(Brokers.clean)
    set_writable = blocking(Brokers.set_writable)
    name_server_config = blocking(Brokers.name_server_config)
    change_name_server_config = blocking(Brokers.change_name_server_config)


@dataclass(frozen=True, slots=True)
class BlockingRates:
    """Questions about rates."""

    run: RunCoroutine
    of: Rates

    of_topic = blocking(Rates.of_topic)


@dataclass(frozen=True, slots=True)
class BlockingKvConfigs:
    """Questions about the key-value configuration."""

    run: RunCoroutine
    of: KvConfigs

    get = blocking(KvConfigs.get)
    of_namespace = blocking(KvConfigs.of_namespace)
    put = blocking(KvConfigs.put)
    delete = blocking(KvConfigs.delete)


@dataclass(frozen=True, slots=True)
class BlockingTail:
    """Queues that are followed; closed like a file."""

    run: RunCoroutine
    of: Tail

    next = blocking(Tail.next)
    close = blocking(Tail.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class BlockingMessages:
    """Questions for messages."""

    run: RunCoroutine
    of: Messages

    by_key = blocking(Messages.by_key)
    by_unique_id = blocking(Messages.by_unique_id)
    by_id = blocking(Messages.by_id)
    queues = blocking(Messages.queues)
    page = blocking(Messages.page)
    entries = blocking(Messages.entries)
    span = blocking(Messages.span)
    offset_at = blocking(Messages.offset_at)

    def tail(self, positions: Iterable[tuple[MessageQueue, int]], wanted: WantedMessages = EVERYTHING) -> BlockingTail:
        """The messages of queues from these offsets on, as they come."""
        return BlockingTail(self.run, self.of.tail(positions, wanted))


@dataclass(frozen=True, slots=True)
class BlockingTraces:
    """Questions about traces."""

    run: RunCoroutine
    of: Traces

    of_message = blocking(Traces.of_message)
    of_key = blocking(Traces.of_key)


@dataclass(frozen=True, slots=True)
class BlockingDeadLetters:
    """Questions about dead letters."""

    run: RunCoroutine
    of: DeadLetters

    found = blocking(DeadLetters.found)
    resend = blocking(DeadLetters.resend)

    def scan(self, group: str, chosen: Chosen = EVERY_LETTER) -> Iterator[FoundMessage]:
        """The dead letters of a group, one by one, each queue from its oldest on; only a page is in memory."""
        scanned = self.run(self.of.scan(group, chosen))
        while page := self.run(scanned.next()):
            yield from page


class Admin:
    """What an administrator asks of a cluster of EmberMQ or Apache RocketMQ.

    with Admin("127.0.0.1:9876") as admin:
        admin.topics.names()
        admin.groups.progress("billing").lag
    """

    def __init__(
        self,
        name_server: str | Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: SSLContext | bool = False,
    ) -> None:
        self._loop = HeldRuntime("the admin client", "is closed")
        self._async = asked = self._loop.start(_made(name_server, credentials, tls))
        self.topics = BlockingTopics(self._loop.run, asked.topics)
        self.groups = BlockingGroups(self._loop.run, asked.groups)
        self.rates = BlockingRates(self._loop.run, asked.rates)
        self.offsets = BlockingOffsets(self._loop.run, asked.offsets)
        self.brokers = BlockingBrokers(self._loop.run, asked.brokers)
        self.kv_configs = BlockingKvConfigs(self._loop.run, asked.kv_configs)
        self.messages = BlockingMessages(self._loop.run, asked.messages)
        self.traces = BlockingTraces(self._loop.run, asked.traces)
        self.dead_letters = BlockingDeadLetters(self._loop.run, asked.dead_letters)

    def close(self) -> None:
        self._loop.end(self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()


async def _made(
    name_server: str | Sequence[str], credentials: Credentials | None, tls: SSLContext | bool
) -> for_asyncio.Admin:
    return for_asyncio.Admin(name_server, credentials=credentials, tls=tls)
