"""Undecided half messages of a store that is opened: from the saved state and what both queues have behind it.

A commit stores two records side by side, the message and its op record. A kill or a power cut may leave the first
alone, and then it is the last record of the log. Such a message is visible, so its half message is decided: the op
record is stored now.

RocketMQ's broker may have had the store since the state was saved. It stores a half message again when it asks about
it, with no op record for the first one, and moves its offset in the half queue: what lies below that offset is done.

Any thread; before the broker takes requests.
"""

import logging
from collections.abc import Iterator, Mapping

from embermq.broker.tables import ConsumerOffsets
from embermq.broker.transactions.half_messages import CHECK_GROUP, decided_by, op_of
from embermq.broker.transactions.saved_state import CHECKS, OP_FLOORS, POSITIONS, Numbers
from embermq.broker.transactions.undecided import Undecided, UndecidedHalf
from embermq.model import flags
from embermq.model.message import StoredMessage
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.settings import BrokerRole
from embermq.store import MessageStore

log = logging.getLogger(__name__)


def open_undecided(
    store: MessageStore, offsets: ConsumerOffsets, saved: Mapping[str, Numbers]
) -> tuple[Undecided, frozenset[int]]:
    """What is undecided, and the decided half messages that op records name and that lie before what was counted."""
    half_end, op_end = store.max_offset(HALF_TOPIC, 0), store.max_offset(OP_TOPIC, 0)
    positions, group_positions = saved.get(POSITIONS), _group_positions(store, offsets, half_end, op_end)
    if positions is None or positions["half"] > half_end or positions["op"] > op_end:
        saved, positions = {}, group_positions
    floors, checks = saved.get(OP_FLOORS, {}), saved.get(CHECKS, {})
    named = {offset for op in _messages(store, OP_TOPIC, positions["op"]) for offset in decided_by(op)}
    oldest = max(store.min_offset(HALF_TOPIC, 0), group_positions["half"])
    new = range(max(positions["half"], oldest), half_end)
    known = sorted(offset for text in floors if (offset := int(text)) < positions["half"] and offset >= oldest)
    undecided = Undecided()
    for offset in (*known, *new):
        if offset not in named:
            floor = floors.get(str(offset), positions["op"])
            place = store.physical_offset(HALF_TOPIC, 0, offset)
            undecided.add(offset, UndecidedHalf(place, floor, checks.get(str(offset), 0)))
    undecided.half_end, undecided.op_end = half_end, op_end
    if not store.recovery.clean and store.role is not BrokerRole.SLAVE:
        _finish_last_commit(store, undecided)
    return undecided, frozenset(offset for offset in named if offset < positions["half"])


def _group_positions(store: MessageStore, offsets: ConsumerOffsets, half_end: int, op_end: int) -> Numbers:
    """Where RocketMQ's broker would begin; at the start of what is there if that cannot be. Either broker moves these
    offsets when all half messages below are decided, or stored again."""
    half, op = (offsets.query(CHECK_GROUP, topic, 0) for topic in (HALF_TOPIC, OP_TOPIC))
    if not 0 <= half <= half_end or not 0 <= op <= op_end:
        half, op = store.min_offset(HALF_TOPIC, 0), store.min_offset(OP_TOPIC, 0)
    return {"half": half, "op": op}


def _finish_last_commit(store: MessageStore, undecided: Undecided) -> None:
    place = store.recovery.last_record
    last = store.at(place) if place >= 0 else None
    if last is None or last.sys_flag & flags.TRANSACTION_MASK != flags.COMMIT:
        return
    for offset, entry in undecided.items():
        if entry.physical_offset == last.prepared_transaction_offset and store.at(entry.physical_offset) is not None:
            receipt = store.internal.append(op_of(offset))
            undecided.decided(offset, receipt.queue_offset)
            log.warning(
                "event=commit_finished half_offset=%d message_at=%d reason=%r",
                offset,
                place,
                "the message was stored, the record of its commit was not",
            )


def _messages(store: MessageStore, topic: str, start: int) -> Iterator[StoredMessage]:
    """The messages of queue 0 of a topic, from an offset on."""
    end = store.max_offset(topic, 0)
    while start < end:
        outcome = store.fetch(topic, 0, start)
        yield from outcome.messages
        if outcome.next_offset <= start:
            return
        start = outcome.next_offset
