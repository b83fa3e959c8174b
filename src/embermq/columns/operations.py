"""Operations on many records at once, each with a plain and a compiled form that give the same answers.

`x_for(work)` gives the form of x that is done sooner with so much work (choosing.py); `compiled_x()` is for callers
that have decided already, because they write or read what only the compiled form knows. The forms themselves are in
plain/ and compiled/. Any thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from embermq.columns.choosing import loading, pays
from embermq.columns.plain import check as plain_check
from embermq.columns.plain import derive as plain_derive
from embermq.columns.plain import gather as plain_gather
from embermq.columns.plain import links as plain_links
from embermq.columns.plain import pairs as plain_pairs
from embermq.columns.plain import pick as plain_pick
from embermq.columns.plain import repeats as plain_repeats
from embermq.columns.plain import scan as plain_scan
from embermq.columns.plain import screen as plain_screen
from embermq.columns.plain import stored as plain_stored
from embermq.columns.plain import text_hashes as plain_text_hashes
from embermq.columns.plain import values as plain_values
from embermq.columns.plain.admit import RowsAdmitted
from embermq.columns.plain.gather import HostKind, Pairs, Parts
from embermq.columns.plain.links import LinkCheck
from embermq.columns.plain.messages import MessageReading
from embermq.columns.plain.pairs import ValueColumn
from embermq.columns.plain.parked import ParkedIn, ParkedRead
from embermq.columns.plain.replies import ReplyTemplate
from embermq.columns.plain.runs import RowLimits, RunBytes
from embermq.columns.plain.screen import Needles
from embermq.columns.plain.select import Selection, select_rows
from embermq.columns.plain.stored import GatherStop
from embermq.columns.rows import RecordColumns, Rows
from embermq.format import index as index_format
from embermq.settings import KernelUse

if TYPE_CHECKING:
    from embermq.columns.compiled.check_log import LogCheck
    from embermq.columns.compiled.queue_table import QueueTable
    from embermq.columns.compiled.sends.ends import EndReader
    from embermq.columns.compiled.sends.frames import SendReader

Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Scan = Callable[[Any, int, int, int, Rows, Numbers, bool, bool], tuple[int, int, int]]
Resync = Callable[[Any, int, int, int], int]
KeysOf = Callable[[RecordColumns], Numbers]
Pick = Callable[[Any, int, Numbers, Numbers, Rows, Numbers, bool], Numbers]
Select = Callable[[RecordColumns], Numbers]
GatherStored = Callable[
    [Any, int, Any, NDArray[np.uint8], Any, Numbers, NDArray[np.uint8], Numbers],
    GatherStop,
]
JoinValues = Callable[[Sequence[Any]], ValueColumn | None]
PutPairs = Callable[[NDArray[np.uint8], Numbers, Numbers, bytes, ValueColumn], int]
HashColumn = Callable[[NDArray[np.uint8], Rows, int, int], Hashes]


Screen = Callable[
    [
        NDArray[np.uint8],
        int,
        NDArray[np.uint8],
        NDArray[np.uint8],
        int,
        tuple[int, int],
        Needles,
        Rows,
    ],
    int,
]


class Gather(Protocol):
    """Columns of text and bytes in Arrow's layout: a module, plain or compiled."""

    def gather_parts(
        self,
        records: RecordColumns,
        keep: Numbers,
        at_column: int,
        more: NDArray[np.uint8] = ...,
        rows: Rows | None = ...,
    ) -> Parts: ...

    def gather_ids(self, records: RecordColumns, keep: Numbers) -> Parts: ...

    def gather_hosts(self, records: RecordColumns, keep: Numbers, kind: HostKind) -> Parts: ...

    def gather_crcs(self, records: RecordColumns, keep: Numbers) -> NDArray[np.int32]: ...

    def gather_pairs(self, records: RecordColumns, keep: Numbers) -> Pairs: ...


# -- walking the log -------------------------------------------------------------------------------------------


def scan_for(work_bytes: int) -> Scan:
    """Records to rows."""
    return compiled_scan() if pays("scan", work_bytes) else plain_scan.scan_rows


def compiled_scan() -> Scan:
    with loading():
        from embermq.columns.compiled.scan import scan
    return scan


def resync_for(work_bytes: int) -> Resync:
    """The next record behind damage."""
    if not pays("scan", work_bytes):
        return plain_scan.resync
    with loading():
        from embermq.columns.compiled.scan import resync
    return resync


