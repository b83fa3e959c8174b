"""A stream that cannot be: in the place of its reader, and says why when Spark asks the first question.

pyspark's process for streams does not survive an error while a reader is made: it goes on to stop the reader there is
not, and that mistake of its own is what users would see. Errors of the questions arrive as they are. Driver side.
"""

from collections.abc import Iterator
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from embermq.errors import EmberError
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.runtime.newer_spark import ReadLimit, SupportsTriggerAvailableNow


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers every question that may be the first with one error."""

    def __init__(self, problem: EmberError) -> None:
        self._problem = problem

    @clear_errors
    def _refuse(self) -> NoReturn:
        raise self._problem

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        self._refuse()

    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        self._refuse()  # Spark before 4.2 gives no arguments.

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()
