"""How a read is cut into slices: which bytes of the log, or which offsets of which queues, each task gets. Pure.

    log      the log in order, [start, end) of physical offsets; each cut is moved to the next record, so that a slice
             begins where a record begins and whatever lies before the next slice belongs to this one, damage too
    queue    records by the entries of their queues; every slice takes its part of every queue, so that it reads one
             region of the log and not the whole of it
    places   records whose places are known, from the index

Reading in order costs the bytes that are passed, reading by queue 20 bytes an entry and a jump for each record that is
wanted: the cheaper one is taken, and the reason is kept as text. Slices are even by bytes. Nothing is read here:
sizes are samples taken before, and the next record is found by a callable.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from embermq.inspect import even_edges, record_starts

ENTRY_BYTES = 20
# A jump to a record costs about as much as passing so many bytes in order: with everything in memory, both ways took
# the same CPU time at some 60 % of the records wanted, of 240 as of 1,170 bytes. A cold disk is less fond of jumps.
JUMP_BYTES = 1_000
# Below this a slice is not worth a task of its own, unless minPartitions says so.
SLICE_BYTES_MIN = 4 << 20
# What a slice covers at most, unless the user says something else. To begin and end a task takes Spark some 20 ms,
# which is much beside passing records of which only a few numbers are wanted.
SLICE_BYTES = 128 << 20
SLICE_BYTES_WITHOUT_BODIES = 256 << 20
# Every slice names its part of every queue: more than so many parts in all are too much to hand around.
PARTS_MAX = 50_000

Method = Literal["log", "queue", "places"]
Align = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class SizeSample:
    """From this queue offset on, records have about so many bytes."""

    queue_offset: int
    record_bytes: float


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What is wanted of one queue: offsets [start, end), whose records lie in [first_physical, end_physical)."""

    topic: str
    queue_id: int
    start: int
    end: int
    first_physical: int
    end_physical: int
    sizes: tuple[SizeSample, ...] = ()
    wanted_share: float = 1.0  # how many of them pass a filter that their entries can tell (tags)

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """What is wanted of one store."""

    broker_name: str
    log_start: int
    log_end: int  # only what lies in [log_start, log_end) can be wanted
    queues: tuple[QueueRequest, ...] | None = None  # None: whatever there is
    places: tuple[int, ...] | None = None  # the only records that can be wanted, if that is known
    log_because: str = ""  # why only the log itself can answer, if so
    extents: tuple[tuple[int, int], ...] | None = None  # the only parts of the log worth reading, if that is known


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """How many slices."""

    min_partitions: int | None
    max_bytes_per_partition: int
    parallelism: int


@dataclass(frozen=True, slots=True)
class LogCut:
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets [start, end) of one queue, and where in the log their records can lie."""

    topic: str
    queue_id: int
    start: int
    end: int
    first_physical: int
    end_physical: int


@dataclass(frozen=True, slots=True)
class QueueCut:
    parts: tuple[QueueRange, ...]


@dataclass(frozen=True, slots=True)
class PlacesCut:
    places: tuple[int, ...]


Cut = LogCut | QueueCut | PlacesCut


@dataclass(frozen=True, slots=True)
class StorePlan:
    """How one store is read, and why so."""

    broker_name: str
    method: Method
    reason: str
    bytes: int  # about what will be read
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The way chosen for one store, before it is cut."""

    request: StoreRequest
    method: Method
    reason: str
    bytes: int


def plan(requests: Sequence[StoreRequest], limits: SliceLimits, align: Callable[[str, int], int]) -> list[StorePlan]:
    """Slices of all stores. `align(broker_name, physical_offset)`: the first record at or after a place."""
    choices = [choose(request) for request in requests]
    counts = slice_counts([choice.bytes for choice in choices], limits)
    plans = []
    for choice, count in zip(choices, counts, strict=True):
        name = choice.request.broker_name
        cuts = _cut(choice, count, lambda place, name=name: align(name, place))  # type: ignore[misc]
        plans.append(StorePlan(name, choice.method, choice.reason, choice.bytes, cuts))
    return plans


def choose(request: StoreRequest) -> Choice:
    """Which way to read one store is the cheapest."""
    log_start, log_end = log_range(request)
    log_bytes = sum(end - start for start, end in log_parts(request))
    if request.places is not None:
        places = [place for place in request.places if log_start <= place < log_end]
        reason = f"{_count(len(places), 'record')} can be meant, by the index"
        return Choice(request, "places", reason, len(places) * JUMP_BYTES)
    if request.queues is None:
        reason = request.log_because or f"everything in {format_bytes(log_bytes)} of log is wanted"
        return Choice(request, "log", reason, log_bytes)
    records = sum(queue.count * queue.wanted_share for queue in request.queues)
    wanted_bytes = int(sum(queue_bytes(queue) * queue.wanted_share for queue in request.queues))
    queue_cost = sum(queue.count for queue in request.queues) * ENTRY_BYTES + wanted_bytes + int(records * JUMP_BYTES)
    share = f"about {format_bytes(wanted_bytes)} of {format_bytes(log_bytes)} of log is wanted"
    names = _count(len(request.queues), "queue")
    if request.log_because:
        reason = f"{request.log_because}: the log is read in order"
        if request.extents is not None and log_bytes < log_end - log_start:
            reason += f", {format_bytes(log_bytes)} of {format_bytes(log_end - log_start)}"
        return Choice(request, "log", reason, log_bytes)
    if queue_cost < log_bytes or not request.queues:
        entries = sum(queue.count for queue in request.queues) * ENTRY_BYTES
        return Choice(request, "queue", f"{share}: through {names}", entries + wanted_bytes)
    return Choice(request, "log", f"{share}, in {names}: the log is read in order", log_bytes)


