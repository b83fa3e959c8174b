"""Hashes of answers: what a store holds after the work, by whatever program and however fast.

Store times are left out, since they are the clock's doing. Everything is read from the files themselves,
and the log through the plain rules of the format where it is short; only after the measuring is over.
"""

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import C_PHYSICAL, C_SIZE, N_COLUMNS, Rows, new_rows
from embermq.format.frame import ScanStop
from embermq.format.index import HEADER_BYTES as INDEX_HEADER_BYTES

DIGITS = 12
_ROWS = 16_384
_STORE_TIME = np.arange(56, 64)  # Of a record with two IPv4 hosts.
_NO_DELAYS = np.zeros(0, np.int64)
_INDEX_ENTRY = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_QUEUE_ENTRY = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tag", ">i8")])

Bytes = NDArray[np.uint8]


class LogAnswer(NamedTuple):
    digest: str
    records: int
    end: int


def map_file(path: Path) -> Bytes:
    """A file as a read-only array over a new mapping."""
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)


def log_files(path: Path) -> list[Path]:
    return sorted(file for file in (path / "commitlog").iterdir() if file.stat().st_size)


def walk(path: Path, scan: Any, *, start: int = 0, check_crc: bool = True) -> Iterator[tuple[Bytes, int, Rows, int]]:
    """The log in order, as (bytes of a file, its start, rows, end of the rows in the file)."""
    rows = new_rows(_ROWS)
    for file in log_files(path):
        base, data = int(file.name), map_file(file)
        at, stop = max(0, start - base), int(ScanStop.BUFFER_END)
        while at < len(data):
            count, at, stop = scan(data, base, at, len(data), rows, _NO_DELAYS, check_crc, True)
            if count:
                yield data, base, rows[:count], at
            if stop not in (ScanStop.ROWS_FULL, ScanStop.BUFFER_END):
                break
        if stop not in (ScanStop.BLANK, ScanStop.BUFFER_END):
            return


def log_answer(path: Path) -> LogAnswer:
    """Every byte of every record but the store times."""
    from embermq.columns.compiled.scan import scan

    digest = hashlib.sha256()
    records = end = 0
    for data, base, rows, stop in walk(path, scan):
        first = int(rows[0, C_PHYSICAL]) - base
        copy = data[first:stop].copy()
        places = (rows[:, C_PHYSICAL] - base - first)[:, None] + _STORE_TIME
        copy[places] = 0
        digest.update(copy.data)
        records += len(rows)
        end = int(rows[-1, C_PHYSICAL] + rows[-1, C_SIZE])
    return LogAnswer(digest.hexdigest()[:DIGITS], records, end)


def rows_digest(rows: Rows) -> str:
    assert rows.shape[1] == N_COLUMNS
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()[:DIGITS]


def derived_answer(path: Path) -> str:
    """Every queue entry and every index entry of a store."""
    digest = hashlib.sha256()
    for file in sorted((path / "consumequeue").rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)}\n".encode() + _written_entries(file))
    for file in sorted((path / "index").glob("*")):
        data = map_file(file)
        header = np.frombuffer(data[:INDEX_HEADER_BYTES].tobytes(), ">i4")
        count = int(header[-1])
        at = _index_entries_at(len(data), file)
        entries = np.frombuffer(data, _INDEX_ENTRY, count=count, offset=at)
        for column in ("hash", "physical", "previous"):
            digest.update(np.ascontiguousarray(entries[column]).tobytes())
    return digest.hexdigest()[:DIGITS]


def _written_entries(file: Path) -> bytes:
    """The entries of a queue file up to the first that was never written: the rest is a hole of megabytes."""
    written = bytearray()
    with file.open("rb") as opened:
        while portion := opened.read(_QUEUE_ENTRY.itemsize * 4096):
            sizes = np.frombuffer(portion, _QUEUE_ENTRY)["size"]
            empty = np.flatnonzero(sizes == 0)
            if len(empty):
                return bytes(written + portion[: int(empty[0]) * _QUEUE_ENTRY.itemsize])
            written += portion
    return bytes(written)


def _index_entries_at(file_bytes: int, file: Path) -> int:
    """Where entries begin, from the length of the file: RocketMQ has 4 entries for each slot, as we do."""
    slots, rest = divmod(file_bytes - INDEX_HEADER_BYTES, 4 + 4 * _INDEX_ENTRY.itemsize)
    assert rest == 0, f"{file}: not four entries a slot"
    return INDEX_HEADER_BYTES + 4 * slots


def joined(*parts: object) -> str:
    """One hash of several parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGITS]
