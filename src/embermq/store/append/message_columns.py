"""Columns of messages, as bulk writers have them, made into a packed batch (packed.py).

    topic, bodies, tags, keys, properties: lists or Arrow arrays  -->  rows and three byte strings

A list is joined to one byte string, by a kernel where kernels are used; an Arrow array has that form already and is
used as it lies, by its buffers. Nothing is made for each message. The rules are those of `Message`: tags and keys are
the properties TAGS and KEYS, a property string has the order of a Java HashMap, an empty tag or key is none.

Arrow arrays are known by what they offer (`type`, `offset`, `buffers`), so that no Arrow library is needed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    R_BODY_AT,
    R_BODY_LEN,
    R_BORN_TIME,
    R_PROPS_AT,
    R_PROPS_LEN,
    R_QUEUE_ID,
    R_TOPIC_AT,
    R_TOPIC_LEN,
    JoinLoops,
    ValueColumn,
    join_loops_for,
    measure_pairs,
    new_run_rows,
    put_pairs_for,
)
from embermq.errors import MessageRejected, PropertyInvalid
from embermq.model.message import join_keys
from embermq.model.properties import KEYS, TAGS, encode_properties, hash_map_order
from embermq.store.append.packed import PackedBatch

# With more names the order of a row's properties depends on how many of them it has.
NAMES_MAX = 8
_OFFSET_TYPES = {
    "binary": np.int32,
    "string": np.int32,
    "large_binary": np.int64,
    "large_string": np.int64,
}
_NO_BYTES = b""


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages as their senders' columns; what each may be is in docs/api.md."""

    topic: Any
    bodies: Any
    tags: Any = None
    keys: Any = None
    properties: Any = None
    queue_id: Any = 0
    born_timestamp: Any = None

    def pack(self, *, compiled: bool) -> PackedBatch:
        """The batch of these columns; MessageRejected if they are not columns of messages."""
        join = join_loops_for(compiled=compiled)
        body = _bytes_column(self.bodies, join)
        rows = len(body.lengths)
        columns = _property_columns(self.tags, self.keys, self.properties, rows, join)
        text, text_starts, text_lengths = _property_strings(columns, rows, compiled)
        names = _column_of("topic", self.topic, rows, join)
        if (names.lengths < 0).any():
            raise MessageRejected("topic: a row has none")
        packed = new_run_rows(rows)
        packed[:, R_BODY_AT], packed[:, R_BODY_LEN] = body.starts, body.lengths
        packed[:, R_TOPIC_AT], packed[:, R_TOPIC_LEN] = names.starts, names.lengths
        packed[:, R_PROPS_AT], packed[:, R_PROPS_LEN] = text_starts, text_lengths
        packed[:, R_QUEUE_ID] = _numbers("queue_id", self.queue_id, rows)
        if self.born_timestamp is not None:
            packed[:, R_BORN_TIME] = _numbers("born_timestamp", self.born_timestamp, rows)
        return PackedBatch(packed, bodies=body.data, topics=names.data, properties=text)


# -- columns -------------------------------------------------------------------------------------------------------


def _bytes_column(bodies: Any, join: JoinLoops) -> ValueColumn:
    if is_arrow(bodies):
        column = _arrow_column("bodies", bodies)
        if (column.lengths < 0).any():
            raise MessageRejected(f"bodies: row {int(np.argmin(column.lengths))} is null; an empty body is not")
        return column
    listed = _listed("bodies", bodies)
    joined = join.join_bytes(listed)
    if joined is not None:
        return joined
    some = [_as_bytes(row, body) for row, body in enumerate(listed)]
    return _joined(b"".join(some), np.fromiter(map(len, some), np.int64, len(some)))


def _as_bytes(row: int, body: Any) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise MessageRejected(f"bodies: row {row} is of type {type(body).__name__}; bytes are expected")


def _column_of(name: str, given: Any, rows: int, join: JoinLoops) -> ValueColumn:
    """A text for all rows, or a text (or None) for each."""
    if isinstance(given, str):
        data = _encoded(name, given)
        return ValueColumn(data, np.zeros(rows, np.int64), np.full(rows, len(data), np.int64))
    column = _arrow_column(name, given) if is_arrow(given) else _text_column(name, _listed(name, given), join)
    return _of_rows(name, column, rows)


def _of_rows(name: str, column: ValueColumn, rows: int) -> ValueColumn:
    """The column, if it has a value for each message."""
    if len(column.lengths) != rows:
        raise MessageRejected(f"{name}: {len(column.lengths)} rows, where there are {rows} bodies")
    return column


def _text_column(name: str, listed: Sequence[Any], join: JoinLoops) -> ValueColumn:
    joined = join.join_texts(listed)
    if joined is not None:
        return joined
    wrong = next((text for text in listed if text is not None and not isinstance(text, str)), None)
    if wrong is not None:
        raise MessageRejected(f"{name}: a row is of type {type(wrong).__name__}; texts are expected")
    some = [b"" if text is None else _encoded(name, text) for text in listed]
    column = _joined(b"".join(some), np.fromiter(map(len, some), np.int64, len(some)))
    column.lengths[[text is None for text in listed]] = -1
    return column


def _joined(data: bytes, lengths: NDArray[np.int64]) -> ValueColumn:
    return ValueColumn(data, np.cumsum(lengths) - lengths, lengths)


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PropertyInvalid(f"{name}: a text holds a lone surrogate, which has no UTF-8 form") from None


