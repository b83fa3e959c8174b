"""The first act: a broker, two producers and a consumer group of two, each a process, over sockets.

Somewhere in the middle the broker is killed with SIGKILL and started again at the same address. The act is over when
every order is acknowledged and consumed. By the second it notes how many were, and how far consumers are behind.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.live import Live
from rich.text import Text

from embermq.cli.demo.children import BrokerChild, Child
from embermq.cli.demo.orders import TOPICS
from embermq.cli.output import Output
from embermq.errors import EmberError
from embermq.remoting import Command, Connector, RequestCode

PRODUCERS, CONSUMERS = 2, 2
# Where in the stream the broker is killed: somewhere between these shares of it.
KILL_EARLIEST, KILL_LATEST = 0.4, 0.6
DEAD_SECONDS = 0.5
LOOK_SECONDS, SECOND = 0.05, 1.0
SILENCE_SECONDS_MAX = 120.0


class Acknowledged(NamedTuple):
    """The answer that a producer got for one message."""

    message_id: str
    queue_offset: int


class Consumed(NamedTuple):
    """A message that the group has handled."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int


class Second(NamedTuple):
    """One line of the timeline; rates are by the second."""

    at: float
    sent: float
    consumed: float
    lag: int
    event: str


@dataclass(slots=True)
class Traffic:
    """What happened. Children's threads add, each to its own parts."""

    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)
    consumed: list[Consumed] = field(default_factory=list)
    consumed_numbers: set[int] = field(default_factory=set)
    timeline: list[Second] = field(default_factory=list)
    acknowledged_at_kill: int = 0
    killed_pid: int = 0
    back_seconds: float = 0.0  # from the kill to the first acknowledgement after it
    recovery: dict[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def take_acknowledged(self, line: str) -> None:
        number, message_id, queue_offset = line.split()
        self.acknowledged[int(number)] = Acknowledged(message_id, int(queue_offset))

    def take_consumed(self, line: str) -> None:
        number, topic, queue_id, queue_offset = line.split()
        self.consumed.append(Consumed(int(number), topic, int(queue_id), int(queue_offset)))
        self.consumed_numbers.add(int(number))

    @property
    def lag(self) -> int:
        return max(0, len(self.acknowledged) - len(self.consumed_numbers))


def run_traffic(output: Output, place: Path, count: int, seconds: float) -> Traffic:
    """All of the act; the store is in `place` afterwards, closed.

    EmberError if a process ends by itself, or nothing happens for minutes.
    """
    traffic = Traffic()
    with ExitStack() as stack:
        with output.working("Starting five processes"):
            broker = BrokerChild(place / "store", place / "broker.log")
            stack.callback(lambda: broker.stop())
            _Watch(traffic).until(broker.is_ready)
            asyncio.run(_create_topics(broker.address))
            children = [stack.enter_context(child) for child in _clients(broker, place, traffic, count, seconds)]
            _Watch(traffic, children).until(lambda: all(child.has_started for child in children))
            traffic.timeline.clear()
        for child in children:
            child.go()
        with _shown(output) as show:
            watch = _Watch(traffic, children, show)
            enough = count * random.uniform(KILL_EARLIEST, KILL_LATEST)
            watch.until(lambda: len(traffic.acknowledged) >= enough)
            broker.kill()
            killed, killed_at = broker, time.monotonic()
            traffic.killed_pid, traffic.acknowledged_at_kill = broker.pid, len(traffic.acknowledged)
            watch.note(f"SIGKILL to the broker, process {broker.pid}")
            watch.until(lambda: time.monotonic() >= killed_at + DEAD_SECONDS)
            broker = BrokerChild(place / "store", place / "broker.log", killed.address, killed.name_server)
            _wait_until_back(broker, traffic, watch, killed_at, count)
            watch.until(lambda: len(traffic.acknowledged) >= count and len(traffic.consumed_numbers) >= count)
            watch.note("everything is acknowledged and consumed")
            traffic.seconds = watch.seconds
    return traffic


def _wait_until_back(broker: BrokerChild, traffic: Traffic, watch: "_Watch", killed_at: float, count: int) -> None:
    """Until it acknowledges something, if there is something left."""
    watch.until(broker.is_ready)
    traffic.recovery = broker.ready["recovery"]
    watch.until(lambda: len(traffic.acknowledged) > min(traffic.acknowledged_at_kill, count - 1))
    traffic.back_seconds = time.monotonic() - killed_at
    watch.note(f"the broker is back; {traffic.back_seconds:.1f} s after the kill it acknowledges again")


def _clients(broker: BrokerChild, place: Path, traffic: Traffic, count: int, seconds: float) -> Iterator[Child]:
    """Consumers begin at once, producers with `go`."""
    for _ in range(CONSUMERS):
        arguments = [broker.name_server]
        yield Child("embermq.cli.demo.consumer", arguments, traffic.take_consumed, place / "consumer.log")
    for part in range(PRODUCERS):
        arguments = [broker.name_server, str(count), str(part), str(PRODUCERS), str(seconds)]
        yield Child("embermq.cli.demo.producer", arguments, traffic.take_acknowledged, place / "producer.log")


async def _create_topics(address: str) -> None:
    connector = Connector()
    try:
        for topic, queues in TOPICS.items():
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields)
            answer = await connector.call(address, request, SILENCE_SECONDS_MAX)
            if answer.code:
                raise EmberError(f"the broker at {address} did not make the topic {topic}: {answer.remark}")
    finally:
        await connector.close()


