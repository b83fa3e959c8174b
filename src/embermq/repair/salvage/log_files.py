"""Which log files of a damaged store hold records, and where in the log they belong.

A record says itself where it lies. So a file is believed for what is in it and not for its name: one that was renamed
comes back to its place, and one that holds no whole record is not taken along, but for one that is a blank from its
beginning to its end. A file that may not be read is an error: it is not known to hold nothing. Reads only. One thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embermq.files import Files, OpenFile, entries_of
from embermq.format.frame import BLANK_BYTES, MESSAGE_MAGIC, MESSAGE_MAGIC_V2, Frame, decode, encode_blank
from embermq.format.names import parse_segment_name
from embermq.store.log import LogSegment, next_record

_WINDOW_BYTES = 8 << 20
_CANDIDATES_MAX = 64
_MAGICS = tuple((magic & 0xFFFF_FFFF).to_bytes(4, "big") for magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2))


@dataclass(frozen=True, slots=True)
class Placed:
    """A file, the place in the log where its first byte belongs, and how much of it is taken."""

    path: Path
    start: int
    size: int

    @property
    def is_renamed(self) -> bool:
        return parse_segment_name(self.path.name) != self.start


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that is not taken along, and why; and which part of the log it should have been, if it should."""

    path: Path
    reason: str
    start: int | None = None
    size: int = 0
    has_bytes: bool = False  # Is there anything in it but zeros?


def place_files(
    files: Files, directories: Sequence[Path], segment_bytes: int
) -> tuple[list[Placed], list[RefusedFile]]:
    """Every file below `directories` that holds records, in the order of the log; and the rest."""
    placed: dict[int, Placed] = {}
    refused: list[RefusedFile] = []
    for directory in directories:
        for entry in entries_of(files, directory):
            path, named = directory / entry.name, _named_start(entry.name, segment_bytes)
            if not entry.is_file or (not entry.size and named is None):
                continue
            start = _start_of(files, path, segment_bytes)
            if start is None:
                refused.append(_refused(files, path, named, entry.size))
            else:
                taken, left = _choose(placed.get(start), Placed(path, start, min(entry.size, segment_bytes)))
                placed[start] = taken
                if left is not None:
                    refused.append(RefusedFile(left.path, f"the same part of the log as {taken.path}"))
    # What another file has is not missing.
    refused = [replace(one, start=None) if one.start in placed else one for one in refused]
    return sorted(placed.values(), key=lambda one: one.start), refused


def _choose(found: Placed | None, other: Placed) -> tuple[Placed, Placed | None]:
    """Of two files for the same part of the log: the one that is taken, and the one that is not. A copy under another
    name may be older or cut, so a file with the name of its place comes first, and then the longer one."""
    if found is None:
        return other, None
    if (not other.is_renamed, other.size) > (not found.is_renamed, found.size):
        return other, found
    return found, other


def _named_start(name: str, segment_bytes: int) -> int | None:
    """Where a file belongs by its name; None if no file of this log can have it."""
    start = parse_segment_name(name)
    return start if start is not None and start % segment_bytes == 0 else None


def _refused(files: Files, path: Path, named: int | None, size: int) -> RefusedFile:
    if not size:
        return RefusedFile(path, "is empty", named)
    file = files.open(path, False)
    try:
        parts = range(0, size, _WINDOW_BYTES)
        has_bytes = any(file.pread(_WINDOW_BYTES, at).strip(b"\0") for at in parts)
    finally:
        file.close()
    return RefusedFile(path, "holds no whole record" if has_bytes else "holds zeros", named, size, has_bytes)


def _start_of(files: Files, path: Path, segment_bytes: int) -> int | None:
    """The place of a file's first byte, by its records; None if it has none."""
    file = files.open(path, False)
    try:
        named, size = parse_segment_name(path.name), min(file.size, segment_bytes)
        # A record of the file lies where it should if the file begins where its name says.
        if named is not None and next_record(file, LogSegment(path, named, size), named) is not None:
            return named
        if named is not None and named % segment_bytes == 0 and _is_one_blank(file, segment_bytes):
            return named
        return _start_by_content(file, size, segment_bytes)
    finally:
        file.close()


def _is_one_blank(file: OpenFile, segment_bytes: int) -> bool:
    """Was the file closed before anything was written to it? So a file is that stands for a lost one."""
    return file.pread(BLANK_BYTES, 0) == encode_blank(segment_bytes)


def _start_by_content(file: OpenFile, size: int, segment_bytes: int) -> int | None:
    """What records say about where the file begins: the first of them that is whole and leads to a possible place."""
    data = file.pread(min(size, _WINDOW_BYTES), 0)
    tried = 0
    for magic in _MAGICS:
        at = data.find(magic)
        while at >= 4 and tried < _CANDIDATES_MAX:
            tried += 1
            here = at - 4
            place = int.from_bytes(data[here + 28 : here + 36], "big", signed=True)
            found = decode(data, here, len(data), physical_offset=place, check_crc=True)
            if isinstance(found, Frame) and (place - here) % segment_bytes == 0 and place >= here:
                return place - here
            at = data.find(magic, at + 4)
    return None
