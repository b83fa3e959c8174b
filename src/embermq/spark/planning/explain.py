"""What a batch read would do, as values: each store with the way it is read and why, each slice with its size.

Made by the same plan that a query gets, without a JVM. Nothing of the log is read but what planning looks at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from embermq.spark.options.read_options import parse
from embermq.spark.planning.plan import ENTRY_BYTES, JUMP_BYTES, Cut, LogCut, Method, PlacesCut, StorePlan, queue_bytes
from embermq.spark.planning.pushdown import Pushed
from embermq.spark.planning.read_request import StoreWork
from embermq.spark.reading.batch_reader import plan_read


@dataclass(frozen=True, slots=True)
class SliceExplained:
    """What one task gets. `bytes` is about what it reads, `records` is not known where the log is read in order."""

    log_start: int
    log_end: int
    queues: int | None
    records: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreExplained:
    """How one store is read: `bytes` of the log between `log_start` and `log_end`."""

    path: str
    broker_name: str
    log_start: int
    log_end: int
    method: Method
    reason: str
    bytes: int
    slices: tuple[SliceExplained, ...]


def explain_read(options: Mapping[str, str]) -> list[StoreExplained]:
    """Every store of a batch with these options; raises what the query would."""
    works, plans = plan_read(parse(options, streaming=False), Pushed())
    return [_store(work, chosen) for work, chosen in zip(works, plans, strict=True)]


def _store(work: StoreWork, chosen: StorePlan) -> StoreExplained:
    return StoreExplained(
        work.place.shown,
        chosen.broker_name,
        work.survey.log_min,
        work.survey.log_end,
        chosen.method,
        chosen.reason,
        chosen.bytes,
        tuple(_slice(work, cut) for cut in chosen.cuts),
    )


def _slice(work: StoreWork, cut: Cut) -> SliceExplained:
    if isinstance(cut, LogCut):
        return SliceExplained(cut.start, cut.end, None, None, cut.end - cut.start)
    if isinstance(cut, PlacesCut):
        first, last = cut.places[0], cut.places[-1]
        return SliceExplained(first, last + 1, None, len(cut.places), len(cut.places) * JUMP_BYTES)
    requests = {(request.topic, request.queue_id): request for request in work.request.queues or ()}
    parts = [replace(requests[part.topic, part.queue_id], start=part.start, end=part.end) for part in cut.parts]
    return SliceExplained(
        min(part.first_physical for part in cut.parts),
        max(part.end_physical for part in cut.parts),
        len(cut.parts),
        sum(part.count for part in parts),
        sum(int(part.count * ENTRY_BYTES + queue_bytes(part) * part.wanted_share) for part in parts),
    )
