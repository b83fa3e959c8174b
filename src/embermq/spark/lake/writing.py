"""One slice of a log into Parquet files, one for each topic and day. Runs in a worker, and may be done twice.

Files are named after the slice, so that doing it again writes the same names. Each file is read back after it was
written, with its page checksums checked, and compared with what was in memory. Bodies of topics that have a schema
are decoded here, into a column beside them.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from embermq.columns import RecordColumns, Selection, compiled_scan, select_for
from embermq.errors import StoreError
from embermq.spark.lake.commits import LakeFile
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.json_bodies import VALUE, BodyDecoder
from embermq.spark.lake.names import date_of, file_name, stem
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter, rows_of
from embermq.spark.options.schema import spark_schema
from embermq.spark.reading.arrow import BatchBuilder
from embermq.store.log import DamagedRange, LogSegment, scan_segments

ROW_GROUP_ROWS = 131_072
_SUMMED = ["physicalOffset", "size", "bodyCrc"]
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class LakeSlice:
    """What a task gets: which part of which log goes where."""

    root: str
    broker_name: str
    segments: tuple[LogSegment, ...]
    start: int
    end: int
    include_system: bool
    as_tables: bool = False  # each topic is a table by itself: its files have the topic as a column
    schemas: Mapping[str, StructType] = field(default_factory=dict)  # of JSON bodies, by topic
    drop_bodies: bool = False  # where a body was decoded
    topics: TopicFilter = EVERYTHING

    @property
    def stem(self) -> str:
        return stem(self.broker_name, self.start, self.end)


class FileNaming(Protocol):
    """Where the rows of a slice go, and what its files are called."""

    @property
    def root(self) -> str: ...

    @property
    def stem(self) -> str:
        """What the names of its files begin with."""

    @property
    def as_tables(self) -> bool: ...

    @property
    def schemas(self) -> Mapping[str, StructType]: ...

    @property
    def drop_bodies(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SliceRows:
    """What became of a slice."""

    start: int
    end: int
    records: int
    rows: int
    damages: tuple[DamagedRange, ...]
    files: tuple[LakeFile, ...]

    @property
    def undecoded(self) -> int:
        return sum(file.undecoded or 0 for file in self.files)


@contextmanager
def clear_disk_errors(place: str) -> Iterator[None]:
    """What a disk refuses, in one line that says where."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem).strip().splitlines()[0]
        raise StoreError(f"the lake {place} cannot be written: {reason}; run it again when that is fixed") from None


@contextmanager
def memory_given_back() -> Iterator[None]:
    """Arrow's own pools keep much of what was freed, and a worker runs long. With the system's one that writes slices
    of 128 MiB peaks at 0.49 GB instead of 0.54, and takes no longer: buffers are large."""
    before, ours = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(ours)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        ours.release_unused()


@memory_given_back()
def write_slice(piece: LakeSlice) -> SliceRows:
    """Write the files of a slice."""
    compiled_scan()  # Loaded before the rest: its threads would wait for one another.
    builder = BatchBuilder(spark_schema("rocketmq"), mode="rocketmq", broker_name=piece.broker_name, decompress=True)
    damages: list[DamagedRange] = []
    parts = RowsByDay()
    records = rows = 0
    for batch, count in _batches(piece, builder, damages):
        records += count
        rows += len(batch)
        parts.add(batch)
    return SliceRows(piece.start, piece.end, records, rows, tuple(damages), tuple(parts.write(piece)))


class RowsByDay:
    """The rows of a slice in memory, by topic and day."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], list[pa.RecordBatch]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for key, part in _by_topic_and_day(batch):
            self._parts.setdefault(key, []).append(part)

    def write(self, piece: FileNaming) -> list[LakeFile]:
        """A file for each topic and day; the rows are given up."""
        files, parts = LakeFiles(piece.root), self._parts
        decoders = {
            topic: BodyDecoder(piece.schemas[topic]) for topic in {key[0] for key in parts} & set(piece.schemas)
        }
        with clear_disk_errors(piece.root):
            return [
                _write(files, piece, topic, date, parts.pop((topic, date)), decoders.get(topic))  # Written rows may go.
                for topic, date in sorted(parts)
            ]


def _batches(
    piece: LakeSlice, builder: BatchBuilder, damages: list[DamagedRange]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Arrow batches of the slice, each with the number of records it was made from."""

    def note(start: int, end: int, reason: str) -> None:
        damages.append(DamagedRange(start, end, reason))

    select = select_for(Selection(include_system=piece.include_system), piece.end - piece.start)
    chosen = rows_of(piece.topics)
    for item in scan_segments(piece.segments, piece.start, piece.end):
        if isinstance(item, RecordColumns):
            yield builder.build(item, chosen(item, select(item)), note), len(item)
        else:
            damages.append(item)


