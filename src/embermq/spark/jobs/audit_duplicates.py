"""Messages that a topic has more than once, by unique key.

Workers hash topic and unique key of every message (audit_tally.py); Spark brings equal hashes to one task, as blocks of
16 bytes a message that the JVM does not look into. There those that agree are found, read from the log and
compared as text. A task holds one part of the hashes: there are so many parts that one has some thirty megabytes.

What comes by a topic again and again by design is left out: retries, dead letters, delayed messages, transactions
(audit_tally.is_rhythmic). Worker side.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import repeated
from embermq.files import Files, OpenFile
from embermq.format.frame import Frame
from embermq.model.properties import UNIQ_KEY, decode_properties
from embermq.spark.jobs.audit_tally import KEY_ROW
from embermq.store.log import LogSegment, frame_at, segment_at
from embermq.store.queues import RECORD_BYTES_MIN

COMPARED_MAX = 2_000  # keys whose records are read again, of each part; further ones are counted by their hashes
PLACES_MAX = 8
KEYS_PER_PART = 2 << 20
KEYS_WORTH_A_TASK = 128 << 10
_RECORD_BYTES_MAX = 2048  # what is taken for a record where no queue knows one: larger ones make for smaller parts
_OPEN_MAX = 16

KeyRows = NDArray[np.void]


class Duplicate(NamedTuple):
    """One unique key that a topic has more than once."""

    topic: str
    unique_key: str
    messages: int  # that have it
    places: tuple[int, ...]  # of the first few
    queue_id: int  # of the second one
    queue_offset: int


class DuplicatesOfPart(NamedTuple):
    """What one part of the hashes has. `more` are keys that were not compared, `more_messages` those too many."""

    found: list[Duplicate]
    more: int
    more_messages: int


def part_count(log_bytes: int, entry_count: int, cores: int) -> int:
    """How many parts: the same number for each core. By what the queues have, which may be missing, or wrong."""
    messages = max(min(entry_count, log_bytes // RECORD_BYTES_MIN), log_bytes // _RECORD_BYTES_MAX)
    if messages <= KEYS_WORTH_A_TASK:
        return 1
    return -(-messages // (KEYS_PER_PART * cores)) * cores


def split(keys: KeyRows, parts: int) -> Iterator[tuple[int, bytes]]:
    """Rows by the number of their part."""
    if not len(keys):
        return
    numbers = (keys["hash"] % np.uint64(parts)).astype(np.int16 if parts < 1 << 15 else np.int32)
    order = np.argsort(numbers, kind="stable")
    borders = np.searchsorted(numbers[order], np.arange(parts + 1))
    for part in range(parts):
        if borders[part] < borders[part + 1]:
            yield part, keys[order[borders[part] : borders[part + 1]]].tobytes()


def find_duplicates(blocks: Iterable[bytes], segments: Sequence[LogSegment], files: Files) -> DuplicatesOfPart:
    """Messages with the same topic and unique key among these rows."""
    pairs = [np.frombuffer(block, np.int64).reshape(-1, 2) for block in blocks]
    twice = repeated(pairs)
    if not len(twice):
        return DuplicatesOfPart([], 0, 0)
    rows = np.concatenate([block.view(KEY_ROW)[:, 0] for block in pairs])
    rows = rows[np.isin(rows["hash"], twice)]
    order = np.argsort(rows["hash"], kind="stable")
    hashes = rows["hash"][order]
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    firsts = same[np.concatenate([[True], np.diff(same) > 1])]
    lasts = same[np.concatenate([np.diff(same) > 1, [True]])] + 1
    groups = [np.sort(rows["place"][order[first : last + 1]]) for first, last in zip(firsts, lasts, strict=True)]
    groups.sort(key=lambda places: int(places[1]))
    log = _Log(segments, files)
    found = [one for places in groups[:COMPARED_MAX] for one in _compared(places, log)]
    log.close()
    rest = groups[COMPARED_MAX:]
    return DuplicatesOfPart(found, len(rest), sum(len(places) - 1 for places in rest))


def _compared(places: NDArray[np.int64], log: "_Log") -> Iterator[Duplicate]:
    """Records whose hashes agree, by their texts. Of very many the first few speak for all."""
    by_key: dict[tuple[str, str], list[tuple[int, Frame]]] = {}
    looked_at = places[:COMPARED_MAX].tolist()
    for place in looked_at:
        frame = log.frame_at(place)
        key = decode_properties(bytes(frame.properties)).get(UNIQ_KEY) if frame is not None else None
        if frame is not None and key is not None:
            by_key.setdefault((frame.topic, key), []).append((place, frame))
    for (topic, key), records in by_key.items():
        if len(records) > 1:
            second = records[1][1]
            shown = tuple(place for place, _ in records[:PLACES_MAX])
            count = len(records) + (len(places) - len(looked_at) if len(by_key) == 1 else 0)
            yield Duplicate(topic, key, count, shown, second.queue_id, second.queue_offset)


class _Log:
    """Single records, read with few open files."""

    def __init__(self, segments: Sequence[LogSegment], files: Files) -> None:
        self._segments, self._files = segments, files
        self._open: dict[int, OpenFile] = {}

    def frame_at(self, place: int) -> Frame | None:
        segment = segment_at(self._segments, place)
        if segment is None:
            return None
        file = self._open.get(segment.start)
        if file is None:
            try:
                file = self._files.open(segment.path, False)
            except FileNotFoundError:  # Retention was faster: the message is there once less.
                return None
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
            self._open[segment.start] = file
        return frame_at(file, segment, place)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
