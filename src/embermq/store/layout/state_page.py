"""The state page: one small file of ours, `embermq.state`, that says how far each family of files is proven.

    at   field                 meaning
     0   magic                 b"EMBRMQ01"
     8   epoch                 random, made with the store: another store at the same path has another one
    16   flushed               every log byte below is durable
    24   queues_written        queue entries of records below are in the queue files, for other processes
    32   queues_durable        ... and durable
    40   queue_files           how many queue files there are
    48   tail_mark             a record begins here, some way before the end: a start reads at least from here
    56   identity              of this very file: the page of a copied directory proves nothing
    64   boot                  of the machine while the store runs: if it is still the same, the machine did not
                               stop, and what was written counts as well as what was synced; 0: unknown
    72   index_files           how many index files there are
    80   sync_flush            1 while the store is open with SYNC_FLUSH: what is not flushed is not shown
    88   log_only              1 while the store is open with dispatch="none": others may derive queues and index
    96   writer                the fencing token of the process that has the store open for writing (fence.py); 0: none
   104   writer_pid            the id of that process
   128   the same numbers again, every bit turned over

A bit that turns over by itself must not make a start cut into a good log: a page whose two halves disagree
proves nothing. Both lie in one sector, which a disk writes as a whole.
Pages of earlier versions have zeros from sync_flush on, and for the inverses, which counts as 0.

Little-endian 64-bit numbers in a mapped page. A number is raised only after what it stands for has been
synced, so whatever version of the page a power cut leaves behind is true. Each family has a number of
its own, and the index a file of its own (index/proof.py): none proves another. RocketMQ ignores
all of them; without them recovery assumes nothing.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from embermq.files import Files, OpenFile

STATE_FILE = "embermq.state"
PAGE_BYTES = 4096
_MAGIC = int.from_bytes(b"EMBRMQ01", "little")
_FIELDS = (
    "magic",
    "epoch",
    "flushed",
    "queues_written",
    "queues_durable",
    "queue_files",
    "tail_mark",
    "identity",
    "boot",
    "index_files",
    "sync_flush",
    "log_only",
    "writer",
    "writer_pid",
)
_FIELDS_OF_OLD = _FIELDS.index("sync_flush")  # Pages of earlier versions end there.
_INVERSE = 16  # From a number to its inverse.
_LOOKS_MAX = 100  # The page of a live store may be looked at between a number and its inverse.


class StatePage:
    """The numbers as attributes; assigning stores into the page. One writer per number, any reader."""

    magic: int
    epoch: int
    flushed: int
    queues_written: int
    queues_durable: int
    queue_files: int
    tail_mark: int
    identity: int
    boot: int
    index_files: int
    sync_flush: int
    log_only: int
    writer: int
    writer_pid: int

    def __init__(self, file: OpenFile, writable: bool) -> None:
        object.__setattr__(self, "_file", file)
        object.__setattr__(self, "_writable", writable)
        mapped = file.map(writable, PAGE_BYTES)
        object.__setattr__(self, "_mapped", mapped)
        object.__setattr__(self, "_numbers", np.frombuffer(mapped, dtype="<i8"))

    def __getattr__(self, name: str) -> Any:
        try:
            return int(self._numbers[_FIELDS.index(name)])
        except ValueError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: int) -> None:
        assert self._writable
        at = _FIELDS.index(name)
        self._numbers[at] = value
        self._numbers[at + _INVERSE] = ~value

    def sync(self) -> None:
        self._file.sync()

    def cell(self, name: str) -> memoryview:
        """One number as mapped memory, for a look that costs next to nothing. Release it before the page is closed."""
        at = 8 * _FIELDS.index(name)
        return self._mapped[at : at + 8].cast("q")  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the file go; the numbers stay as they are now."""
        object.__setattr__(self, "_mapped", memoryview(b""))
        object.__setattr__(self, "_numbers", self._numbers.copy())
        self._file.close()

    def is_whole(self) -> bool:
        """Do all numbers agree with their inverses?"""
        count = len(_FIELDS)
        inverse = self._numbers[_INVERSE : _INVERSE + count]
        agree = self._numbers[:count] == ~inverse
        unknown_then = (self._numbers[_FIELDS_OF_OLD:count] == 0) & (inverse[_FIELDS_OF_OLD:] == 0)
        return bool(agree[:_FIELDS_OF_OLD].all()) and bool((agree[_FIELDS_OF_OLD:] | unknown_then).all())

    def values(self) -> dict[str, int]:
        return {name: int(self._numbers[at]) for at, name in enumerate(_FIELDS)}


def load_state_page(files: Files, root: Path, *, writable: bool) -> StatePage | None:
    """The page of the store at `root`; None if there is none that can be believed."""
    path = root / STATE_FILE
    try:
        found = files.stat(path)
        if not found.is_file or found.size != PAGE_BYTES:
            return None
        page, identity = StatePage(files.open(path, writable), writable), files.identity(path)
    except FileNotFoundError:  # There is none, or it is being made anew just now.
        return None
    if not any(page.is_whole() for _ in range(1 if writable else _LOOKS_MAX)):
        return None
    numbers = page.values()
    if numbers.pop("magic") != _MAGIC or any(number < 0 for number in numbers.values()):
        return None
    return page if page.identity == identity else None


def create_state_page(files: Files, root: Path, epoch: int) -> StatePage:
    """A fresh page that proves nothing, in the place of whatever was there."""
    path = root / STATE_FILE
    with suppress(FileNotFoundError):
        files.remove(path)
    page = StatePage(files.create(path, PAGE_BYTES, fallocate=True), True)
    for name in _FIELDS[1:]:
        setattr(page, name, 0)
    page.epoch = epoch
    page.identity = files.identity(path)
    page.magic = _MAGIC
    page.sync()
    files.sync_directory(root)
    return page
