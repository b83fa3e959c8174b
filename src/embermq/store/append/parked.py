"""Parked records as a run: many messages that are due, written again for their own topics by one kernel call.

    places in the queue  ->  bytes of the log  --kernel: check, judge-->  rows  --kernel, under the put lock-->  records

The rows point into the log itself (its map, or what was read of a file), so a message is copied once: from its parked
record into the new one. Only ordinary records take this way (columns.plain.parked); the first that is not ends the run,
and the plain way (services/redelivery.py) says what is to be done with it.
"""

from typing import NamedTuple

import numpy as np

from embermq.columns import (
    N_RUN_COLUMNS,
    P_PHYSICAL,
    P_SIZE,
    R_QUEUE_ID,
    R_TOPIC_AT,
    R_TOPIC_LEN,
    ParkedIn,
    ParkedStop,
    ReadParked,
    Rows,
    RunBytes,
    compiled_read_parked,
    pays,
)
from embermq.errors import MessageRejected
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.settings import KernelUse
from embermq.store.append.runs import MessageRun, RunReader
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.windows import Window, window_at

_NO_MASK = memoryview(b"")


class AppendedAgain(NamedTuple):
    """So many records from the first one on were written again, and where the last of them ends."""

    messages: int
    end: int


class ParkedReader:
    """Makes runs of parked records for one store. Any thread, without the put lock."""

    def __init__(self, log: CommitLog, runs: RunReader, store_host: bytes, use: KernelUse) -> None:
        """`store_host` is packed."""
        self._log, self._runs, self._store_host, self._use = log, runs, store_host, use
        self._read_parked: ReadParked | None = None  # Loaded when it pays.

    def is_ready(self, waiting: int) -> bool:
        """Whether kernels are used for so many messages; they are loaded when that has become worth it."""
        if self._read_parked is None and pays("parked", waiting, self._use):
            self._runs.load()  # What writes the rows; before messages are due.
            self._read_parked = compiled_read_parked()
        return self._read_parked is not None

    def read(self, topic: str, queue_id: int, places: Rows) -> MessageRun | None:
        """The first of the records at `places` (columns P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET) that lie close together, of
        a queue of the topic; None if the very first is not ordinary."""
        assert self._read_parked is not None
        window = self._window(places)
        if window is None:
            return None
        rows = np.zeros((len(places), N_RUN_COLUMNS), np.int64)
        parked_in, queues = ParkedIn(topic.encode(), queue_id, self._store_host), self._runs.loops.queues
        done = room = 0
        while True:
            done, size, stop = self._read_parked(*window, places, done, parked_in, queues, self._runs.limits, rows)
            room += size
            if stop is not ParkedStop.PLACE or not self._make_place(window, rows, done):
                break
        return MessageRun(RunBytes(window.data, window.data, window.data), rows[:done], room) if done else None

    def _window(self, places: Rows) -> Window | None:
        entries = np.zeros(len(places), ENTRY_DTYPE)
        entries["physical_offset"], entries["size"] = places[:, P_PHYSICAL], places[:, P_SIZE]
        return window_at(self._log, entries.view(np.uint8).data, _NO_MASK, 0, len(places))

    def _make_place(self, window: Window, rows: Rows, i: int) -> bool:
        """Let the kernels know the queue of a row; False if there can be no such queue."""
        at, length, queue_id = (int(rows[i, column]) for column in (R_TOPIC_AT, R_TOPIC_LEN, R_QUEUE_ID))
        topic = window.data[at : at + length].tobytes().decode("utf-8", "replace")
        try:
            self._runs.make_place(topic, queue_id)
        except MessageRejected:
            return False
        return True
