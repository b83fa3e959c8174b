"""The stream of the pipeline: each micro-batch is a stretch of each log, as one row that names it. No record is read.

Offsets are next-to-read positions of each log, with the identity of the log they belong to:
{"stores": {"<brokerName>": {"identity": "...", "position": n}}}. A log that was replaced, or has lost what comes next,
stops the query with a clear error; with failOnDataLoss=false it goes on with what is there. Stores that the checkpoint
knows and this run was not given keep their places.

Spark runs the reader in a Python process of its own on the driver, for as long as the query runs.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from embermq.errors import DataLost, OptionInvalid, StoreReplaced
from embermq.inspect import Survey
from embermq.spark.planning.stores import open_survey
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.runtime.newer_spark import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

FORMAT = "embermq-log-ranges"
SCHEMA = "brokerName string, path string, start bigint, end bigint"

log = logging.getLogger(__name__)

Offset = dict[str, Any]


@dataclass
class _Range(InputPartition):
    broker_name: str
    path: str
    start: int
    end: int

    def __post_init__(self) -> None:
        self.value = None


class LogRanges(DataSource):
    """Options: stores (JSON: broker name -> path), maxBytesPerTrigger, failOnDataLoss, everySeconds."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LogRangesReader":  # noqa: N802
        options = self.options
        return LogRangesReader(
            json.loads(options["stores"]),
            int(options["maxBytesPerTrigger"]),
            options["failOnDataLoss"] == "true",
            float(options.get("everySeconds", "0")),
        )


class LogRangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Where the logs end, and how much of them is the next batch."""

    def __init__(
        self,
        stores: dict[str, str],
        bytes_max: int,
        fail_on_loss: bool,
        every_seconds: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`every_seconds` lie between batches that are not full; Spark's own interval would hold up full ones, too."""
        self._stores, self._bytes_max, self._fail_on_loss = stores, bytes_max, fail_on_loss
        self._every_seconds, self._now, self._last_at = every_seconds, now, -math.inf
        self._surveys: dict[str, Survey] = {}
        self._ends: dict[str, int] | None = None  # of Trigger.AvailableNow

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_surveys": {}}

    def _survey(self, broker_name: str) -> Survey:
        """A look at a store as it is now."""
        survey = self._surveys.get(broker_name)
        if survey is None:
            survey = self._surveys[broker_name] = open_survey(self._stores[broker_name])
        else:
            survey.refresh()
        return survey

    @clear_errors
    def initialOffset(self) -> Offset:  # noqa: N802
        """The beginning of each log."""
        positions = {}
        for name in self._stores:
            survey = self._survey(name)
            begin = survey.log_min
            positions[name] = (survey.identity, survey.record_start(begin) if begin else begin)
        return _offset(positions)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    @clear_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ends = {name: self._survey(name).log_end for name in self._stores}

    @clear_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """As far as there is something, and as far as a batch may go; shared out by what each log has left."""
        _check_source(start)
        ends, starts, surveys = {}, {}, {}
        for name in self._stores:
            survey = surveys[name] = self._survey(name)
            ends[name] = survey.log_end if self._ends is None else min(self._ends[name], survey.log_end)
            starts[name] = self._checked(name, survey, start)
        left = sum(max(ends[name] - starts[name], 0) for name in ends)
        if self._is_held_back(left):
            return start
        positions = {}
        for name, survey in surveys.items():
            end = max(ends[name], starts[name])
            if left > self._bytes_max:
                share = max((end - starts[name]) * self._bytes_max // left, 1)
                end = min(survey.record_start(starts[name] + share), end) if end > starts[name] else end
            positions[name] = (survey.identity, end)
        return {"stores": start["stores"] | _offset(positions)["stores"]}

    def _is_held_back(self, left: int) -> bool:
        """Whether what is there waits for more to come."""
        if self._ends is not None or not left:
            return False
        if left < self._bytes_max and self._now() - self._last_at < self._every_seconds:
            return True
        self._last_at = self._now()
        return False

    def _checked(self, name: str, survey: Survey, start: Offset) -> int:
        """Where to go on in a log, after a look whether that is still possible."""
        known = start["stores"].get(name)
        if known is None:
            return survey.log_min
        position = int(known["position"])
        if not survey.same_log_as(known["identity"]):
            raise StoreReplaced(survey.path, "another log lies there now; use another checkpoint for it")
        onward = min(max(position, survey.log_min), survey.log_end)
        if onward == position:
            return position
        border = f"begins at {survey.log_min:,}" if onward > position else f"ends at {survey.log_end:,}"
        if self._fail_on_loss:
            raise DataLost(
                f"{survey.path}: to be read next is {position:,}, and the log now {border};"
                " --ignore-data-loss (fail_on_data_loss=False) continues from there"
            )
        log.warning("data lost path=%s position=%d: the log now %s", survey.path, position, border)
        return onward

    @clear_errors
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One for each log that has something."""
        _check_source(end)
        found: list[InputPartition] = []
        for name, reached in end["stores"].items():
            known = start["stores"].get(name)
            if known is not None and int(known["position"]) == reached["position"]:
                continue
            if name not in self._stores:
                raise OptionInvalid(
                    "path", f"the batch that was under way needs the store of {name} as well; name it again", value=name
                )
            survey = self._surveys.get(name) or self._survey(name)  # `latestOffset` has looked, for the same batch.
            first = survey.log_min if known is None else max(int(known["position"]), survey.log_min)
            if first < reached["position"]:
                found.append(_Range(name, str(self._stores[name]), first, int(reached["position"])))
        return found

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str, int, int]]:
        """In a worker: the range itself is the row."""
        if isinstance(partition, _Range):  # Spark hands an empty one when there are none.
            yield partition.broker_name, partition.path, partition.start, partition.end

    def commit(self, end: Offset) -> None:
        pass


def _check_source(offset: Offset) -> None:
    """OptionInvalid if the checkpoint is of a pipeline from a cluster."""
    if "stores" not in offset:
        raise OptionInvalid("checkpoint", "the progress kept here is not that of stores; name another place")


def _offset(positions: dict[str, tuple[str, int]]) -> Offset:
    return {"stores": {name: {"identity": identity, "position": at} for name, (identity, at) in positions.items()}}
