"""Which queue the next message goes to: one after another, another broker after a failure. Pure; the time is given.

With latency faults, a broker that answered slowly or not at all is left alone for a while, the longer the slower it
was; while none is left, one of the better half is taken.
"""

import random
from collections.abc import Callable, Sequence

from embermq.client.message_queue import MessageQueue
from embermq.errors import ClientError, OptionInvalid
from embermq.format.java import string_hash
from embermq.model.message import Message

QueueBy = str | bytes | int | Callable[[Sequence[MessageQueue], Message], MessageQueue | int]

# A send that took this many ms keeps its broker out for so many seconds.
_PENALTIES = ((15_000, 600.0), (3000, 180.0), (2000, 120.0), (1000, 60.0), (550, 30.0))
FAILED_MS = 30_000


class LatencyFaults:
    """How brokers did lately."""

    def __init__(self) -> None:
        self._brokers: dict[str, tuple[float, float]] = {}  # until when it is left alone, and the last latency
        self._turn = random.randrange(1 << 16)

    def sent(self, broker: str, latency_ms: float, now: float) -> None:
        """A send to a broker ended; FAILED_MS if it failed."""
        penalty = next((seconds for limit, seconds in _PENALTIES if latency_ms >= limit), 0.0)
        self._brokers[broker] = (now + penalty, latency_ms)

    def is_available(self, broker: str, now: float) -> bool:
        known = self._brokers.get(broker)
        return known is None or known[0] <= now

    def best_of_the_rest(self, brokers: Sequence[str]) -> str:
        """A broker of the better half, each in its turn."""
        ranked = sorted(brokers, key=lambda broker: self._brokers.get(broker, (0.0, 0.0)))
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]


class QueueChoice:
    """The turns of all topics."""

    def __init__(self, faults: LatencyFaults | None = None) -> None:
        self.faults = faults
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, queues: Sequence[MessageQueue], avoided: str | None, now: float) -> MessageQueue:
        """The queue whose turn it is, at another broker than `avoided` if there is one."""
        assert queues
        turn = self._turns.get(topic)
        if turn is None:
            turn = random.randrange(1 << 16)
        self._turns[topic] = turn + 1
        count = len(queues)
        if self.faults is not None:
            return self._choose_healthy(queues, turn, avoided, now, self.faults)
        if avoided is not None:
            for step in range(count):
                queue = queues[(turn + step) % count]
                if queue.broker != avoided:
                    return queue
        return queues[turn % count]

    def _choose_healthy(
        self, queues: Sequence[MessageQueue], turn: int, avoided: str | None, now: float, faults: LatencyFaults
    ) -> MessageQueue:
        in_turn = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
        healthy = [queue for queue in in_turn if faults.is_available(queue.broker, now)]
        others = [queue for queue in healthy if queue.broker != avoided]
        if others or healthy:
            return (others or healthy)[0]
        broker = faults.best_of_the_rest(sorted({queue.broker for queue in queues}))
        return next(queue for queue in in_turn if queue.broker == broker)


def queue_for(by: QueueBy, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of a key, the same in every process and in Java's clients; or what a function chose."""
    assert queues
    if callable(by):
        chosen = _chosen(by, queues, message)
        return queues[chosen % len(queues)] if isinstance(chosen, int) else chosen
    if isinstance(by, int):
        return queues[abs(by) % len(queues)]
    text = by if isinstance(by, str) else by.decode("latin-1")
    return queues[abs(string_hash(text)) % len(queues)]


def _chosen(
    by: Callable[[Sequence[MessageQueue], Message], MessageQueue | int],
    queues: Sequence[MessageQueue],
    message: Message,
) -> MessageQueue | int:
    try:
        chosen = by(queues, message)
    except Exception as problem:
        raise ClientError(f"topic {message.topic!r}: queue_by raised {problem!r}") from problem
    if isinstance(chosen, int) or chosen in queues:
        return chosen
    raise OptionInvalid("queue_by", f"{chosen!r} is none of the queues of topic {message.topic!r}")
