"""What an open store allows now, and its running flags: what there is against reading and writing, in RocketMQ's bits.

    bit  flag                     set
      1  not readable             set_readable(False)
      2  not writeable            set_writable(False), or a sync of the log failed
      4  logics queue error       queue files cannot be written: entries wait in memory, until a later try works
      8  index error              the index could not be written: it gets nothing more until the next opening
     16  disk full                past emberDiskFullPercent
     32  fenced                   another process has opened the store for writing

Bits 2, 16 and 32 refuse appends. Bits 4 and 8 do not, unlike in RocketMQ: the log has everything, and the next opening
derives what is missing; a broker that wants RocketMQ's rule looks at the bits. Bit 1 refuses every call that hands
messages out (`fetch`, `read_raw`, `find`, `index_offsets`, `get`, `at`, `scan`). Positions, counts and statistics are
answered, and so is `read_log`: as in RocketMQ a replica goes on copying a log that consumers may not read.

Bit 32 is new in RocketMQ 5; 4.9 has the other five. Any thread.
"""

from enum import IntFlag
from pathlib import Path
from typing import Any

from embermq.errors import ReadRefused, StoreClosed, StoreReadOnly, TopicNameInvalid


class RunningFlag(IntFlag):
    """What there is against reading or writing a store; 0: nothing."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32

    @property
    def text(self) -> str:
        """The names of what is set, as in `DISK_FULL|FENCED`; empty if nothing is."""
        return "|".join(str(flag.name) for flag in RunningFlag if flag in self)


class Access:
    """Whether a store is open, may be read and may be written; the checks every call begins with."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path, self.read_only = path, read_only
        self.closed, self.closed_why = False, "is closed"
        self.is_readable = self.is_writable = True  # The operator's switches.

    def close(self, why: str = "is closed") -> None:
        """From now on every call is refused."""
        self.closed, self.closed_why = True, why

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed(self.path, self.closed_why)

    def check_writable(self) -> None:
        """StoreReadOnly of a store that was opened read-only. What refuses single appends is up to the writer."""
        self.check_open()
        if self.read_only:
            raise StoreReadOnly(self.path)

    def check_readable(self) -> None:
        self.check_open()
        if not self.is_readable:
            raise ReadRefused("reads are switched off: set_readable(True) switches them on")


def check_topic(topic: Any) -> None:
    """TopicNameInvalid for what can be no topic; every call that is given one asks this first."""
    if not isinstance(topic, str) or not topic:
        raise TopicNameInvalid(topic, "a topic name is a text of 1 to 127 characters")
