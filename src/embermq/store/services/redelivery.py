"""From parked messages to messages in their own topics: what delay levels and delivery times have in common.

A run of parked messages is appended together, with one turn at the put lock. The delivered record keeps the parked
one's properties byte for byte, DELAY, REAL_TOPIC, REAL_QID, TIMER_OUT_MS and WAIT included, as RocketMQ's records do;
the append must therefore be one that does not park again.

Many are appended by kernels (store/append/parked.py), which take ordinary records only; the others, and few, become
messages first.

No state but counters; one thread, the one that delivers.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from embermq.columns import N_PLACED_COLUMNS, P_SIZE, Rows
from embermq.errors import AppendRefused, MessageRejected
from embermq.format.frame import TOPIC_BYTES_MAX
from embermq.model.message import Message, Receipt, StoredMessage
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, property_value
from embermq.store.append.parked import AppendedAgain

log = logging.getLogger(__name__)

# Parked messages that are appended together.
RUN_MESSAGES_MAX = 256
_RUN_BYTES_MAX = 256 << 10
# Where kernels are used, and one is not for them: the next ones may be.
_ODD_RUN_MAX = 16
# Parked messages that are appended together by kernels.
STORED_RUN_MAX = 4096
_STORED_RUN_BYTES_MAX = 1 << 20
_NO_PLACES: Rows = np.empty((0, N_PLACED_COLUMNS), np.int64)
_QUEUE_ID_MAX = 2**31 - 1
_REAL_TOPIC, _REAL_QUEUE_ID = REAL_TOPIC.encode(), REAL_QUEUE_ID.encode()

AppendTogether = Callable[[Sequence[Message]], Sequence[Receipt]]
AppendParked = Callable[
    [str, int, Rows, int], AppendedAgain | None
]  # topic, queue id, places of records, how many wait


class RedeliveryOutcome(NamedTuple):
    """How far a run came: so many of its messages are done with, and why no more are, if there is a reason."""

    done: int
    refusal: str | None = None


class Redelivery:
    """Appends parked messages to their own topics, and counts them."""

    def __init__(
        self, append: AppendTogether, kind: str, log_file_bytes: int, append_parked: AppendParked | None = None
    ) -> None:
        """`append` stores all or none of a run, which must fit a log file; `kind` is for log lines. `append_parked`, if
        there is one, does so with records as they lie in the log."""
        self._append, self._append_parked, self._kind = append, append_parked, kind
        # A record may grow by the name of its topic: a run of a quarter of a log file fits all the same.
        self._run_bytes_max = min(_RUN_BYTES_MAX, log_file_bytes // 4)
        self._stored_bytes_max = min(_STORED_RUN_BYTES_MAX, log_file_bytes // 4)
        self._waiting = 0
        self._run_max = RUN_MESSAGES_MAX
        self.delivered = 0
        self.skipped = 0
        self.delivered_end = 0  # Physical offset after the last delivered record: durable before progress is.

    def has_room(self, messages: int, run_bytes: int, record_bytes: int) -> bool:
        """Whether a run of so many messages and bytes may take one more record."""
        return messages == 0 or (messages < self._run_max and run_bytes + record_bytes <= self._run_bytes_max)

    def expect(self, waiting: int) -> None:
        """So many messages wait. If kernels are worth it they are loaded now, and not when the messages are due."""
        self._waiting = waiting
        self.deliver_stored("", 0, _NO_PLACES)

    def deliver_stored(self, topic: str, queue_id: int, places: Rows) -> RedeliveryOutcome:
        """Append some of the records at `places` (physical offset, size, queue offset) of a queue, from the first one
        on. None, and no refusal, if kernels are not worth it or the first one is for `deliver`."""
        if self._append_parked is None:
            return RedeliveryOutcome(0)
        room = np.cumsum(places[:STORED_RUN_MAX, P_SIZE] + TOPIC_BYTES_MAX)
        fitting = int(np.searchsorted(room, self._stored_bytes_max, "right"))
        try:
            appended = self._append_parked(topic, queue_id, places[:fitting], self.delivered + self._waiting)
        except AppendRefused as refusal:
            return RedeliveryOutcome(0, str(refusal))
        if appended is None:
            return RedeliveryOutcome(0)
        self._run_max = _ODD_RUN_MAX
        self.delivered += appended.messages
        self.delivered_end = max(self.delivered_end, appended.end)
        return RedeliveryOutcome(appended.messages)

    def deliver(self, run: Sequence[StoredMessage]) -> RedeliveryOutcome:
        """Append a run in order. A message that can never be delivered is reported, and counts as done."""
        messages: list[Message] = []
        done = 0
        for parked in run:
            message = delivered_message(parked)
            if isinstance(message, Message):
                messages.append(message)
                continue
            outcome = self._put(run[done : done + len(messages)], messages)
            done += outcome.done
            if outcome.refusal is not None:
                return RedeliveryOutcome(done, outcome.refusal)
            self.skip(parked.topic, parked.queue_id, parked.queue_offset, message)
            messages, done = [], done + 1
        outcome = self._put(run[done:], messages)
        return RedeliveryOutcome(done + outcome.done, outcome.refusal)

    def _put(self, run: Sequence[StoredMessage], messages: list[Message]) -> RedeliveryOutcome:
        if not messages:
            return RedeliveryOutcome(0)
        try:
            receipts = self._append(messages)
        except AppendRefused as refusal:
            return RedeliveryOutcome(0, str(refusal))
        except MessageRejected as rejection:
            if len(messages) > 1:
                return self._put_one_by_one(run, messages)
            # It will never be taken (a limit was lowered, say), and must not hold up those behind it.
            self.skip(run[0].topic, run[0].queue_id, run[0].queue_offset, str(rejection))
            return RedeliveryOutcome(1)
        return self._count(receipts)

    def _put_one_by_one(self, run: Sequence[StoredMessage], messages: list[Message]) -> RedeliveryOutcome:
        for at, message in enumerate(messages):
            outcome = self._put(run[at : at + 1], [message])
            if outcome.refusal is not None:
                return RedeliveryOutcome(at, outcome.refusal)
        return RedeliveryOutcome(len(messages))

    def _count(self, receipts: Sequence[Receipt]) -> RedeliveryOutcome:
        for at, receipt in enumerate(receipts):
            if not receipt.ok:
                return RedeliveryOutcome(at, receipt.status)
            self.delivered_end = max(self.delivered_end, receipt.physical_offset + receipt.size)
            self.delivered += 1
        return RedeliveryOutcome(len(receipts))

    def skip(self, topic: str, queue_id: int, queue_offset: int, reason: str) -> None:
        """Report a parked message that is not delivered."""
        self.skipped += 1
        log.error(
            "%s.skipped topic=%s queue_id=%d queue_offset=%d reason=%s",
            self._kind,
            topic,
            queue_id,
            queue_offset,
            reason,
        )


def delivered_message(parked: StoredMessage) -> Message | str:
    """The message a parked one becomes, or why it becomes none."""
    # Two properties of many: to decode all of them is most of the work.
    topic = (property_value(parked.property_bytes, _REAL_TOPIC) or b"").decode("utf-8", "replace")
    queue_id = (property_value(parked.property_bytes, _REAL_QUEUE_ID) or b"").decode("utf-8", "replace")
    if not topic:
        return f"the parked record has no property {REAL_TOPIC}"
    if not (queue_id.isascii() and queue_id.isdigit() and int(queue_id) <= _QUEUE_ID_MAX):
        return f"the property {REAL_QUEUE_ID} is {queue_id!r}, not a queue id"
    if topic == HALF_TOPIC:
        return f"the real topic is {HALF_TOPIC}: half messages are not delivered"
    return stored_again(parked, topic, int(queue_id))


def stored_again(parked: StoredMessage, topic: str, queue_id: int) -> Message:
    """The same message for another place."""
    return Message(
        topic=topic,
        body=parked.body,
        queue_id=queue_id,
        flag=parked.flag,
        sys_flag=parked.sys_flag,
        born_timestamp=parked.born_timestamp,
        born_host=parked.born_host,
        store_host=parked.store_host,
        reconsume_times=parked.reconsume_times,
        wait_for_store=False,
        encoded_properties=parked.property_bytes,
    )
