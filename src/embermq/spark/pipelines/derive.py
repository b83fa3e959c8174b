"""Queues and index of a log-only store, derived by a task for each store: the dispatcher's own sinks, fed in order.

One task and not many: what is derived must come in log order, and one core derives faster than a log is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from embermq.inspect import Survey
from embermq.repair.rebuild import DerivedFollower, check_not_deriving
from embermq.settings import StoreSettings
from embermq.spark.jobs.cluster_tasks import run
from embermq.spark.pipelines.batches import LogBatch
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.planning.store_paths import files_at

_known: dict[str, Survey] = {}  # In a worker, from one batch to the next: to find the end of a log takes a walk.


@dataclass(frozen=True, slots=True)
class _Piece:
    path: str
    end: int
    settings: StoreSettings


@dataclass(frozen=True, slots=True)
class _Done:
    records: int
    damages: tuple[str, ...]


class DerivedSink:
    """Brings queues (and index) of each store up to the end of the batch."""

    name = "queues"

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        if settings.index:
            self.name = "queues+index"

    def check(self, paths: Iterable[str]) -> None:
        """StoreError if one of these stores derives by itself. Tasks look again, but their errors come with traces."""
        for path in paths:
            root, files = files_at(path)
            check_not_deriving(files, root)

    def process(self, batch: LogBatch) -> SinkFigures:
        pieces = [_Piece(one.path, one.end, self._settings) for one in batch.ranges]
        done = run(batch.spark, _derive, pieces, "deriving", batch.on_progress)
        return SinkFigures(sum(one.records for one in done), 0, [text for one in done for text in one.damages])


def _derive(piece: _Piece) -> _Done:
    known = _known.pop(piece.path, None)  # Put back when all went well.
    root, files = files_at(piece.path)
    with DerivedFollower.open(root, piece.settings, files=files, survey=known) as follower:
        if follower.position >= piece.end:
            return _Done(0, ())  # Done before a kill.
        progress = follower.advance(piece.end)
        follower.make_durable()
        _known.clear()  # One at a time: whatever it holds open goes with it.
        _known[piece.path] = follower.survey
    damages = tuple(f"{root}: {one.start:,} to {one.end:,}: {one.reason}" for one in progress.damages)
    return _Done(progress.records, damages)