def pick_for(records: int) -> Pick:
    """Records at known places to rows."""
    if not pays("pick", records):
        return plain_pick.pick
    with loading():
        from embermq.columns.compiled.pick import pick
    return pick


def gather_stored_for(records: int, use: KernelUse = KernelUse.AUTO) -> GatherStored:
    """Records of queue entries to one buffer of their stored bytes."""
    if not pays("stored", records, use):
        return plain_stored.gather_stored
    with loading():
        from embermq.columns.compiled.stored import gather_stored
    return gather_stored


def screen_for(records: int, use: KernelUse = KernelUse.AUTO) -> Screen:
    """Records of queue entries that cannot meet a condition on properties are passed over."""
    if not pays("screen", records, use):
        return plain_screen.screen
    with loading():
        from embermq.columns.compiled.screen import screen
    return screen


# -- queues and index ------------------------------------------------------------------------------------------


def queue_table() -> "QueueTable":
    """An empty table (topic, queue id) -> number, for kernels; queue_slots.py is for everything else."""
    with loading():
        from embermq.columns.compiled.queue_table import QueueTable
    return QueueTable()


def index_keys_for(work_rows: int) -> KeysOf:
    """(key hash, physical offset, store time) of every key of every row."""
    return compiled_index_keys() if pays("derive", work_rows) else _plain_index_keys


def compiled_index_keys() -> KeysOf:
    with loading():
        from embermq.columns.compiled.derive import index_keys
    return index_keys


def _plain_index_keys(records: RecordColumns) -> Numbers:
    return np.array(plain_derive.key_rows(records), np.int64).reshape(-1, 3)


def put_index_rows(
    view: Any, slots_max: int, entries_max: int, records: RecordColumns, row: int, key: int, guard: int
) -> tuple[int, int, int]:
    """Put the keys of rows from (row, key) on into an index file; see plain/derive.py."""
    rows_left = len(records) - row
    if rows_left < 2 or not pays("derive", rows_left):  # One row costs more to hand over than to put.
        return plain_derive.put_rows(view, slots_max, entries_max, records, row, key, guard)
    with loading():
        from embermq.columns.compiled.derive import index_put
    return index_put(np.frombuffer(view, np.uint8), slots_max, entries_max, records, row, key, guard)


def compiled_put_index_keys() -> Callable[[NDArray[np.uint8], int, int, Numbers, int], int]:
    with loading():
        from embermq.columns.compiled.derive import index_put_keys
    return index_put_keys


def rebuild_index_slots(view: Any, slots_max: int, count: int) -> int:
    """Compute the slots of an index file again from its entries."""
    if not pays("links", count):
        return index_format.rebuild_slots(view, slots_max, count)
    with loading():
        from embermq.columns.compiled.derive import index_rebuild_slots
    return index_rebuild_slots(np.frombuffer(view, np.uint8), slots_max, count)