def log_range(request: StoreRequest) -> tuple[int, int]:
    """The part of the log in which wanted records can lie; empty ranges begin and end at the same place."""
    start, end = request.log_start, request.log_end
    if request.queues is not None and not request.queues:
        end = start
    elif request.queues is not None:
        start = max(start, min(queue.first_physical for queue in request.queues))
        end = min(end, max(queue.end_physical for queue in request.queues))
    return start, max(start, end)


def log_parts(request: StoreRequest) -> list[tuple[int, int]]:
    """The same without what is known to hold nothing of interest; each part begins where a record begins."""
    low, high = log_range(request)
    if request.extents is None:
        return [(low, high)]
    # What begins before `low` begins at a record all the same, and so does `low`.
    parts = [(max(start, low), min(end, high)) for start, end in request.extents]
    return [(start, end) for start, end in parts if start < end]


def _share(count: int, part: tuple[int, int], parts: Sequence[tuple[int, int]]) -> int:
    """How many of `count` slices a part gets; each gets one."""
    total = sum(end - start for start, end in parts)
    return max(1, -(-count * (part[1] - part[0]) // total)) if total else 1


def slice_counts(sizes: Sequence[int], limits: SliceLimits) -> list[int]:
    """How many slices each store gets, from what will be read of each."""
    total = sum(sizes)
    if total == 0:
        return [1] * len(sizes)
    by_bytes = -(-total // limits.max_bytes_per_partition)
    if by_bytes > limits.parallelism:
        by_bytes += -by_bytes % limits.parallelism  # In the last turn all cores are busy, too.
    wanted = max(
        by_bytes,
        limits.min_partitions or 1,
        min(limits.parallelism, -(-total // SLICE_BYTES_MIN)),
    )
    return [max(1, -(-wanted * size // total)) for size in sizes]


def _cut(choice: Choice, count: int, align: Align) -> tuple[Cut, ...]:
    request = choice.request
    if choice.method == "log":
        parts = log_parts(request)
        return tuple(cut for part in parts for cut in cut_log(*part, _share(count, part, parts), align))
    if choice.method == "queue":
        assert request.queues is not None
        return tuple(cut_queues(request.queues, count))
    assert request.places is not None
    start, end = log_range(request)
    return tuple(cut_places([place for place in request.places if start <= place < end], count))


def cut_log(start: int, end: int, count: int, align: Align) -> list[LogCut]:
    """About `count` ranges of equal length that cover [start, end), each begun at a record.

    `start` itself is not moved: whether a record begins there is for its owner to know."""
    if start >= end:
        return []
    return [LogCut(a, b) for a, b in pairwise([*record_starts(start, end, count, align), end])]


def cut_queues(queues: Sequence[QueueRequest], count: int) -> list[QueueCut]:
    """`count` slices (fewer if some would be empty), each with its part of every queue, even by bytes."""
    count = max(1, min(count, PARTS_MAX // max(1, len(queues))))
    edges = [queue_edges(queue, count) for queue in queues]
    cuts = []
    for k in range(count):
        parts = tuple(
            QueueRange(queue.topic, queue.queue_id, at[k], at[k + 1], queue.first_physical, queue.end_physical)
            for queue, at in zip(queues, edges, strict=True)
            if at[k] < at[k + 1]
        )
        if parts:
            cuts.append(QueueCut(parts))
    return cuts


def cut_places(places: Sequence[int], count: int) -> list[PlacesCut]:
    """Known places in log order, in `count` runs of equal length; none is empty."""
    ordered = sorted(set(places))
    count = max(1, min(count, len(ordered)))
    return [PlacesCut(tuple(ordered[a:b])) for a, b in pairwise(even_edges(0, len(ordered), count)) if a < b]


def queue_bytes(queue: QueueRequest) -> float:
    """About how many bytes the records of a queue have."""
    return _bytes_before(queue)[-1]


def queue_edges(queue: QueueRequest, count: int) -> list[int]:
    """count + 1 offsets from start to end, so that each step has about the same number of bytes."""
    steps, before = _steps(queue), _bytes_before(queue)
    edges = [queue.start]
    for k in range(1, count):
        target = before[-1] * k / count
        step = min(bisect_right(before, target) - 1, len(steps) - 1)
        rate = steps[step].record_bytes
        edge = steps[step].queue_offset + (round((target - before[step]) / rate) if rate > 0 else 0)
        edges.append(min(max(edge, edges[-1]), queue.end))
    return [*edges, queue.end]


def _steps(queue: QueueRequest) -> list[SizeSample]:
    """The samples inside the range, the first at its start; records of unknown size count one byte each."""
    inside = [sample for sample in queue.sizes if queue.start < sample.queue_offset < queue.end]
    before = [sample for sample in queue.sizes if sample.queue_offset <= queue.start]
    first = before[-1].record_bytes if before else (inside[0].record_bytes if inside else 1.0)
    return [SizeSample(queue.start, first), *inside]


def _bytes_before(queue: QueueRequest) -> list[float]:
    """Bytes before each step, and before the end."""
    steps = _steps(queue)
    ends = [*(step.queue_offset for step in steps[1:]), queue.end]
    total = [0.0]
    for step, end in zip(steps, ends, strict=True):
        total.append(total[-1] + (end - step.queue_offset) * step.record_bytes)
    return total


def format_bytes(size: float) -> str:
    """For people: `1.2 GiB`."""
    for entry in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {entry}" if entry == "bytes" else f"{size:.1f} {entry}"
        size /= 1024
    return f"{size:.1f} TiB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