def _listed(name: str, given: Any) -> Sequence[Any]:
    if isinstance(given, list | tuple):
        return given
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise MessageRejected(f"{name}: a list or an Arrow array is expected, not {type(given).__name__}")
    return list(given)


def _numbers(name: str, given: Any, rows: int) -> Any:
    """A number for all rows, or one for each."""
    if type(given) is int:
        if not -(1 << 63) <= given < 1 << 63:
            raise MessageRejected(f"{name} {given!r} is not a 64-bit number")
        return given
    try:
        numbers = np.asarray(given)
    except (ValueError, TypeError):
        numbers = np.zeros(0)
    is_whole = numbers.dtype.kind == "i" or (numbers.dtype.kind == "u" and numbers.max(initial=0) < 1 << 63)
    if numbers.shape != (rows,) or not (is_whole or rows == 0):
        raise MessageRejected(f"{name}: a whole number, or one for each of the {rows} rows, is expected")
    return numbers


# -- Arrow ---------------------------------------------------------------------------------------------------------


def is_arrow(given: Any) -> bool:
    """An array, or a chunked one, of an Arrow library?"""
    return hasattr(given, "type") and (hasattr(given, "buffers") or hasattr(given, "combine_chunks"))


def _arrow_column(name: str, array: Any) -> ValueColumn:
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
        if not hasattr(array, "buffers"):
            raise MessageRejected(f"{name}: more than one Arrow array can hold; append fewer rows at a time")
    if hasattr(array, "dictionary_decode"):
        array = array.dictionary_decode()
    offset_type = _OFFSET_TYPES.get(str(array.type))
    if offset_type is None:
        raise MessageRejected(f"{name}: an Arrow array of {array.type}; cast it to {' or '.join(_OFFSET_TYPES)}")
    validity, offsets, data = array.buffers()
    rows, first = len(array), array.offset
    if rows == 0:
        return _joined(_NO_BYTES, np.zeros(0, np.int64))
    bounds = np.frombuffer(offsets, offset_type)[first : first + rows + 1].astype(np.int64)
    lengths = np.diff(bounds)
    if validity is not None and array.null_count:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[first : first + rows]
        lengths[bits == 0] = -1
    return ValueColumn(_NO_BYTES if data is None else data, bounds[:-1], lengths)


# -- properties ----------------------------------------------------------------------------------------------------


def _property_columns(tags: Any, keys: Any, properties: Any, rows: int, join: JoinLoops) -> dict[str, ValueColumn]:
    """Every property by its name, in the order in which a Message puts them into its map."""
    if properties is not None and not isinstance(properties, Mapping):
        raise MessageRejected("properties: a mapping of names to columns (or to one text for all) is expected")
    columns = {}
    for name, values in (properties or {}).items():
        if type(name) is not str:
            raise PropertyInvalid(f"property {name!r}: a name is a text")
        encode_properties({name: "-"})  # Says what is wrong with a name.
        columns[name] = _column_of(f"property {name}", values, rows, join)
    for name, given in ((TAGS, tags), (KEYS, keys)):
        if given is None:
            continue
        if name in columns:
            raise PropertyInvalid(f"property {name} is given twice: in properties, and as an argument")
        column = _key_column(given, rows, join) if name == KEYS else _column_of("tags", given, rows, join)
        column.lengths[column.lengths == 0] = -1
        columns[name] = column
    return columns


def _key_column(keys: Any, rows: int, join: JoinLoops) -> ValueColumn:
    """A text for each row, as with other columns, or several keys, which are joined here."""
    if is_arrow(keys) and str(keys.type).startswith(("list", "large_list")):
        keys = keys.to_pylist()
    if isinstance(keys, str) or is_arrow(keys):
        return _column_of("keys", keys, rows, join)
    listed = _listed("keys", keys)
    column = join.join_texts(listed)
    if column is None:
        joined = [row if row is None or isinstance(row, str) else join_keys(row) for row in listed]
        return _column_of("keys", joined, rows, join)
    return _of_rows("keys", column, rows)


def _property_strings(
    columns: dict[str, ValueColumn], rows: int, compiled: bool
) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    """The property strings one behind another, where each begins, and how long it is."""
    if len(columns) > NAMES_MAX:
        whole = _joined_rows(columns, rows)
        return whole.data, whole.starts, whole.lengths
    ordered = [(_encoded("a property", name), columns[name]) for name in hash_map_order(tuple(columns))]
    lengths = measure_pairs(ordered, rows)
    starts = np.cumsum(lengths) - lengths
    out, ends = np.empty(int(lengths.sum()), np.uint8), starts.copy()
    put_pairs = put_pairs_for(compiled=compiled)
    for raw_name, column in ordered:
        bad = put_pairs(out, starts, ends, raw_name, column)
        if bad >= 0:
            name = raw_name.decode()
            encode_properties({name: _value(column, bad) or ""})  # Says what is wrong with the value.
            raise PropertyInvalid(f"property {name}: row {bad} cannot be stored")
    return out, starts, lengths


def _joined_rows(columns: dict[str, ValueColumn], rows: int) -> ValueColumn:
    """Many names: row by row, as a Message does it."""
    texts = []
    for row in range(rows):
        values = {name: _value(column, row) for name, column in columns.items()}
        texts.append(encode_properties({name: value for name, value in values.items() if value is not None}))
    return _joined(b"".join(texts), np.fromiter(map(len, texts), np.int64, rows))


def _value(column: ValueColumn, row: int) -> str | None:
    start, length = int(column.starts[row]), int(column.lengths[row])
    return None if length < 0 else bytes(memoryview(column.data)[start : start + length]).decode("utf-8", "replace")
