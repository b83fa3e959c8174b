"""Records of the log as Arrow record batches, in exactly the types Spark accepts.

A builder is made once per task for the columns that are wanted and then fed with what a scan lends; other columns
cost nothing, and bodies are not touched unless they are wanted. Batches own their memory: they outlive the
records. One thread at a time; runs in Python workers (and needs no Spark session).

Hand in what you have: `batches` splits at BATCH_ROWS_MAX rows and BATCH_BYTES_MAX bytes of records, decompressed
bodies counted in, so that no column can come near the 2 GiB that 32-bit offsets describe. `build` makes one batch
of all it is given; more than 2 GiB in one column is an assertion there.

A compressed body that does not decompress is a damaged record. It is found out only here, and only when bodies are
wanted: such a row is left out and `on_damage` gets its range and why; without `on_damage`, CorruptFrame is raised.

Texts that are no UTF-8 are repaired as Python's errors="replace" does, like everywhere else in this package: Spark
would take such bytes without a word and fail later. Times Spark cannot show (outside the years 1 to 9999) are null.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from embermq.columns import (
    C_BODY_AT,
    C_BODY_LEN,
    C_BORN_TIME,
    C_FLAG,
    C_KEYS_AT,
    C_PREPARED,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_RECONSUME,
    C_SIZE,
    C_STORE_TIME,
    C_STORED_PHYSICAL,
    C_SYS_FLAG,
    C_TAGS_AT,
    C_TOPIC_AT,
    C_UNIQ_AT,
    COLUMN_BYTES_MAX,
    NOTHING,
    Gather,
    HostKind,
    Keep,
    Pairs,
    Parts,
    RecordColumns,
    Rows,
    gather_for,
)
from embermq.errors import CorruptFrame
from embermq.model.flags import COMPRESSED
from embermq.model.message import decompressed
from embermq.model.properties import decode_properties
from embermq.spark.options.schema import CORRUPT, HEADERS, SchemaMode, arrow_schema, column_names

BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 16 << 20

# The plain twin makes some 30 rows a millisecond; a builder that has made so many by it loads the kernel.
_FIRST_MS = -62_135_596_800_000  # 0001-01-01T00:00:00Z
_LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_INT_MAX = (1 << 31) - 1
_LOG_APPEND_TIME = 1

OnDamage = Callable[[int, int, str], None]  # start and end of the range in the log, and what is wrong with it


class DamagedRange(Protocol):
    """Bytes of the log that hold no readable record."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def reason(self) -> str: ...


class _Chosen(NamedTuple):
    """Rows of one batch. Bodies are found through `body_rows`, one per kept row, and may lie in `more`."""

    records: RecordColumns
    keep: Keep
    body_rows: Rows | None = None
    more: NDArray[np.uint8] = NOTHING

    def numbers(self, column: int) -> NDArray[np.int64]:
        return self.records.column(column).take(self.keep)


