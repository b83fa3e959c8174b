"""What the files of an index were at some time, for a later start to compare them with."""

from typing import Any

import msgspec

from embermq.format.index import IndexHeader


class IndexState(msgspec.Struct):
    """Shape of the files; of each its name and the numbers of its header."""

    slots_max: int
    entries_max: int
    files: list[tuple[str, int, int, int, int, int]]


def header_numbers(header: IndexHeader) -> tuple[int, int, int, int, int]:
    """A header without its slot count, which follows from the entries."""
    return (header.count, header.begin_timestamp, header.end_timestamp, header.begin_physical, header.end_physical)


def header_of(numbers: list[Any]) -> IndexHeader:
    """The header with these numbers."""
    count, begin_timestamp, end_timestamp, begin_physical, end_physical = numbers
    return IndexHeader(begin_timestamp, end_timestamp, begin_physical, end_physical, 0, count)
