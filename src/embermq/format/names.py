"""File names that are numbers: segments by their start offset, index files by their time of birth."""

import re

_SEGMENT = re.compile(r"[0-9]{20}")
_INDEX = re.compile(r"[0-9]{17}")


def segment_name(start: int) -> str:
    """20 digits: the offset of the file's first byte."""
    assert 0 <= start < 1 << 63, start
    return f"{start:020d}"


def parse_segment_name(name: str) -> int | None:
    """The start offset, or None when `name` is no segment's name."""
    if not _SEGMENT.fullmatch(name):
        return None
    start = int(name)
    return start if start < 1 << 63 else None


def index_name(local_stamp: str) -> str:
    """The name of an index file born at `local_stamp` (17 digits yyyyMMddHHmmssSSS, local time)."""
    assert _INDEX.fullmatch(local_stamp), local_stamp
    return local_stamp


def parse_index_name(name: str) -> str | None:
    """The stamp in an index file's name, or None when `name` is none. Stamps sort as text."""
    return name if _INDEX.fullmatch(name) else None


def parse_queue_id(name: str) -> int | None:
    """The queue id a directory name stands for, or None."""
    digits = name.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        return None
    return int(name) if str(int(name)) == name else None
