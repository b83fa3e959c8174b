"""Single records of a surveyed log, read with few open files. One thread. Reads only."""

from pathlib import Path

from embermq.files import Files, OpenFile
from embermq.format.frame import BLANK_MAGIC, Frame
from embermq.inspect import Survey
from embermq.store.log import LogSegment, frame_at, segment_at

_BLANK_MAGIC = BLANK_MAGIC.to_bytes(4, "big", signed=True)


class SingleRecords:
    """Single records of the log, read with few open files."""

    def __init__(self, survey: Survey, files: Files) -> None:
        self._survey, self._files = survey, files
        self._open: dict[Path, OpenFile] = {}

    def at(self, physical_offset: int) -> Frame | None:
        segment = segment_at(self._survey.segments, physical_offset)
        file = self._file(segment)
        return None if segment is None or file is None else frame_at(file, segment, physical_offset)

    def is_blank(self, physical_offset: int) -> bool:
        return self._head(physical_offset)[4:8] == _BLANK_MAGIC

    def is_nothing(self, physical_offset: int) -> bool:
        """Was nothing ever written here? So it is past the last file."""
        return not self._head(physical_offset).strip(b"\0")

    def _head(self, physical_offset: int) -> bytes:
        segment = segment_at(self._survey.segments, physical_offset)
        file = self._file(segment)
        return b"" if segment is None or file is None else file.pread(8, physical_offset - segment.start)

    def _file(self, segment: LogSegment | None) -> OpenFile | None:
        if segment is None:
            return None
        file = self._open.get(segment.path)
        if file is None:
            try:
                file = self._files.open(segment.path, False)
            except FileNotFoundError:
                return None
            if len(self._open) >= 16:
                self._open.pop(next(iter(self._open))).close()
            self._open[segment.path] = file
        return file

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
