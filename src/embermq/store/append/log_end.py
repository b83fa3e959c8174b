"""The end of the log: where the next record goes, and its offset in its queue.

The first 8 bytes of a record, size and magic, are stored last (format.frame.put_record): a process killed in between
leaves zeros there, which read as "nothing here", and not half a message.

A signal handler may raise in the middle of an append (Ctrl-C in a notebook, an alarm). The two things that make a
message stored, the end of the log and the next offset of its queue, therefore move in one assignment: what did not move
is overwritten by the next message. A kernel gives offsets out itself; `open_run` has what they were until its messages
count.

Everything here is for the holder of the put lock. `Writer._store_plain` does the same as `put` by a shorter way.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import R_QUEUE, Rows
from embermq.files import Segment
from embermq.format.frame import BLANK_BYTES, body_crc, put_record
from embermq.model import flags
from embermq.model.message import Receipt
from embermq.model.status import PutStatus
from embermq.store.append.admission import Admission, Admitted
from embermq.store.append.light_queues import LightQueues
from embermq.store.append.queue_tails import QueueTails
from embermq.store.append.runs import MessageRun
from embermq.store.layout.fence import Fence
from embermq.store.log.commit_log import CommitLog

EncodeBatch = Callable[..., tuple[int, int]]

# A global is found faster than a member of an enumeration.
PUT_OK = PutStatus.PUT_OK
_NO_TOKEN = memoryview(bytes(8)).cast("q")


class LogEnd:
    """Stores records at the end of a commit log."""

    def __init__(
        self,
        log: CommitLog,
        admission: Admission,
        tails: QueueTails,
        *,
        light_queues_max: int = 0,
        fence: Fence | None = None,
    ) -> None:
        self._log, self._tails, self._fence = log, tails, fence
        # The next three are looked at by each append: see `needs_attention`.
        self.token: Any
        self.token, self.own_token = (fence.cell, fence.stamp) if fence is not None else (_NO_TOKEN, 0)
        self._light_queues = LightQueues(tails, admission, light_queues_max)
        self._packed_host = admission.packed_store_host
        # Of a run being written: its slots, their offsets before it, and how many bytes it takes at most.
        self.open_run: tuple[NDArray[np.int64], NDArray[np.int64], int] | None = None
        self.stored_bytes = 0

    @property
    def offset(self) -> int:
        """Where the log ends."""
        return self._log.wrote_offset

    # -- whether it is ours, and as it should be -----------------------------------------------------------------

    @property
    def needs_attention(self) -> bool:
        """Whether a run was interrupted, or another process has the store: `take_back_open_run`, `check_fence`."""
        return self.open_run is not None or self.token[0] != self.own_token

    def check_fence(self) -> None:
        """Raise if another process has the store: what is written now would lie over its messages."""
        if self.token[0] != self.own_token:
            assert self._fence is not None
            self._fence.check()

    def take_back_open_run(self) -> None:
        """Offsets that a run was given whose messages never counted are for the next ones."""
        if self.open_run is not None:
            slots, before, room = self.open_run
            self._tails.numbers()[slots] = before
            self.clear(room)
            self.open_run = None

    def clear(self, room: int = BLANK_BYTES) -> None:
        """Make what lies behind the end of the log read as nothing: a record there was never stored."""
        segment = self._log.active
        is_ours = self.token[0] == self.own_token
        if is_ours and segment is not None and segment.wrote < segment.size:
            at, end = segment.wrote, min(segment.wrote + room, segment.size)
            segment.target[at:end] = bytes(end - at)

    # -- storing -------------------------------------------------------------------------------------------------

    def segment_for(self, size: int) -> Segment:
        """The segment that has room for so many bytes, and a blank behind them."""
        segment = self._log.active
        if segment is None or segment.wrote + size + BLANK_BYTES > segment.size:
            segment = self._log.roll()
        return segment

    def put(self, one: Admitted, now_ms: int) -> Receipt:
        """Store one message."""
        if one.multi_dispatch:
            one = self._light_queues.with_offsets(one)
        segment = self.segment_for(one.size)
        tails = self._tails
        tail = tails.by_key.get((one.topic, one.queue_id)) or tails.obtain(one.topic, one.queue_id)
        tail.topic_part = one.topic_part
        queued = one.sys_flag & flags.PREPARED == 0
        queue_offset = tails.next[tail.slot] if queued else 0
        at = segment.wrote
        end = at + one.size
        physical_offset = segment.start + at
        put_record(
            segment.target,
            at,
            one.size,
            body_crc(one.body),
            one.body,
            one.topic_part,
            one.properties,
            one.queue_id,
            queue_offset,
            physical_offset,
            now_ms if one.born_timestamp is None else one.born_timestamp,
            one.born_host,
            now_ms,
            one.packed_store_host,
            one.flag,
            one.sys_flag,
            one.reconsume_times,
            one.prepared_transaction_offset,
        )
        segment.store_timestamp = now_ms
        if not queued:
            segment.wrote = end
        elif one.multi_dispatch:
            segment.wrote, tails.next = end, self._light_queues.advanced(one, tail.slot, queue_offset)
        else:
            next_offsets, slot = tails.next, tail.slot
            segment.wrote, next_offsets[slot] = end, queue_offset + 1
        self.stored_bytes += one.size
        return Receipt(PUT_OK, physical_offset, one.size, queue_offset, now_ms, one.store_host)

    def write_run(self, encode_batch: EncodeBatch, run: MessageRun, now_ms: int, placed: Rows) -> Iterator[int]:
        """Let the kernel write a run, rolling when a segment is full; yields how many came into each."""
        done = 0
        while done < len(run.rows):
            segment = self._log.active
            if segment is None or segment.is_full:  # An interrupted roll leaves a full one, which is sealed by now.
                segment = self._log.roll()
            at, numbers, slots = segment.wrote, self._tails.numbers(), run.rows[done:, R_QUEUE]
            self.open_run = slots, numbers[slots], run.room
            count, end = encode_batch(
                segment.target_array,
                at,
                segment.size,
                segment.start,
                run.parts,
                run.rows[done:],
                numbers,
                now_ms,
                self._packed_host,
                placed[done:],
            )
            segment.wrote, self.open_run = end if count else at, None
            if count:
                self.stored_bytes += end - at
                segment.store_timestamp = now_ms
                done += count
                yield count
            if done < len(run.rows):
                self._log.roll()
