"""Where logs end now, to know how far behind a pipeline is. Driver side.

To find the end of a log without proofs, its last file is walked once. That begins at once, on a thread of its
own, while Spark starts the query; from then on only what is new is looked at. One thread asks.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from embermq.inspect import Survey


class LogEnds:
    """The ends of these logs, by name."""

    def __init__(self, stores: Mapping[str, str]) -> None:
        self._stores = stores
        pool = ThreadPoolExecutor(1, "embermq-log-ends")
        self._first: dict[str, Future[Survey]] = {
            name: pool.submit(Survey.open, Path(path)) for name, path in stores.items()
        }
        pool.shutdown(wait=False)  # What was begun comes to its end.
        self._surveys: dict[str, Survey] = {}

    def now(self, name: str) -> int:
        """StorePathInvalid if the store is gone."""
        survey = self._surveys.get(name)
        if survey is None:
            survey = self._surveys[name] = self._first.pop(name).result()
        survey.refresh()
        return survey.log_end
