"""Staged files: what one task wrote, on the disk until the commit has appended it.

    <staging>/query-<queryId>/<batchId>/<partition>-<attempt>-<random>.arrow      a micro-batch
    <staging>/job-<random>/0/<partition>-<attempt>-<random>.arrow                 a batch write

A file is written under a temporary name, synced, renamed, and its directory synced: one that has its name is whole.
Names never come twice, so an attempt that goes on after it was given up does no harm. The bytes:
docs/format/spark-staging.md. Written in tasks, read by the commit; any thread, one file each.
"""

import io
import logging
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from embermq.errors import StoreError
from embermq.files import Files, OpenFile, Ours, PathKind, remove_tree
from embermq.model.message import Message
from embermq.spark.writing.write_rows import STAGED_SCHEMA
from embermq.store.layout import COMMIT_LOG

log = logging.getLogger(__name__)

QUERY_PREFIX = "query-"  # streams
JOB_PREFIX = "job-"  # batch writes
SUFFIX = ".arrow"
VERSION = b"1"
_VERSION_KEY, _BORN_KEY = b"embermq.staging", b"embermq.bornTimestamp"
_BUFFER_BYTES = 1 << 20
_NAME = re.compile(r"[0-9]{1,10}-[0-9]{1,19}-[0-9a-f]{16}\.arrow")


class StagedFile(msgspec.Struct, frozen=True):
    """What the commit must know of a staged file. Part of the journal."""

    name: str
    partition: int
    rows: int
    size_bytes: int
    crc: int  # CRC-32 of the whole file


def batch_directory(staging: Path, write: str, batch: int) -> Path:
    return staging / write / str(batch)


def make_directory(files: Files, directory: Path, store: Path) -> None:
    """Make a directory for staged files. One inside a store that does not exist yet makes it one, an empty one."""
    if store in directory.parents:
        files.make_directory(store / COMMIT_LOG)
    files.make_directory(directory)


def stage(
    files: Files, directory: Path, partition: int, attempt: int, batches: Iterable[pa.RecordBatch], born_ms: int
) -> StagedFile | None:
    """Write `batches` (of STAGED_SCHEMA) as one file; None if there are no rows. Nothing stays behind on error."""
    name = f"{partition}-{attempt}-{secrets.token_hex(8)}{SUFFIX}"
    temporary = directory / f"{name}.tmp"
    opened: OpenFile | None = None
    rows = 0
    try:
        opened = files.create(temporary, 0, fallocate=False)
        sink = _Sink(opened)
        schema = STAGED_SCHEMA.with_metadata({_VERSION_KEY: VERSION, _BORN_KEY: b"%d" % born_ms})
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema) as writer:
            for batch in batches:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
                rows += batch.num_rows
        sink.drain()
        if not rows:
            files.remove(temporary)
            return None
        opened.sync()
    except BaseException:
        if opened is not None:
            files.remove(temporary)
        raise
    finally:
        if opened is not None:
            opened.close()
    files.rename(temporary, directory / name)
    files.sync_directory(directory)
    return StagedFile(name, partition, rows, sink.size_bytes, sink.crc)


