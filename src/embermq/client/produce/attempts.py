"""Attempts: the tries of one message, as a state machine without a socket or a clock.

    failed     what to do after an error: another Try, or the error for the caller
    Try        send to this queue, wait so long for the answer (after a pause)

    error                                        queue free          queue fixed (queue_by)
    not sent (no connection)                     another broker      the same broker, after a pause
    sent, no answer                              another broker      the end: it may be stored, a second would follow it
    refused: 1, 14, 16, 17, 204, 205, 1500       another broker      the end
    refused: anything else                       the end             the end

At most `retries` further tries, all within the time of the message. A message may be stored twice: when a broker stored
it and the answer was lost.
"""

from collections.abc import Callable
from typing import NamedTuple

from embermq.client.message_queue import MessageQueue
from embermq.errors import BrokerUnreachable, ClientError, RequestRefused, SendFailed

RETRIED_CODES = frozenset((1, 14, 16, 17, 204, 205, 1500))
PAUSE_SECONDS = 0.05

Choose = Callable[[str | None, float], MessageQueue]


class Try(NamedTuple):
    """Send to a queue now, or after a pause."""

    queue: MessageQueue
    seconds: float  # for the answer
    pause: float = 0.0


class Attempts:
    """The tries of one message."""

    __slots__ = ("_choose", "_deadline", "_errors", "_is_fixed", "_retries", "_seconds", "_topic", "last")

    def __init__(
        self,
        topic: str,
        first: MessageQueue,
        choose: Choose,
        *,
        is_fixed: bool,
        retries: int,
        deadline: float,
        seconds: float,
    ) -> None:
        """`first` is the queue that was tried first; `deadline` and `seconds` are those of the message."""
        self._topic, self._choose, self._is_fixed = topic, choose, is_fixed
        self._retries, self._deadline, self._seconds = retries, deadline, seconds
        self._errors: list[ClientError] = []
        self.last = first

    @property
    def count(self) -> int:
        """Tries so far."""
        return len(self._errors) + 1

    def failed(self, error: ClientError, now: float) -> Try | ClientError:
        """What comes after an error."""
        self._errors.append(error)
        if not self._may_try_again(error):
            return error if len(self._errors) == 1 else self._given_up("no further try would help")
        if self._retries <= 0:
            return error if len(self._errors) == 1 else self._given_up(f"{len(self._errors)} tries failed")
        self._retries -= 1
        before = self.last.broker
        queue = self.last if self._is_fixed else self._choose(before, now)
        pause = PAUSE_SECONDS * 4 ** (len(self._errors) - 1) if queue.broker == before else 0.0
        if now + pause >= self._deadline:
            return self._given_up(f"its {self._seconds:g} s are over")
        self.last = queue
        return Try(queue, self._deadline - now - pause, pause)

    def _may_try_again(self, error: ClientError) -> bool:
        if isinstance(error, BrokerUnreachable):
            return not self._is_fixed or not error.is_sent
        return not self._is_fixed and isinstance(error, RequestRefused) and error.code in RETRIED_CODES

    def _given_up(self, reason: str) -> SendFailed:
        failed = SendFailed(self._topic, self._errors, reason)
        failed.__cause__ = self._errors[-1]
        return failed