def _by_topic_and_day(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The batch in parts that share topic and day, rows in their order."""
    if not len(batch):
        return
    topics = batch.column("topic").dictionary_encode()
    times = batch.column("storeTimestamp").cast(pa.int64())
    known = times.is_valid().to_numpy(zero_copy_only=False)
    days = np.where(known, times.fill_null(0).to_numpy() // _DAY_US, np.iinfo(np.int32).min)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32 | (days - np.iinfo(np.int32).min)
    distinct, inverse = np.unique(codes, return_inverse=True)
    names = topics.dictionary.to_pylist()
    for number, code in enumerate(distinct.tolist()):
        day = (code & 0xFFFF_FFFF) + np.iinfo(np.int32).min
        key = (names[code >> 32], date_of(None if day == np.iinfo(np.int32).min else day))
        yield key, batch if len(distinct) == 1 else batch.take(np.flatnonzero(inverse == number))


def _write(
    files: LakeFiles,
    piece: FileNaming,
    topic: str,
    date: str,
    batches: list[pa.RecordBatch],
    decoder: BodyDecoder | None,
) -> LakeFile:
    table = pa.Table.from_batches(batches)
    if not piece.as_tables:  # The topic is in the path, where every reader of such a layout looks for it.
        table = table.drop_columns(["topic"])
    undecoded = None
    if decoder is not None:
        table, undecoded = _with_values(table, decoder, piece.drop_bodies)
    name = file_name(topic, date, piece.stem, as_table=piece.as_tables)
    return write_table(files, name, topic, date, table, undecoded)


def _with_values(table: pa.Table, decoder: BodyDecoder, drop_bodies: bool) -> tuple[pa.Table, int]:
    """The rows with their decoded bodies as a last column, and how many have none."""
    bodies = table.column("body")
    parts = [decoder.decode(chunk) for chunk in bodies.chunks]
    values = pa.chunked_array([part for part, _ in parts], decoder.type)
    if drop_bodies:
        kept = pc.if_else(values.is_valid(), pa.scalar(None, bodies.type), bodies)
        table = table.set_column(table.schema.get_field_index("body"), "body", kept)
    return table.append_column(VALUE, values), sum(count for _, count in parts)


def write_table(
    files: LakeFiles, name: str, topic: str, date: str, table: pa.Table, undecoded: int | None = None
) -> LakeFile:
    """Write a file and read it back."""

    def put(place: str) -> None:
        pq.write_table(
            table,
            place,
            filesystem=files.arrow,
            compression="zstd",
            row_group_size=ROW_GROUP_ROWS,
            write_page_checksum=True,
            use_dictionary=["topic", "brokerName", "tags", "bornHost", "storeHost"],
        )

    size = files.write_with(name, put)
    wanted = LakeFile(name, topic, date, len(table), size, columns_crc(table), undecoded)
    check_file(files, wanted)
    return wanted


def columns_crc(table: pa.Table) -> int:
    """CRC-32 of the columns that pin down which records these are."""
    crc = 0
    for column in _SUMMED:
        for chunk in table.column(column).cast(pa.int64()).chunks:
            crc = zlib.crc32(chunk.to_numpy(zero_copy_only=False).astype("<i8").tobytes(), crc)
    return crc


def check_file(files: LakeFiles, known: LakeFile) -> None:
    """StoreError unless the file is there, whole, and holds the rows it should; every page is read."""
    place = files.full(known.path)
    try:
        table = pq.read_table(
            place, filesystem=files.arrow, page_checksum_verification=True, partitioning=None, use_threads=False
        )
    except (OSError, pa.ArrowInvalid) as problem:
        raise StoreError(f"{place}: cannot be read back: {problem}") from None
    found = (len(table), columns_crc(table))
    if found != (known.rows, known.crc):
        raise StoreError(
            f"{place}: holds {found[0]:,} rows with checksum {found[1]:08x}, and the commit says {known.rows:,} with"
            f" {known.crc:08x}; restore the file, or archive this range again into a new lake"
        )
