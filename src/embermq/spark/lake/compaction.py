"""Small files of a topic and day become one; and files are read back. Runs in workers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from embermq.spark.lake.commits import LakeFile
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.json_bodies import VALUE, conform, value_type
from embermq.spark.lake.writing import SliceRows, check_file, clear_disk_errors, write_table

COMPACT_FILES_MIN = 4
JOINED_BYTES_MAX = 128 << 20  # compressed: a task has all of it in memory
_SMALL_PART = 4  # a file below this part of the wanted size is small


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    files_before: int
    files_after: int


@dataclass(frozen=True, slots=True)
class Joining:
    """Files that become one."""

    root: LakeFiles
    files: tuple[LakeFile, ...]
    name: str
    schema: StructType | None = None  # of the topic's JSON bodies


def groups_of_small_files(
    files: Sequence[LakeFile], size: int = JOINED_BYTES_MAX, *, full_only: bool = False
) -> tuple[int, list[list[LakeFile]]]:
    """How many small files there are, and those that are worth joining into files of `size` bytes; with `full_only`
    just those that come near to it, which then are not joined again."""
    small = sorted(
        (file for file in files if file.bytes < size // _SMALL_PART),
        key=lambda file: (file.topic, file.date, file.path),
    )
    days = [list(found) for _, found in groupby(small, key=lambda file: (file.topic, file.date))]
    groups = [group for day in days for group in _cut(day, size)]
    least = size // 2 if full_only else 0
    return len(small), [
        group for group in groups if len(group) >= COMPACT_FILES_MIN and sum(file.bytes for file in group) >= least
    ]


def _cut(files: Sequence[LakeFile], size: int) -> Iterator[list[LakeFile]]:
    """In parts that make a file of a handy size."""
    part: list[LakeFile] = []
    octets = 0
    for file in files:
        if part and octets + file.bytes > size:
            yield part
            part, octets = [], 0
        part.append(file)
        octets += file.bytes
    yield part


def join_files(piece: Joining) -> SliceRows:
    places = [piece.root.full(file.path) for file in piece.files]
    tables = [
        pq.read_table(place, filesystem=piece.root.arrow, page_checksum_verification=True, partitioning=None)
        for place in places
    ]
    undecoded = None
    if piece.schema is not None and any(file.undecoded is not None for file in piece.files):
        tables = [_with_all_fields(table, value_type(piece.schema)) for table in tables]
        undecoded = sum(file.undecoded or 0 for file in piece.files)
    first = piece.files[0]
    with clear_disk_errors(piece.root.root):
        made = write_table(piece.root, piece.name, first.topic, first.date, pa.concat_tables(tables), undecoded)
    return SliceRows(0, 0, 0, made.rows, (), (made,))


def _with_all_fields(table: pa.Table, type_: pa.DataType) -> pa.Table:
    """Files that were written before the schema grew, or before there was one, have nulls there."""
    if VALUE not in table.column_names:
        return table.append_column(VALUE, pa.nulls(len(table), type_))
    values = conform(table.column(VALUE), type_)
    return table.set_column(table.schema.get_field_index(VALUE), VALUE, values)


def check_piece(piece: tuple[LakeFiles, LakeFile]) -> None:
    check_file(*piece)