class _Watch:
    """Looks at the traffic, and writes its timeline."""

    def __init__(
        self, traffic: Traffic, children: Sequence[Child] = (), show: Callable[[Second], None] = lambda line: None
    ) -> None:
        self._traffic, self._children, self._show = traffic, children, show
        self._began = self._line_at = self._moved_at = time.monotonic()
        self._sent = self._consumed = 0
        self._events: list[str] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def note(self, event: str) -> None:
        """Write a line with this event now."""
        self._events.append(event)
        self._line(time.monotonic())

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            for child in self._children:
                child.check_alive()
            now = time.monotonic()
            if now - self._moved_at > SILENCE_SECONDS_MAX:
                raise EmberError(f"no order was acknowledged or consumed for {SILENCE_SECONDS_MAX:.0f} s")
            if now - self._line_at >= SECOND:
                self._line(now)
            time.sleep(LOOK_SECONDS)

    def _line(self, now: float) -> None:
        sent, consumed = len(self._traffic.acknowledged), len(self._traffic.consumed_numbers)
        passed = max(now - self._line_at, 0.001)
        event, self._events = "; ".join(self._events), []
        line = Second(
            now - self._began,
            (sent - self._sent) / passed,
            (consumed - self._consumed) / passed,
            self._traffic.lag,
            event,
        )
        if (sent, consumed) != (self._sent, self._consumed):
            self._moved_at = now
        self._line_at, self._sent, self._consumed = now, sent, consumed
        self._traffic.timeline.append(line)
        self._show(line)


@contextmanager
def _shown(output: Output) -> Iterator[Callable[[Second], None]]:
    """Lines as they come, each under the one before it; on a terminal the last one is at work until the next."""
    output.say("      time    sent/s  consumed/s     lag")
    if not output.notes.is_terminal:
        yield lambda line: output.say(_text(line))
        return
    with Live(Text(""), console=output.notes, transient=True) as live:

        def show(line: Second) -> None:
            live.console.print(_text(line), style="bold" if line.event else "", highlight=False, markup=False)

        yield show


def _text(line: Second) -> str:
    text = f"  {line.at:6.1f} s {line.sent:9,.0f} {line.consumed:11,.0f} {line.lag:7,}"
    return f"{text}   {line.event}" if line.event else text


def first_offsets(consumed: Sequence[Consumed]) -> dict[tuple[str, int], list[int]]:
    """By queue: the offsets in the order they were first handled."""
    offsets: dict[tuple[str, int], dict[int, None]] = defaultdict(dict)
    for one in consumed:
        offsets[one.topic, one.queue_id].setdefault(one.queue_offset)
    return {queue: list(found) for queue, found in offsets.items()}
