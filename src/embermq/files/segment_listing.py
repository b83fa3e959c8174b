"""What lies in the directories of a log: its files by name, how large they are, and what is odd about them.

The files know their size better than the settings do: it follows from names and lengths. Names that are none of a log,
second copies, and files that begin where none of this size can are left alone. Changes nothing on the disk. Any thread.
"""

import errno
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from embermq.files.directories import PathKind
from embermq.files.files import Files
from embermq.format.names import parse_segment_name

LEFT_ALONE = "left alone"  # The remedy for a file that is none of the log's.
REST_IGNORED = "rest ignored"  # The remedy for a file that is too long.
# A length that only one file has, and that is no multiple of this, was not configured: the file was cut.
_SIZE_STEP_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """Something about a file that is not as it should be, and what is done about it."""

    path: Path
    fault: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A log file by its name."""

    start: int
    path: Path
    size: int
    writable: bool


@dataclass(slots=True)
class LogListing:
    """The files of a log in order, and what was found beside them."""

    segment_bytes: int
    found: list[FoundFile] = field(default_factory=list)
    findings: list[SegmentFinding] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)  # Names or places that are not ours; never read or touched.

    @property
    def has_gaps(self) -> bool:
        return any(one.start + self.segment_bytes != after.start for one, after in pairwise(self.found))


def list_log(files: Files, places: Sequence[tuple[Path, bool]], configured_bytes: int) -> LogListing:
    """The log files that have a name now. `places`: each directory, and whether its files may be written."""
    listing = LogListing(configured_bytes)
    _list_names(files, places, listing)
    _adopt_size(listing)
    _leave_misfits(listing)
    return listing


def _list_names(files: Files, places: Sequence[tuple[Path, bool]], listing: LogListing) -> None:
    found: dict[int, FoundFile] = {}
    for directory, writable in places:
        if not files.exists(directory):
            continue
        for entry in files.list_directory(directory):
            start = parse_segment_name(entry.name) if entry.is_file else None
            path = directory / entry.name
            if start is None:
                listing.foreign.append(path)
                listing.findings.append(SegmentFinding(path, "not a log file", LEFT_ALONE))
            elif start in found:
                listing.findings.append(SegmentFinding(path, f"second copy of {found[start].path}", LEFT_ALONE))
            else:
                if writable:
                    _check_link(files, path)
                found[start] = FoundFile(start, path, entry.size, writable)
    listing.found = sorted(found.values(), key=lambda item: item.start)


def _check_link(files: Files, path: Path) -> None:
    """OSError if a log file is a link to a file of another name: an opening for writing may fill or lengthen it, and
    must not do that to a foreign file."""
    if files.kind(path) is not PathKind.LINK:
        return
    target = files.real_path(path)
    if target.name != path.name:
        reason = f"is a link to {target}, which has not the name of a log file; put the log file itself here"
        raise OSError(errno.EINVAL, reason, str(path))


def _adopt_size(listing: LogListing) -> None:
    configured = listing.segment_bytes
    size = size_of_files([(item.start, item.size) for item in listing.found], configured)
    if size != configured:
        fault = f"files of {size} bytes, {configured} configured"
        listing.findings.append(SegmentFinding(listing.found[0].path.parent, fault, "size found is used"))
        listing.segment_bytes = size


def _leave_misfits(listing: LogListing) -> None:
    """A file that begins where none of this size can is not ours."""
    size = listing.segment_bytes
    outside = misfits([(item.start, item.size) for item in listing.found], size)
    for item in listing.found:
        if item.start in outside:
            listing.foreign.append(item.path)
            listing.findings.append(SegmentFinding(item.path, f"begins at no multiple of {size}", LEFT_ALONE))
    listing.found = [item for item in listing.found if item.start not in outside]


def length_findings(found: Sequence[FoundFile], expected: int) -> list[SegmentFinding]:
    """Files that are shorter or longer than this, and places where they do not follow one another."""
    findings = []
    for number, item in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        if item.size == 0:
            findings.append(SegmentFinding(item.path, "empty file", "extended"))
        elif item.size < expected:
            findings.append(SegmentFinding(item.path, f"{item.size} bytes instead of {expected}", "extended"))
        elif item.size > expected:
            findings.append(SegmentFinding(item.path, f"{item.size} bytes instead of {expected}", REST_IGNORED))
        if following is not None and following.start != item.start + expected:
            kind = "gap" if following.start > item.start + expected else "overlap"
            findings.append(SegmentFinding(following.path, f"{kind} after {item.path.name}", "left to recovery"))
    return findings


# -- how large the files of a log are --------------------------------------------------------------------------------


def found_size(found: Sequence[tuple[int, int]], configured: int = 0) -> int:
    """How large the files of a log are, by their starts and lengths, in order; 0 if that does not follow from them.

    A file speaks for its own length if it begins at a multiple of it, two neighbours for their distance. A file that
    begins elsewhere or is longer speaks against a size; one that is shorter was cut, or is being made, and says
    nothing. So one stray file among good ones does not count, and neither do a few that were cut or grew.
    """
    lengths = Counter(length for start, length in found if length and start % length == 0)
    apart = Counter(later - start for (start, _), (later, _) in pairwise(found))

    def against(size: int) -> int:
        return sum(1 for start, length in found if start % size or length > size)

    def worth(size: int) -> tuple[int, bool, int]:
        return lengths[size] + apart[size] - against(size), size == configured, size

    if apart[configured] and not against(configured):
        return configured
    likely = [
        size
        for size in lengths | apart
        if size % _SIZE_STEP_BYTES == 0 or size == configured or lengths[size] + apart[size] > 1
    ]
    return max(likely or [size for size in apart if not against(size)], key=worth, default=0)


def size_of_files(found: Sequence[tuple[int, int]], configured: int) -> int:
    """What follows from the files, else what is configured."""
    return found_size(found, configured) or configured


def misfits(found: Sequence[tuple[int, int]], configured: int = 0) -> set[int]:
    """Starts of files that are none of this log, whatever their names: they begin inside other files.

    None if nothing is known about the size, or if a size that was only configured would leave less than half.
    """
    shown = found_size(found, configured)
    size = shown or configured
    outside = {start for start, _ in found if size and start % size}
    return outside if shown or 2 * len(outside) <= len(found) else set()
