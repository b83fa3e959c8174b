"""Which records are wanted: the description, and the plain twin of kernels.select.

A Selection is plain data: made where a read is planned, pickled, and used wherever records are read. All that it
names must hold for a record to be wanted; what is None does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.rows import RecordColumns
from embermq.model.flags import has_queue_entry
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC

# Topics RocketMQ keeps for itself. Retry (%RETRY%...) and dead-letter (%DLQ%...) topics are everybody's.
SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_PREFIXES = ("RMQ_SYS_", "rmq_sys_")  # later versions add topics under the second one

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1


def is_system_topic(topic: str) -> bool:
    """The broker's own: hidden unless a selection includes the system's records."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a record must be. Ranges are half-open.

    `queues` names the wanted queues and the wanted offsets of each: (topic, queue id) -> (start, end).
    `keys` are compared with the unique key and with the words of KEYS. The physical range speaks of the record's
    first byte. `include_system` shows system topics, and prepared and rolled-back records of transactions.
    """

    topics: frozenset[str] | None = None
    queues: Mapping[tuple[str, int], tuple[int, int]] | None = None
    queue_ids: frozenset[int] | None = None
    queue_offset_start: int | None = None
    queue_offset_end: int | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    physical_start: int | None = None
    physical_end: int | None = None
    include_system: bool = False

    @property
    def is_everything(self) -> bool:
        """Nothing is left out."""
        return self == Selection(include_system=True)


def select_rows(records: RecordColumns, selection: Selection) -> NDArray[np.int64]:
    """Numbers of the wanted rows, in order."""
    wanted = [i for i in range(len(records)) if _is_wanted(records, i, selection)]
    return np.array(wanted, np.int64)


def _is_wanted(records: RecordColumns, i: int, selection: Selection) -> bool:
    row = records.rows[i]
    topic, queue_id, queue_offset = records.topic(i), int(row[c.C_QUEUE_ID]), int(row[c.C_QUEUE_OFFSET])
    if not selection.include_system and (is_system_topic(topic) or not has_queue_entry(int(row[c.C_SYS_FLAG]))):
        return False
    if not _is_within(int(row[c.C_PHYSICAL]), selection.physical_start, selection.physical_end):
        return False
    if not _is_within(int(row[c.C_STORE_TIME]), selection.begin_ms, selection.end_ms):
        return False
    if not _is_within(queue_offset, selection.queue_offset_start, selection.queue_offset_end):
        return False
    if selection.queue_ids is not None and queue_id not in selection.queue_ids:
        return False
    if selection.topics is not None and topic not in selection.topics:
        return False
    if selection.queues is not None:
        start, end = selection.queues.get((topic, queue_id), (0, 0))
        if not start <= queue_offset < end:
            return False
    if selection.tags is not None and records.tags(i) not in selection.tags:
        return False
    return selection.keys is None or not selection.keys.isdisjoint(records.keys(i))


def _is_within(value: int, start: int | None, end: int | None) -> bool:
    return (start is None or start <= value) and (end is None or value < end)
