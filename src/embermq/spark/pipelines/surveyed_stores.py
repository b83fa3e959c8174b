"""One survey of each store for all sinks of a pipeline, and where its log ends now. Driver side.

To find the end of a log without proofs, its last file is walked once. That begins at once, on a thread of its own,
while Spark starts the query; from then on only what is new is looked at: once for a batch, when the first sink asks,
and once when the batch is done, to know how far behind the pipeline is. One thread asks at a time.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from embermq.inspect import Survey
from embermq.spark.planning.stores import open_survey


class SurveyedStores:
    """Stores by path."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """`paths` by broker name."""
        self._paths = paths
        pool = ThreadPoolExecutor(1, "embermq-surveys")
        self._first: dict[str, Future[Survey]] = {path: pool.submit(open_survey, path) for path in paths.values()}
        pool.shutdown(wait=False)  # What was begun comes to its end.
        self._surveys: dict[str, Survey] = {}
        self._fresh: set[str] = set()  # looked at for the batch in hand

    def begin_batch(self) -> None:
        """What was seen before is old: the ranges of this batch may lie behind it."""
        self._fresh.clear()

    def at(self, path: str) -> Survey:
        """The store as it was when the batch in hand first needed it, or later. StorePathInvalid if it is gone."""
        survey = self._surveys.get(path)
        if survey is None:
            survey = self._surveys[path] = self._first.pop(path).result()
        if path not in self._fresh:
            survey.refresh()
            self._fresh.add(path)
        return survey

    def log_end(self, broker_name: str) -> int:
        """Where a log ends now."""
        path = self._paths[broker_name]
        self._fresh.discard(path)
        return self.at(path).log_end
