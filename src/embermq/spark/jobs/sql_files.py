"""The rows of a query as a file: CSV, Parquet or JSON Lines, by its suffix. As a whole or not at all. Driver side.

CSV and JSON Lines have no bytes: these become text. Nested values of CSV are JSON, null is nothing at all, and an empty
text is "".
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType, VariantType

from embermq.errors import OptionInvalid
from embermq.spark.runtime.error_parsing import our_errors

_NESTED = (ArrayType, MapType, StructType, VariantType)


def check_rows_file(place: str) -> Path:
    """OptionInvalid if rows cannot be written there: said before the query runs."""
    target = Path(place).expanduser()
    if target.suffix not in _WRITERS:
        raise OptionInvalid("save", f"choose a name that ends with {', '.join(_WRITERS)}", value=place)
    if target.exists():
        raise OptionInvalid("save", "there is a file of this name already", value=place)
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise OptionInvalid("save", f"{target.parent} is no directory that can be written", value=place)
    return target


def save_rows(frame: DataFrame, target: Path) -> int:
    """All rows of an answer into a file that `check_rows_file` has seen; how many. They go through memory."""
    with our_errors("sql"):
        table = (frame if target.suffix == ".parquet" else as_text(frame, nested=target.suffix == ".csv")).toArrow()
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _WRITERS[target.suffix](table, half)
        half.replace(target)
    except (OSError, pa.ArrowException) as problem:
        half.unlink(missing_ok=True)
        raise OptionInvalid("save", f"cannot be written: {problem}", value=str(target)) from None
    return len(table)


def csv_text(frame: DataFrame) -> bytes:
    """The rows as CSV, with a line of names before them."""
    with our_errors("sql"):
        table = as_text(frame, nested=True).toArrow()
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def as_text(frame: DataFrame, *, nested: bool) -> DataFrame:
    """With bytes, and nested values if they are asked for, as text."""
    columns = [_column(position, field.dataType, nested) for position, field in enumerate(frame.schema)]
    plain = frame.toDF(*(f"c{position}" for position in range(len(columns))))  # Names may come twice, and have dots.
    return plain.select(*columns).toDF(*frame.columns)


def _column(position: int, kind: DataType, nested: bool) -> Column:
    column = F.col(f"c{position}")
    if isinstance(kind, BinaryType):
        return column.cast("string")
    return F.to_json(column) if nested and isinstance(kind, _NESTED) else column


def _write_lines(table: pa.Table, place: Path) -> None:
    with place.open("w", encoding="utf-8") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            file.writelines(json.dumps(row, ensure_ascii=False, default=_plain) + "\n" for row in batch.to_pylist())


def _plain(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


_WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {
    ".csv": lambda table, place: pa_csv.write_csv(table, place),
    ".parquet": lambda table, place: pq.write_table(table, place, compression="zstd"),
    ".jsonl": _write_lines,
}
