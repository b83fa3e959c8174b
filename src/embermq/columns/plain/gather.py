"""From rows to columns of text and bytes, in the layout of Arrow: the plain twin of kernels.gather.

    Parts    offsets  int32[n + 1]       part i is values[offsets[i]:offsets[i + 1]]
             values   uint8[...]
             validity uint8[(n + 7)/8]   bit i % 8 of byte i / 8 is 1 where part i is there; None when all are
             nulls                       how many are not
    Pairs    offsets  int32[n + 1]       row i has pairs offsets[i] to offsets[i + 1]
             names, values               Parts, one each per pair

Bytes are copied as they are: whether texts are UTF-8 is for the caller to see. Nothing is kept of the records, so
the columns outlive them. `keep` holds the numbers of the wanted rows, in the order they are wanted.
Rows must come from a scan of the same data; one that points outside it is an assertion, and so is a column of
more than 2 GiB, which 32-bit offsets cannot describe: hand in fewer rows.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.rows import RecordColumns
from embermq.format.frame import HOST_V6_EXTRA
from embermq.model.flags import BORN_HOST_V6, STORE_HOST_V6
from embermq.model.hosts import unpack_host
from embermq.model.ids import message_id

COLUMN_BYTES_MAX = (1 << 31) - 1
TOO_MUCH = "more than 2 GiB in one column"
FOREIGN_ROWS = "rows and data do not belong together"
BODY_CRC_AT = 8
BORN_HOST_AT = 48
NOTHING: NDArray[np.uint8] = np.zeros(0, np.uint8)

Keep = NDArray[np.int64]


class HostKind(IntEnum):
    BORN = 0
    STORE = 1


class Parts(NamedTuple):
    """One piece of bytes, or none, per row."""

    offsets: NDArray[np.int32]
    values: NDArray[np.uint8]
    validity: NDArray[np.uint8] | None
    nulls: int


class Pairs(NamedTuple):
    """Any number of named values per row."""

    offsets: NDArray[np.int32]
    names: Parts
    values: Parts


def pack_parts(parts: Iterable[bytes | None]) -> Parts:
    """Pieces of bytes in Arrow's layout."""
    listed = list(parts)
    ends = list(accumulate((len(part or b"") for part in listed), initial=0))
    assert ends[-1] <= COLUMN_BYTES_MAX, TOO_MUCH
    nulls = sum(part is None for part in listed)
    present = np.array([part is not None for part in listed], np.bool_)
    return Parts(
        np.array(ends, np.int32),
        np.frombuffer(b"".join(part or b"" for part in listed), np.uint8),
        np.packbits(present, bitorder="little") if nulls else None,
        nulls,
    )


def gather_parts(
    records: RecordColumns, keep: Keep, at_column: int, more: NDArray[np.uint8] = NOTHING, rows: c.Rows | None = None
) -> Parts:
    """The bytes behind a position column (its length is the next column); None where the length is negative.

    Positions past the end of the data go on in `more`; `rows`, when given, takes the place of the records' own.
    """
    rows = records.rows if rows is None else rows
    size = len(records.data)

    def part(row: int) -> bytes | None:
        at, length = (int(number) for number in rows[row, at_column : at_column + 2])
        if length < 0:
            return None
        source, at = (records.data, at) if at + length <= size else (more, at - size)
        assert 0 <= at <= at + length <= len(source), FOREIGN_ROWS
        return bytes(source[at : at + length])

    return pack_parts(part(row) for row in _checked(keep, len(rows)))


def gather_ids(records: RecordColumns, keep: Keep) -> Parts:
    """Message ids: store host and position in hexadecimal digits."""
    return pack_parts(
        message_id(
            unpack_host(_packed_host(records, row, HostKind.STORE)), int(records.rows[row, c.C_STORED_PHYSICAL])
        ).encode()
        for row in _checked(keep, len(records))
    )


def gather_hosts(records: RecordColumns, keep: Keep, kind: HostKind) -> Parts:
    """Addresses as `ip:port` or `[ip]:port`."""
    return pack_parts(
        str(unpack_host(_packed_host(records, row, kind))).encode() for row in _checked(keep, len(records))
    )


def gather_pairs(records: RecordColumns, keep: Keep) -> Pairs:
    """Properties: no name twice in a row; it keeps its first place and has its last value."""
    found = [_pairs(records.properties(row)) for row in _checked(keep, len(records))]
    counts = accumulate((len(pairs) for pairs in found), initial=0)
    return Pairs(
        np.array(list(counts), np.int32),
        pack_parts(name for pairs in found for name in pairs),
        pack_parts(value for pairs in found for value in pairs.values()),
    )


def gather_crcs(records: RecordColumns, keep: Keep) -> NDArray[np.int32]:
    """The checksums of the bodies, as stored."""
    crcs = [_head(records, row, BODY_CRC_AT, 4) for row in _checked(keep, len(records))]
    return np.frombuffer(b"".join(crcs), ">i4").astype(np.int32)


def _checked(keep: Keep, count: int) -> list[int]:
    wanted: list[int] = keep.tolist()
    assert all(0 <= row < count for row in wanted), FOREIGN_ROWS
    return wanted


def _pairs(properties: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for pair in properties.split(b"\x02"):
        separator = pair.find(b"\x01")
        if 0 < separator < len(pair) - 1:
            found[pair[:separator]] = pair[separator + 1 :]
    return found


def _packed_host(records: RecordColumns, row: int, kind: HostKind) -> bytes:
    sys_flag = int(records.rows[row, c.C_SYS_FLAG])
    born_bytes = 8 + HOST_V6_EXTRA * bool(sys_flag & BORN_HOST_V6)
    if kind == HostKind.BORN:
        return _head(records, row, BORN_HOST_AT, born_bytes)
    return _head(records, row, BORN_HOST_AT + born_bytes + 8, 8 + HOST_V6_EXTRA * bool(sys_flag & STORE_HOST_V6))


def _head(records: RecordColumns, row: int, at: int, length: int) -> bytes:
    """Bytes at a fixed place of the record."""
    at += int(records.rows[row, c.C_PHYSICAL]) - records.base
    assert 0 <= at <= at + length <= len(records.data), FOREIGN_ROWS
    return bytes(records.data[at : at + length])