def check_index_links(entries: NDArray[np.uint8], first_number: int, newest: NDArray[np.int32]) -> LinkCheck:
    """Are the links of consecutive index entries right?"""
    if not pays("links", len(entries) // index_format.ENTRY_BYTES):
        return plain_links.check_links(entries.data, first_number, newest)
    with loading():
        from embermq.columns.compiled.links import check_links
    return check_links(entries, first_number, newest)


# -- checking records against what was derived from them -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckLoops:
    """What a comparison of the log with queues and index needs, all plain or all compiled."""

    check_entries: Callable[..., tuple[int, int, int]]
    check_keys: Callable[..., tuple[int, int, int, int]]
    keys_of: KeysOf
    is_compiled: bool


def check_loops_for(work_bytes: int) -> CheckLoops:
    """The loops for a log of so many bytes."""
    if not pays("check", work_bytes):
        return CheckLoops(plain_check.check_entries, plain_check.check_keys, _plain_index_keys, False)
    with loading():
        from embermq.columns.compiled.check import check_entries, check_keys
        from embermq.columns.compiled.derive import index_keys
    return CheckLoops(check_entries, check_keys, index_keys, True)


def log_check(delay_ms: Numbers) -> "LogCheck":
    """Memory for a walk that compares a sound stretch of log in one go."""
    with loading():
        from embermq.columns.compiled.check_log import LogCheck
    return LogCheck(delay_ms)


def new_log_check_walk(start: int) -> Numbers:
    """The state of such a walk."""
    with loading():
        from embermq.columns.compiled.check_log import new_walk
    return new_walk(start)


# -- choosing and gathering rows -------------------------------------------------------------------------------


def select_for(selection: Selection, work_bytes: int) -> Select:
    """records -> numbers of the wanted rows, in order."""
    if not pays("select", work_bytes):
        return lambda records: select_rows(records, selection)
    with loading():
        from embermq.columns.compiled.select import Selector
    return Selector(selection).select


def gather_for(rows: int) -> Gather:
    """From rows to columns of text and bytes."""
    if not pays("gather", rows):
        return plain_gather
    with loading():
        from embermq.columns.compiled import gather
    return gather


def hash_column_for(*, compiled: bool) -> HashColumn:
    """64-bit hashes of a text of every row."""
    if not compiled:
        return plain_text_hashes.hash_column
    with loading():
        from embermq.columns.compiled.text_hashes import hash_column
    return hash_column


def repeated(blocks: Sequence[Numbers]) -> Hashes:
    """Hashes that are there more than once among those of all blocks."""
    if not pays("repeats", sum(map(len, blocks))):
        return plain_repeats.repeated(blocks)
    with loading():
        from embermq.columns.compiled.repeats import repeated as compiled
    return compiled(blocks)


# -- writing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunLoops:
    """The compiled way of many messages into the log; compiled/messages.py, compiled/admit.py, compiled/encode.py."""

    queues: "QueueTable"
    read_messages: Callable[..., MessageReading]
    admit_rows: Callable[[RunBytes, Rows, int, "QueueTable", RowLimits], RowsAdmitted]
    encode_batch: Callable[..., tuple[int, int]]


def run_loops() -> RunLoops:
    with loading():
        from embermq.columns.compiled.admit import admit_rows
        from embermq.columns.compiled.encode import encode_batch
        from embermq.columns.compiled.messages import read_messages
        from embermq.columns.compiled.queue_table import QueueTable
    return RunLoops(QueueTable(), read_messages, admit_rows, encode_batch)


ReadParked = Callable[[Any, int, Rows, int, ParkedIn, "QueueTable", RowLimits, Rows], ParkedRead]


def compiled_read_parked() -> ReadParked:
    """Parked records to rows of a run."""
    with loading():
        from embermq.columns.compiled.parked import read_parked
    return read_parked


@dataclass(frozen=True, slots=True)
class SendLoops:
    """The compiled way from frames of sends to rows of a run, and from their places to answers."""

    places: "QueueTable"
    reader: "SendReader"
    write_replies: Callable[[Rows, Rows, ReplyTemplate, NDArray[np.uint8], Numbers], int]

    def with_no_places(self) -> "SendLoops":
        return SendLoops(type(self.places)(), self.reader, self.write_replies)


def send_loops() -> SendLoops:
    with loading():
        from embermq.columns.compiled.queue_table import QueueTable
        from embermq.columns.compiled.sends.frames import SendReader
        from embermq.columns.compiled.sends.replies import write_replies
    return SendLoops(QueueTable(), SendReader(), write_replies)


def end_reader() -> "EndReader":
    """Frames of ends of transactions to rows of a run."""
    with loading():
        from embermq.columns.compiled.sends.ends import EndReader
    return EndReader()


def put_pairs_for(*, compiled: bool) -> PutPairs:
    """One property of every row into the rows' property strings."""
    if not compiled:
        return plain_pairs.put_pairs
    with loading():
        from embermq.columns.compiled.pairs import put_pairs
    return put_pairs


@dataclass(frozen=True, slots=True)
class JoinLoops:
    """Lists of exactly bytes, or exactly str or None, as columns; None for other lists."""

    join_bytes: JoinValues
    join_texts: JoinValues


def join_loops_for(*, compiled: bool) -> JoinLoops:
    if not compiled:
        return JoinLoops(plain_values.join_bytes, plain_values.join_texts)
    with loading():
        from embermq.columns.compiled.values import join_bytes, join_texts
    return JoinLoops(join_bytes, join_texts)


def compiled_write_lines() -> Callable[..., tuple[int, int, Any]]:
    """Records as lines of JSON."""
    with loading():
        from embermq.columns.compiled.json_lines import write_lines
    return write_lines