class _Sink(io.RawIOBase):
    """An open file as Arrow wants one: written from its beginning on, in pieces worth a call to the system."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self._pending = bytearray()
        self.size_bytes = self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._pending += view
        if len(self._pending) >= _BUFFER_BYTES:
            self.drain()
        return len(view)

    def tell(self) -> int:
        return self.size_bytes + len(self._pending)

    def drain(self) -> None:
        pending, self._pending = self._pending, bytearray()
        if pending:
            self._file.pwrite(pending, self.size_bytes)
            self.crc = zlib.crc32(pending, self.crc)
            self.size_bytes += len(pending)


def check_file(files: Files, directory: Path, staged: StagedFile) -> None:
    """StoreError unless the file is there, byte for byte as it was staged."""
    path = directory / staged.name
    if not _NAME.fullmatch(staged.name):
        raise StoreError(f"{path}: no name of a staged file")
    if not files.exists(path):
        raise StoreError(f"{path}: the staged file is gone, with {staged.rows:,} rows that were not appended yet")
    with _Mapped(files, path) as data:
        if len(data) != staged.size_bytes or zlib.crc32(data) != staged.crc:
            raise StoreError(f"{path}: the staged file is damaged or cut; {staged.size_bytes} bytes were written")


def iter_messages(files: Files, directory: Path, staged: StagedFile, skip: int = 0) -> Iterator[list[Message]]:
    """The messages of a staged file in order, without the first `skip`; in lists as long as the writer's batches."""
    with _Mapped(files, directory / staged.name) as data:
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data)))
        metadata = reader.schema.metadata or {}
        if metadata.get(_VERSION_KEY) != VERSION:
            raise StoreError(f"{directory / staged.name}: staged by another version; commit it with that one")
        born_ms = int(metadata[_BORN_KEY])
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            columns = [column.to_pylist() for column in batch.slice(skip).columns]
            skip = 0
            yield [
                Message(topic, body, queue_id=queue_id, encoded_properties=properties, born_timestamp=born_ms)
                for topic, queue_id, properties, body in zip(*columns, strict=True)
            ]
            del batch, columns


class _Mapped:
    """A file mapped for reading. The mapping goes with its last view."""

    def __init__(self, files: Files, path: Path) -> None:
        self._file = files.open(path, False)

    def __enter__(self) -> memoryview:
        return self._file.map(False)

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def clear_staged(files: Files, staging_root: Path, write: str, *, up_to: int | None) -> None:
    """Delete what was staged for a write: batches up to a number, or (None) all. What is not there is fine."""
    directory = staging_root / write
    if not files.exists(directory):
        return
    if up_to is None:
        _remove_tree(files, directory, _in_write)
        return
    for entry in files.list_directory(directory):
        if entry.name.isdecimal() and int(entry.name) <= up_to:
            _remove_tree(files, directory / entry.name, _in_batch)


def clear_forgotten(files: Files, staging_root: Path, needed: Path | None, before_ms: int) -> None:
    """Delete directories of writes in which nothing has changed since `before_ms`, but for the one still `needed`."""
    if not files.exists(staging_root):
        return
    for entry in files.list_directory(staging_root):
        directory = staging_root / entry.name
        if entry.is_link or not entry.is_directory or (needed is not None and needed.is_relative_to(directory)):
            continue
        if entry.name.startswith((QUERY_PREFIX, JOB_PREFIX)) and _is_forgotten(files, directory, before_ms):
            _remove_tree(files, directory, _in_write)


def _is_forgotten(files: Files, directory: Path, before_ms: int) -> bool:
    """It was not touched since then. What cannot be looked at may be in use: it may be being cleared right now."""
    try:
        return _newest_change_ms(files, directory) < before_ms
    except OSError as problem:
        log.info("left for later path=%s error=%s", directory, problem)
        return False


def _newest_change_ms(files: Files, directory: Path) -> int:
    newest = files.stat(directory).mtime_ns
    for entry in files.list_directory(directory):
        newest = max(newest, entry.mtime_ns)
        if entry.is_directory and not entry.is_link:
            newest = max(newest, _newest_change_ms(files, directory / entry.name) * 1_000_000)
    return newest // 1_000_000


def _remove_tree(files: Files, path: Path, ours: Ours) -> None:
    """Delete a directory of staged files. What tasks did not write stays, and what a link leads to. A task that was
    given up may still be writing there: then some stays."""
    try:
        for left in remove_tree(files, path, ours):
            log.warning("not_staged_by_us path=%s", left)
    except OSError as problem:
        log.info("left for later path=%s error=%s", path, problem)


def _in_batch(parts: tuple[str, ...], kind: PathKind) -> bool:
    """Below the directory of a batch."""
    return len(parts) == 1 and kind is PathKind.FILE and _NAME.fullmatch(parts[0].removesuffix(".tmp")) is not None


def _in_write(parts: tuple[str, ...], kind: PathKind) -> bool:
    """Below the directory of a write."""
    return _in_batch(parts[1:], kind) if len(parts) > 1 else kind is PathKind.DIRECTORY and parts[0].isdecimal()
