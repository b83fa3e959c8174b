"""What the audit counts beside what `verify` compares: records by topic, tag and hour, volume over time, the rhythm of
each topic, and the hashes of unique keys.

A `PieceTally` takes the records of one piece of the log where they are read, in a worker; what it keeps is small and
travels back, but for the rows of unique keys (16 bytes a message), which the worker takes out first. All by columns:
there is no loop over records here.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.columns import (
    C_PHYSICAL,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    C_TAGS_AT,
    C_TAGS_LEN,
    C_UNIQ_AT,
    C_UNIQ_LEN,
    NO_TEXT,
    QueueName,
    RecordColumns,
    hash_column_for,
    is_system_topic,
    mixed,
    pays,
    text_hash,
)
from embermq.model.flags import PREPARED, ROLLBACK, TRANSACTION_MASK

HOUR_MS = 3_600_000
_HOURS_MAX = 24 * 366 * 100
_TIME_MAX_MS = 1 << 45  # times are covered by no checksum: whatever stands there must not overflow
TAGS_MAX = 10_000  # texts of tags kept for one piece; what comes on top is counted together
OTHER_TAGS = "(other tags)"
SILENCE_MIN_MS = 60_000
SILENCES_KEPT = 16  # of each topic and piece, the longest
GAP_CLASSES = 64  # gaps by the number of bits of their milliseconds
KEY_ROW = np.dtype([("hash", np.uint64), ("place", np.int64)])
# A message comes by these again and again, each time under its first unique key.
_REPEATING = ("%RETRY%", "%DLQ%")

Numbers = NDArray[np.int64]
CountKey = tuple[str, str, int]  # topic, tag, hour (its begin in ms)


class Gap(NamedTuple):
    """Time without a message of a topic; `place` is that of the record that ended it."""

    start_ms: int
    end_ms: int
    place: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


class TimeWindow(NamedTuple):
    """Store times from `begin_ms` on, before `end_ms`."""

    begin_ms: int = 0
    end_ms: int = _TIME_MAX_MS + 1

    def holds(self, times: Numbers) -> Numbers:
        """Which of these lie in it, as places in the array."""
        return np.flatnonzero((times >= self.begin_ms) & (times < self.end_ms))


ALWAYS = TimeWindow()


class Rhythm(NamedTuple):
    """When messages of one topic came, in one piece or in several that follow one another."""

    messages: int
    first_ms: int
    first_place: int
    last_ms: int
    class_ms: Numbers  # by class of gap: the time that passed in such gaps
    longest: list[Gap]


def is_rhythmic(topic: str) -> bool:
    """Topics of users: whose messages have one unique key each, and a rhythm that means something."""
    return not is_system_topic(topic) and not topic.startswith(_REPEATING)


class _Topics:
    """Topics of the queue numbers of a worker, as arrays that grow with them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.of_queue: Numbers = np.empty(0, np.int64)
        self.hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.is_rhythmic: NDArray[np.bool_] = np.empty(0, np.bool_)

    def follow(self, queues: list[QueueName]) -> None:
        if len(queues) == len(self.of_queue):
            return
        new = [self._numbers.setdefault(topic, len(self._numbers)) for topic, _ in queues[len(self.of_queue) :]]
        self.of_queue = np.concatenate([self.of_queue, np.array(new, np.int64)])
        added = list(self._numbers)[len(self.names) :]
        self.names += added
        self.hashes = np.concatenate([self.hashes, np.array([_topic_hash(name) for name in added], np.uint64)])
        self.is_rhythmic = np.concatenate([self.is_rhythmic, np.array([is_rhythmic(n) for n in added], np.bool_)])


def _topic_hash(topic: str) -> int:
    return text_hash(topic.encode("utf-8", "surrogatepass"))


