"""A stream without Spark: asks a reader what Spark would ask, in its order, with offsets as JSON text."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from embermq.spark.options.schema import spark_schema
from embermq.spark.streaming.stream_reader import RocketMQStreamReader, stream_reader
from embermq.spark.wire.stream_reader import WireStreamReader

Row = tuple[str, int, int, bytes]  # topic, queue id, queue offset, body


class Drive:
    """One query with one checkpoint: `offset` is what the checkpoint has, `rows` what the sink has."""

    def __init__(self, path: Path | str | None = None, **options: Any) -> None:
        """Of the stores at a path, or with the option nameServer of a cluster."""
        self._options = {name.lower(): str(value) for name, value in options.items()}
        if path is not None:
            self._options["path"] = str(path)
        self.offset = ""
        self.rows: list[Row] = []
        self.batches: list[tuple[str, str]] = []
        self.reader = self._make()

    def _make(self) -> RocketMQStreamReader | WireStreamReader:
        corrupt = self._options.get("oncorrupt") == "rows"
        reader = stream_reader(spark_schema("rocketmq", corrupt=corrupt), self._options)
        assert isinstance(reader, RocketMQStreamReader | WireStreamReader)
        return reader

    def restart(self, **options: Any) -> None:
        """The process ends and the query is started again."""
        self._options |= {name.lower(): str(value) for name, value in options.items()}
        self.reader.stop()
        self.reader = self._make()

    def begin(self) -> None:
        if not self.offset:
            self.offset = json.dumps(self.reader.initialOffset())

    def plan(self, *, everything: bool = False) -> str:
        """The end of the next batch, as Spark writes it into its log; the same text as the start if there is none."""
        self.begin()
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        return json.dumps(self.reader.latestOffset(json.loads(self.offset), limit))

    def read(self, end: str) -> list[Row]:
        """The rows of the batch that ends there, slice by slice."""
        rows: list[Row] = []
        for one in self.reader.partitions(json.loads(self.offset), json.loads(end)):
            for batch in self.reader.read(one):
                rows += rows_of(batch)
        return rows

    def commit(self, end: str) -> None:
        self.reader.commit(json.loads(end))
        self.batches.append((self.offset, end))
        self.offset = end

    def step(self, *, everything: bool = False) -> int:
        """One micro-batch; answers how many rows it had."""
        end = self.plan(everything=everything)
        if end == self.offset:
            return 0
        rows = self.read(end)
        self.rows += rows
        self.commit(end)
        return len(rows)

    def run(self) -> list[int]:
        """Micro-batches until there is nothing more."""
        sizes: list[int] = []
        while True:
            end = self.plan()
            if end == self.offset:
                return sizes
            sizes.append(self.step())


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    names = ("topic", "queueId", "queueOffset", "body")
    columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
    return list(zip(*columns, strict=True))
