"""Internal appends: what a broker itself writes, for clients, into topics that clients must not write to.

    SCHEDULE_TOPIC_XXXX           messages that wait for the end of a delay level
    rmq_sys_wheel_timer           messages that wait for a time of their own
    RMQ_SYS_TRANS_HALF_TOPIC      messages whose transaction is not decided yet
    RMQ_SYS_TRANS_OP_HALF_TOPIC   which of them are decided
    %RETRY%<group>, %DLQ%<group>  messages that a group could not consume
    any topic                     a parked or half message on the way to its own topic

A message is stored as it is given: under its topic and queue, with its system flags and every property. In
`MessageStore.append`, which clients reach through a broker, the properties DELAY, TIMER_* and INNER_MULTI_DISPATCH tell
the store what to do with a message; here they are data. Names, sizes and numbers are checked as there. A layer that
serves clients hands `MessageStore.append` to them and keeps this to itself: `is_closed_to_clients` is what it asks
first. `redirected` (admission.py) makes the message for another topic that keeps its own one in properties.

Any thread.
"""

from collections.abc import Callable, Sequence

from embermq.clock import Clock
from embermq.columns import P_PHYSICAL, P_SIZE, Rows
from embermq.model.message import Message, Receipt
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from embermq.store.append.packed import PackedBatch
from embermq.store.append.parked import AppendedAgain
from embermq.store.append.writer import Writer
from embermq.store.log.windows import Window

Confirm = Callable[[Sequence[Receipt], bool, float], Sequence[Receipt]]  # receipts, wait, when the put began

_CLOSED_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC))


def is_closed_to_clients(topic: str) -> bool:
    """Whether only the broker itself may append to this topic. Retry and dead-letter topics are open: a client sends
    there when it cannot reach the broker that has the message."""
    return topic in _CLOSED_TOPICS


class InternalAppends:
    """Appends of a broker's own messages."""

    def __init__(
        self,
        writer: Writer,
        confirm: Confirm,
        clock: Clock,
        nudge: Callable[[], None] | None,
        waits: Callable[[], bool],
        log_tail: Callable[[int], Window | None],
    ) -> None:
        """`confirm` waits until receipts are as durable as the settings promise; `nudge` wakes the flusher under
        SYNC_FLUSH, and is None without; `waits`: whether there is a disk or a replica to wait for. `log_tail` lends the
        last bytes of the log that may be read and lie in memory, at most so many."""
        self._writer, self._confirm, self._clock, self._nudge = writer, confirm, clock, nudge
        self._waits = waits
        self.log_tail = log_tail

    def append(self, message: Message, *, although_full: bool = False) -> Receipt:
        """Store one message as it is; the receipt and the errors of `MessageStore.append`.

        With `although_full` past the mark of a full disk as well (not past its last byte): for what ends the wait of a
        message that was taken before, and whose log file cannot be deleted until then.
        """
        began = self._clock.monotonic()
        receipt, wait = self._writer.append_as_is(message, although_full=although_full)
        return self._confirm([receipt], wait, began)[0]

    def append_many(self, messages: Sequence[Message], *, although_full: bool = False) -> Sequence[Receipt]:
        """Store messages in order, with one wait for the disk. A rejected one stops all before anything is stored."""
        if not messages:
            return []
        began = self._clock.monotonic()
        receipts, wait = self._writer.append_many_as_is(messages, although_full=although_full)
        return self._confirm(receipts, wait, began)

    def append_together(self, messages: Sequence[Message]) -> Sequence[Receipt]:
        """Store messages side by side in one log file, in order, past the mark of a full disk as well: all, or with an
        error none; a kill keeps the first few of them or all. Together they must fit a log file. Does not wait."""
        receipts, _ = self._writer.append_together(messages, as_is=True, although_full=True)
        if self._nudge is not None:
            self._nudge()
        return receipts

    def append_parked(self, topic: str, queue_id: int, places: Rows, waiting: int) -> AppendedAgain | None:
        """What `append_together` does with the messages of parked records, by kernels: for as many from the first one
        on as are ordinary (parked.py) and lie close together. None if so few are `waiting` that kernels are not worth
        it."""
        reader = self._writer.parked
        if not reader.is_ready(waiting):
            return None
        run = reader.read(topic, queue_id, places) if len(places) else None
        if run is None:
            return AppendedAgain(0, 0)
        end = self._writer.append_run(run)
        if self._nudge is not None:
            self._nudge()
        return AppendedAgain(len(run.rows), end)

    def append_packed(self, batch: PackedBatch) -> tuple[Rows, int]:
        """What `append_unconfirmed` does with messages, of rows (packed.py) without properties that mean anything:
        where they are (columns P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET), and the log position that must be durable.

        An error says that none is stored, and says it of a batch as well that does not fit a log file.
        """
        placed = self._writer.append_packed_together(batch)
        if self._nudge is not None:
            self._nudge()  # It begins before anything waits.
        return placed, int(placed[-1, P_PHYSICAL] + placed[-1, P_SIZE]) if self._waits() else 0

    def append_unconfirmed(self, messages: Sequence[Message], *, as_is: bool) -> tuple[Sequence[Receipt], int]:
        """Store messages side by side in the log, in order, without waiting for the disk: the receipts, and the log
        position that must be durable (`MessageStore.when_durable`) before they count as stored; 0 if they do at once.

        An error says that none is stored; a kill keeps the first few of them or all. Without `as_is`, their properties
        tell the store what to do, as in `MessageStore.append`: a delayed message is parked.
        """
        receipts, wait = self._writer.append_together(messages, as_is=as_is)
        if self._nudge is not None:
            self._nudge()  # It begins before anything waits.
        last = receipts[-1]
        return receipts, last.physical_offset + last.size if wait and self._waits() else 0