def _arrow(values: NDArray[np.generic]) -> pa.Array:
    """64-bit numbers as Arrow has them. `pa.array` would do, but loads pandas first, for a second in every worker."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class PieceTally:
    """One piece of the log; one thread. After `finish` it can be pickled."""

    def __init__(self, step_ms: int, window: TimeWindow = ALWAYS) -> None:
        """Of records outside of `window` only the rhythm is kept: it tells what is usual inside."""
        self._step_ms, self._window = step_ms, window
        # As the rest of the audit: what is read by kernels is counted with them.
        self._hash_column = hash_column_for(compiled=pays("check", 0))
        self._topics = _Topics()
        self._batches: list[Numbers] = []
        self._tags: dict[int, str] = {int(NO_TEXT): ""}
        self._keys: list[NDArray[np.void]] = []
        self.counts: dict[CountKey, tuple[int, int]] = {}  # messages, bytes
        self.volume: dict[int, tuple[int, int]] = {}  # number of the step of time -> messages, bytes
        self.rhythms: dict[str, Rhythm] = {}

    def __getstate__(self) -> dict[str, object]:
        """What it counted, once it is finished."""
        return {"counts": self.counts, "volume": self.volume, "rhythms": self.rhythms}

    def take(self, batch: RecordColumns, numbers: Numbers, names: list[QueueName]) -> None:
        self._topics.follow(names)
        rows = batch.rows
        topics = self._topics.of_queue[numbers]
        tags = self._hash_column(batch.data, rows, C_TAGS_AT, C_TAGS_LEN)
        self._learn_tags(batch, tags)
        kind = rows[:, C_SYS_FLAG] & TRANSACTION_MASK
        # A prepared message and its commit are one message.
        counts = self._topics.is_rhythmic[topics] & (kind != PREPARED) & (kind != ROLLBACK)
        kept = np.empty((6, len(rows)), np.int64)
        kept[0], kept[1], kept[2] = topics, tags.view(np.int64), rows[:, C_SIZE]
        kept[3], kept[4], kept[5] = np.clip(rows[:, C_STORE_TIME], 0, _TIME_MAX_MS), rows[:, C_PHYSICAL], counts
        self._batches.append(kept)
        self._take_keys(batch, topics, np.flatnonzero(counts & (rows[:, C_UNIQ_LEN] > 0)))

    def _take_keys(self, batch: RecordColumns, topics: Numbers, chosen: Numbers) -> None:
        rows = batch.rows if len(chosen) == len(batch.rows) else batch.rows[chosen]
        found = np.empty(len(chosen), KEY_ROW)
        keys = self._hash_column(batch.data, rows, C_UNIQ_AT, C_UNIQ_LEN)
        found["hash"] = mixed(self._topics.hashes[topics[chosen]], keys)
        found["place"] = rows[:, C_PHYSICAL]
        self._keys.append(found)

    def _learn_tags(self, batch: RecordColumns, tags: NDArray[np.uint64]) -> None:
        """Keep the text of every tag that is met for the first time."""
        if int(tags[0]) in self._tags and bool((tags == tags[0]).all()):
            return  # Nothing new, as one sees at once.
        for tag in _arrow(tags).unique().to_pylist():
            number = tag & ((1 << 64) - 1)
            if number not in self._tags and len(self._tags) < TAGS_MAX:
                self._tags[number] = batch.tags(int(np.argmax(tags == np.uint64(number)))) or ""

    def finish(self) -> NDArray[np.void]:
        """No more records come. The rows of unique keys."""
        if self._batches:
            topics, tags, sizes, times, places, counts = np.concatenate(self._batches, axis=1)
            self._count_inside(topics, tags, sizes, times)
            chosen = np.flatnonzero(counts)
            if len(chosen) < len(times):
                topics, times, places = topics[chosen], times[chosen], places[chosen]
            self._listen(topics, times, places)
        keys = np.concatenate(self._keys) if self._keys else np.empty(0, KEY_ROW)
        self._batches, self._keys, self._tags = [], [], {}
        return keys

    def _count_inside(self, topics: Numbers, tags: Numbers, sizes: Numbers, times: Numbers) -> None:
        if self._window != ALWAYS:
            inside = self._window.holds(times)
            topics, tags, sizes, times = topics[inside], tags[inside], sizes[inside], times[inside]
        if len(times):
            self._count(topics, tags, sizes, times)
            self._count_over_time(sizes, times)

    def _count(self, topics: Numbers, tags: Numbers, sizes: Numbers, times: Numbers) -> None:
        """Records and bytes by topic, tag and hour."""
        encoded = _arrow(tags).dictionary_encode()
        tag_numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        hours = times // HOUR_MS
        first_hour = int(hours.min())
        hours -= first_hour
        span = int(hours.max()) + 1
        if span > _HOURS_MAX:  # Some time is wrong.
            hours, span = np.minimum(hours, _HOURS_MAX), _HOURS_MAX + 1
        codes = (topics * len(encoded.dictionary) + tag_numbers) * span + hours
        groups = _arrow(codes).dictionary_encode()
        members = groups.indices.to_numpy(zero_copy_only=False)
        messages = np.bincount(members)
        octets = np.bincount(members, weights=sizes.astype(np.float64))
        texts = [self._tags.get(tag & ((1 << 64) - 1), OTHER_TAGS) for tag in encoded.dictionary.to_pylist()]
        for number, code in enumerate(groups.dictionary.to_pylist()):
            rest, hour = divmod(code, span)
            topic, tag = divmod(rest, len(texts))
            key = self._topics.names[topic], texts[tag], (first_hour + hour) * HOUR_MS
            before = self.counts.get(key, (0, 0))
            self.counts[key] = before[0] + int(messages[number]), before[1] + int(octets[number])

    def _count_over_time(self, sizes: Numbers, times: Numbers) -> None:
        steps = times // self._step_ms
        starts = np.concatenate([[0], np.flatnonzero(np.diff(steps)) + 1])  # Times mostly ascend: few runs.
        octets = np.add.reduceat(sizes, starts)
        messages = np.diff(starts, append=len(steps))
        for step, count, size in zip(steps[starts].tolist(), messages.tolist(), octets.tolist(), strict=True):
            before = self.volume.get(step, (0, 0))
            self.volume[step] = before[0] + count, before[1] + size

    def _listen(self, topics: Numbers, times: Numbers, places: Numbers) -> None:
        """The gaps between the messages of each topic."""
        if not len(topics):
            return
        if int(topics.min()) != int(topics.max()):
            # Numbers of 16 bits are sorted by radix, several times faster.
            order = np.argsort(topics.astype(np.int16 if int(topics.max()) < 1 << 15 else np.int32), kind="stable")
            topics, times, places = topics[order], times[order], places[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(topics)) + 1, [len(topics)]])
        gaps = np.maximum(np.diff(times), 0)
        classes = np.frexp(gaps.astype(np.float64))[1]
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            mine = gaps[start : end - 1]
            class_ms = np.bincount(classes[start : end - 1], mine.astype(np.float64), GAP_CLASSES).astype(np.int64)
            long = np.flatnonzero(mine >= SILENCE_MIN_MS)
            long = long[np.argsort(-mine[long], kind="stable")[:SILENCES_KEPT]] + start
            longest = [Gap(int(times[at]), int(times[at + 1]), int(places[at + 1])) for at in sorted(long.tolist())]
            self.rhythms[self._topics.names[int(topics[start])]] = Rhythm(
                end - start, int(times[start]), int(places[start]), int(times[end - 1]), class_ms, longest
            )
