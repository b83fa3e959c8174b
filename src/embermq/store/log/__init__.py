"""The commit log: every record of every topic, one after another, in fixed-size files.

    commit_log.py   segments as one log: append, read, positions
    walk.py         records as columns, in order; dispatch and recovery both walk here
    records.py      single records as messages, checked
    file_scan.py    scanning log files from nothing but (path, start, size): for readers in other processes
    damage.py       quarantine and fillers
    tail_mark.py    a place near the end where a record begins
    walked_log.py, bad_stretches.py   the log as one walk found it; stretches without records, searched once

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.log.commit_log import CommitLog, Lent
from embermq.store.log.damage import FILLER_TOPIC, Damage, Quarantine, repaired_ranges
from embermq.store.log.file_scan import (
    MISSING,
    ROWS_MAX,
    DamagedRange,
    LogSegment,
    ScanEnd,
    Scanned,
    ScanSettings,
    frame_at,
    is_record,
    next_record,
    records_of,
    scan_segments,
    segment_at,
)
from embermq.store.log.walk import ScannedStep, Walker

__all__ = [
    "CommitLog",
    "Damage",
    "DamagedRange",
    "FILLER_TOPIC",
    "Lent",
    "LogSegment",
    "MISSING",
    "Quarantine",
    "ROWS_MAX",
    "ScanSettings",
    "Scanned",
    "ScannedStep",
    "ScanEnd",
    "Walker",
    "frame_at",
    "is_record",
    "next_record",
    "records_of",
    "repaired_ranges",
    "scan_segments",
    "segment_at",
]