class BatchBuilder:
    """Makes batches of one schema."""

    def __init__(
        self,
        schema: StructType,
        *,
        mode: SchemaMode,
        broker_name: str,
        decompress: bool,
        rows_max: int = BATCH_ROWS_MAX,
        bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        fields = {field.name.lower() for field in schema.fields}
        self._names = column_names(schema, mode, corrupt=CORRUPT.name in fields, headers=HEADERS.name in fields)
        self._schema = arrow_schema(schema)
        self._broker_name = broker_name
        self._decompress = decompress and not {"body", "value"}.isdisjoint(self._names)
        self._makers = [_MAKERS[mode][name] for name in self._names]
        self._rows_max, self._bytes_max = min(rows_max, BATCH_ROWS_MAX), min(bytes_max, BATCH_BYTES_MAX)
        self._constants: dict[str, pa.Array] = {}
        self._rows_made = 0
        self.topic: str | None = None  # Where all records are of one: what it is called in the rows.

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(
        self, records: RecordColumns, keep: Keep | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The kept rows (None: all) in batches of bounded size; none for no rows."""
        if keep is None:
            keep = np.arange(len(records), dtype=np.int64)
        for start, end in self._portions(records.column(C_SIZE).take(keep)):
            for chosen in self._with_bodies(records, keep[start:end], on_damage, BATCH_BYTES_MAX):
                if len(chosen.keep):
                    yield self._make(chosen)

    def build(
        self, records: RecordColumns, keep: Keep | None = None, on_damage: OnDamage | None = None
    ) -> pa.RecordBatch:
        """The kept rows (None: all) in one batch."""
        if keep is None:
            keep = np.arange(len(records), dtype=np.int64)
        (chosen,) = self._with_bodies(records, keep, on_damage, COLUMN_BYTES_MAX)
        return self._make(chosen)

    def damaged(self, ranges: Iterable[DamagedRange]) -> pa.RecordBatch:
        """One row per range for the column _corrupt, in a schema that has it."""
        listed = list(ranges)
        lengths = [one.end - one.start for one in listed]
        known: dict[str, list[object]] = {
            "brokerName": [self._broker_name] * len(listed),
            "physicalOffset": [one.start for one in listed],
            "size": [length if length <= _INT_MAX else None for length in lengths],
            CORRUPT.name: [f"bytes {one.start} to {one.end} of the log: {one.reason}" for one in listed],
        }
        nothing = [None] * len(listed)
        arrays = [
            pa.array(known.get(name, nothing), field.type)
            for name, field in zip(self._names, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _portions(self, sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Half-open ranges of rows within both limits; a row that is too large alone is a portion of its own."""
        ends = np.cumsum(sizes)
        start = 0
        while start < len(sizes):
            before = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, before + self._bytes_max, side="right"))
            end = min(max(end, start + 1), start + self._rows_max, len(sizes))
            yield start, end
            start = end

    def _make(self, chosen: _Chosen) -> pa.RecordBatch:
        self._rows_made += len(chosen.keep)
        gather = gather_for(self._rows_made)
        arrays = [
            make(self, chosen, gather, field.type) for make, field in zip(self._makers, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _with_bodies(
        self, records: RecordColumns, keep: Keep, on_damage: OnDamage | None, bytes_max: int
    ) -> Iterator[_Chosen]:
        """The rows with decompressed bodies where they are wanted, parted where those grow too large.

        Always one part when nothing is too large, even of no rows."""
        packed = _compressed(records, keep) if self._decompress else NOTHING
        if not len(packed):
            yield _Chosen(records, keep)
            return
        body_rows = records.rows.take(keep, axis=0)
        whole = np.ones(len(keep), np.bool_)
        start, size = 0, 0
        bodies: list[bytes] = []
        for i in packed.tolist():
            body = _payload(records, int(keep[i]), on_damage)
            if body is None:
                whole[i] = False
                continue
            if size and size + len(body) > bytes_max:
                yield _joined(records, keep, body_rows, whole, start, i, bodies)
                start, size = i, 0
                bodies = []
            body_rows[i, C_BODY_AT] = len(records.data) + size
            body_rows[i, C_BODY_LEN] = len(body)
            bodies.append(body)
            size += len(body)
        yield _joined(records, keep, body_rows, whole, start, len(keep), bodies)

    def _constant(self, name: str, value: object, count: int, type_: pa.DataType) -> pa.Array:
        """The same value in every row; made once for the largest batch."""
        made = self._constants.get(name)
        if made is None or len(made) < count:
            made = self._constants[name] = pa.repeat(pa.scalar(value, type_), max(count, BATCH_ROWS_MAX))
        return made.slice(0, count)

    def _broker(self, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return self._constant("brokerName", self._broker_name, len(chosen.keep), type_)

    def _topic(self, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        if self.topic is not None:
            return self._constant(f"topic {self.topic}", self.topic, len(chosen.keep), type_)
        return _parts_array(gather.gather_parts(chosen.records, chosen.keep, C_TOPIC_AT), type_)

    def _append_time(self, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return self._constant("timestampType", _LOG_APPEND_TIME, len(chosen.keep), type_)

    def _whole(self, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return self._constant(CORRUPT.name, None, len(chosen.keep), type_)


def _compressed(records: RecordColumns, keep: Keep) -> NDArray[np.intp]:
    return np.flatnonzero(records.column(C_SYS_FLAG).take(keep) & COMPRESSED)


def _payload(records: RecordColumns, row: int, on_damage: OnDamage | None) -> bytes | None:
    """The body decompressed; None when it is damaged and `on_damage` was called."""
    numbers = records.rows[row]
    start, size = int(numbers[C_STORED_PHYSICAL]), int(numbers[C_SIZE])
    try:
        body = decompressed(records.body(row), int(numbers[C_SYS_FLAG]), start)
        if len(body) > COLUMN_BYTES_MAX:
            raise CorruptFrame(start, f"the body decompresses to {len(body):,} bytes")
        return body
    except CorruptFrame as damage:
        if on_damage is None:
            raise
        on_damage(start, start + size, damage.reason)
        return None


def _joined(
    records: RecordColumns,
    keep: Keep,
    body_rows: Rows,
    whole: NDArray[np.bool_],
    start: int,
    end: int,
    bodies: list[bytes],
) -> _Chosen:
    chosen = start + np.flatnonzero(whole[start:end])
    more = np.frombuffer(b"".join(bodies), np.uint8)
    return _Chosen(records, keep.take(chosen), body_rows.take(chosen, axis=0), more)


def _array(type_: pa.DataType, count: int, values: NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(values)], 0)


def _long(column: int) -> Callable[..., pa.Array]:
    def make(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return _array(type_, len(chosen.keep), chosen.numbers(column))

    return make


def _int(column: int) -> Callable[..., pa.Array]:
    def make(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return _array(type_, len(chosen.keep), chosen.numbers(column).astype(np.int32))

    return make


def _time(column: int) -> Callable[..., pa.Array]:
    def make(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        times_ms = chosen.numbers(column)
        if not len(times_ms) or (times_ms.min() >= _FIRST_MS and times_ms.max() <= _LAST_MS):
            return _array(type_, len(times_ms), times_ms * 1000)
        shown = (times_ms >= _FIRST_MS) & (times_ms <= _LAST_MS)
        validity = pa.py_buffer(np.packbits(shown, bitorder="little"))
        return pa.Array.from_buffers(
            type_, len(times_ms), [validity, pa.py_buffer(np.where(shown, times_ms, 0) * 1000)]
        )

    return make


def _part(at_column: int) -> Callable[..., pa.Array]:
    def make(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return _parts_array(gather.gather_parts(chosen.records, chosen.keep, at_column), type_)

    return make


def _body(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
    if chosen.body_rows is None:
        return _parts_array(gather.gather_parts(chosen.records, chosen.keep, C_BODY_AT), type_)
    every = np.arange(len(chosen.keep), dtype=np.int64)
    return _parts_array(gather.gather_parts(chosen.records, every, C_BODY_AT, chosen.more, chosen.body_rows), type_)


def _id(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
    return _parts_array(gather.gather_ids(chosen.records, chosen.keep), type_)


def _host(kind: HostKind) -> Callable[..., pa.Array]:
    def make(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
        return _parts_array(gather.gather_hosts(chosen.records, chosen.keep, kind), type_)

    return make


def _crc(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.DataType) -> pa.Array:
    return _array(type_, len(chosen.keep), gather.gather_crcs(chosen.records, chosen.keep))


def _map(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.MapType) -> pa.Array:
    pairs: Pairs = gather.gather_pairs(chosen.records, chosen.keep)
    names = _raw_parts_array(pairs.names, type_.key_type)
    values = _raw_parts_array(pairs.values, type_.item_type)
    if not (_is_utf8(names, pairs.names) and _is_utf8(values, pairs.values)):
        # Names that differ in their bytes may become one text: the whole way again, text first.
        decoded = [decode_properties(chosen.records.properties(row)) for row in chosen.keep.tolist()]
        return pa.array([list(properties.items()) for properties in decoded], type_)
    entries = pa.StructArray.from_arrays([names, values], fields=[type_.key_field, type_.item_field])
    return pa.Array.from_buffers(type_, len(chosen.keep), [None, pa.py_buffer(pairs.offsets)], 0, children=[entries])


def _headers(builder: BatchBuilder, chosen: _Chosen, gather: Gather, type_: pa.ListType) -> pa.Array:
    pairs: Pairs = gather.gather_pairs(chosen.records, chosen.keep)
    key, value = type_.value_type
    entries = pa.StructArray.from_arrays(
        [_parts_array(pairs.names, key.type), _parts_array(pairs.values, value.type)], fields=[key, value]
    )
    some = np.diff(pairs.offsets) > 0
    validity = None if some.all() else pa.py_buffer(np.packbits(some, bitorder="little"))
    return pa.Array.from_buffers(type_, len(chosen.keep), [validity, pa.py_buffer(pairs.offsets)], children=[entries])


def _raw_parts_array(parts: Parts, type_: pa.DataType) -> pa.Array:
    validity = None if parts.validity is None else pa.py_buffer(parts.validity)
    buffers = [validity, pa.py_buffer(parts.offsets), pa.py_buffer(parts.values)]
    return pa.Array.from_buffers(type_, len(parts.offsets) - 1, buffers, parts.nulls)


def _parts_array(parts: Parts, type_: pa.DataType) -> pa.Array:
    """Bytes as they are; texts repaired where they need it."""
    array = _raw_parts_array(parts, type_)
    if type_ == pa.binary() or _is_utf8(array, parts):
        return array
    raw = _raw_parts_array(parts, pa.binary()).to_pylist()
    return pa.array([None if part is None else part.decode("utf-8", "replace") for part in raw], type_)


def _is_utf8(texts: pa.Array, parts: Parts) -> bool:
    """Each text by itself: two bad ones side by side may look like a good one."""
    if not len(parts.values) or parts.values.max() < 0x80:
        return True
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


_Maker = Callable[[BatchBuilder, _Chosen, Gather, pa.DataType], pa.Array]
_MAKERS: dict[SchemaMode, dict[str, _Maker]] = {
    "rocketmq": {
        "topic": BatchBuilder._topic,
        "brokerName": BatchBuilder._broker,
        "queueId": _int(C_QUEUE_ID),
        "queueOffset": _long(C_QUEUE_OFFSET),
        "physicalOffset": _long(C_STORED_PHYSICAL),
        "msgId": _id,
        "uniqKey": _part(C_UNIQ_AT),
        "tags": _part(C_TAGS_AT),
        "keys": _part(C_KEYS_AT),
        "body": _body,
        "properties": _map,
        "flag": _int(C_FLAG),
        "sysFlag": _int(C_SYS_FLAG),
        "bornTimestamp": _time(C_BORN_TIME),
        "bornHost": _host(HostKind.BORN),
        "storeTimestamp": _time(C_STORE_TIME),
        "storeHost": _host(HostKind.STORE),
        "reconsumeTimes": _int(C_RECONSUME),
        "preparedTransactionOffset": _long(C_PREPARED),
        "bodyCrc": _crc,
        "size": _int(C_SIZE),
        CORRUPT.name: BatchBuilder._whole,
    },
    "kafka": {
        "key": _part(C_KEYS_AT),
        "value": _body,
        "topic": BatchBuilder._topic,
        "partition": _int(C_QUEUE_ID),
        "offset": _long(C_QUEUE_OFFSET),
        "timestamp": _time(C_STORE_TIME),
        "timestampType": BatchBuilder._append_time,
        HEADERS.name: _headers,
        CORRUPT.name: BatchBuilder._whole,
    },
}
