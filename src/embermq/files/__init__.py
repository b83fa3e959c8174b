"""The disk, and nothing about messages: one seam to the file system, and the segmented files built on it.

    files.py, real_files.py  Files, the seam, and RealFiles, the disk
    looking.py               a look at very many small files: names of a directory, ends of a file
    segment.py, segments.py  one log file, and all of them in order; segment_listing.py: by their names
    allocation.py            the thread that makes the next files ahead; warming.py: their pages before the first use
    open_files.py            a bounded number of descriptors over any number of derived files
    locking.py               the lock of a store directory
    backed_up_file.py        one small JSON file with its backup
    pool.py, memory.py       private buffers; advice about mapped memory
    bell.py, work_thread.py  waking and waiting for threads, where signal handlers may raise
    trees.py, limits.py, fault_tolerant_files.py

Other packages import from this face, not from the modules behind it.
"""

from embermq.files.allocation import SegmentAllocator
from embermq.files.backed_up_file import BackedUpFile, Decoded, read_with_backup
from embermq.files.bell import Bell
from embermq.files.checksums import BLOCK_BYTES, NO_CHECKSUMS, CheckedBlocks, Checksums, FileDamaged, take_checksums
from embermq.files.directories import OpenDirectory, PathKind, mount_of
from embermq.files.fault_tolerant_files import BadBlock, FaultTolerantFiles
from embermq.files.files import (
    Data,
    DirectoryEntry,
    DiskUsage,
    Files,
    Lock,
    OpenFile,
    entries_of,
    list_names_by_steps,
    make_directories,
    names_of,
    read_ends_by_steps,
    replace_durably,
)
from embermq.files.lock_holders import UNKNOWN, command_line, has_open_for_writing, holder_of
from embermq.files.locking import CONTENT, LockHeld
from embermq.files.looking import FileEnds, FoundName
from embermq.files.memory import drop, populate_for_reading
from embermq.files.misplaced import put_aside
from embermq.files.open_files import OPEN_MAX, READ_OPEN_MAX, OpenFiles, open_if_there
from embermq.files.pool import TransientPool
from embermq.files.real_files import RealFile, RealFiles
from embermq.files.regular import WHOLE_BYTES_MAX, NotRegular, TooLarge, read_whole
from embermq.files.segment import Bytes, Segment
from embermq.files.segment_listing import LEFT_ALONE, REST_IGNORED, SegmentFinding, found_size, misfits
from embermq.files.segments import Segments
from embermq.files.trees import Ours, copy_file, foreign_in, remove_tree
from embermq.files.work_thread import WorkThread

__all__ = [
    "BLOCK_BYTES",
    "BackedUpFile",
    "BadBlock",
    "Bell",
    "Bytes",
    "CONTENT",
    "CheckedBlocks",
    "Checksums",
    "Data",
    "Decoded",
    "DiskUsage",
    "DirectoryEntry",
    "FaultTolerantFiles",
    "FileDamaged",
    "FileEnds",
    "Files",
    "FoundName",
    "PathKind",
    "LEFT_ALONE",
    "Lock",
    "LockHeld",
    "NO_CHECKSUMS",
    "NotRegular",
    "OPEN_MAX",
    "READ_OPEN_MAX",
    "OpenDirectory",
    "OpenFile",
    "OpenFiles",
    "Ours",
    "REST_IGNORED",
    "RealFile",
    "RealFiles",
    "Segment",
    "SegmentAllocator",
    "SegmentFinding",
    "Segments",
    "TooLarge",
    "TransientPool",
    "UNKNOWN",
    "WHOLE_BYTES_MAX",
    "WorkThread",
    "command_line",
    "copy_file",
    "drop",
    "entries_of",
    "foreign_in",
    "has_open_for_writing",
    "holder_of",
    "list_names_by_steps",
    "make_directories",
    "misfits",
    "mount_of",
    "names_of",
    "open_if_there",
    "populate_for_reading",
    "put_aside",
    "read_ends_by_steps",
    "read_whole",
    "read_with_backup",
    "remove_tree",
    "replace_durably",
    "found_size",
    "take_checksums",
]
