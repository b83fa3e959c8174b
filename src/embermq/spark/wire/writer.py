"""Writing a DataFrame or a stream into a running cluster: the classes Spark calls.

    batch_writer, stream_writer     driver; options and columns are checked here
    write                           workers, once for each attempt at a partition: sends its rows (sending.py)
    commit, abort                   driver; there is nothing left to do: rows are in the cluster once they are sent

A row is visible when it is sent: unlike a write into a directory, one that fails half way leaves what was sent.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from embermq.errors import MessageRejected, OptionInvalid, StoreError
from embermq.model.hosts import Host
from embermq.settings import StoreSettings
from embermq.spark.options.write_options import ClusterWriteOptions
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.wire.cluster import Cluster, ClusterPlace
from embermq.spark.wire.sending import PartitionSender, send_rows
from embermq.spark.wire.sent_rows import SentRow, producer_of, signed
from embermq.spark.writing.write_rows import PartitionId, RowReader, check_columns
from embermq.store.append import Admission

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_TURNS = (1 << 31) - 1  # Rows are numbered in turns over all queues there may be; which ones there are is seen later.


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """What a task did: rows that it sent, those that an earlier attempt had, or why one cannot be sent."""

    sent: int
    found: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class SendPlan:
    """Everything a task must know; travels pickled."""

    options: ClusterWriteOptions
    columns: Mapping[str, int]

    def send(self, write: str, batch: int, batches: Iterator[pa.RecordBatch]) -> SentRows:
        """Send one attempt at one partition."""
        context = TaskContext.get()
        assert context is not None
        return self.send_partition(PartitionId(write, batch, context.partitionId()), batches)

    def send_partition(self, partition: PartitionId, batches: Iterator[pa.RecordBatch]) -> SentRows:
        options = self.options
        place = ClusterPlace(options.name_servers, patience_ms=options.broker_timeout_ms, access=options.access)
        producer, born_ms = producer_of(partition), time.time_ns() // 1_000_000
        with Cluster(place) as cluster:
            sender = PartitionSender(cluster, producer, options.producer_group, born_ms, recognise=options.unique_keys)
            try:
                send_rows(cluster, sender, self._rows(partition, producer, batches))
            except MessageRejected as problem:
                # Not raised here: Spark would try the same rows again, and bury the reason under the task's own story.
                return SentRows(sender.sent, sender.found, problem.reason)
        return SentRows(sender.sent, sender.found)

    def _rows(self, partition: PartitionId, producer: str, batches: Iterator[pa.RecordBatch]) -> Iterator[SentRow]:
        settings, options = StoreSettings(), self.options
        reader = RowReader(
            self.columns,
            Admission(settings, settings.segment_bytes, Host("127.0.0.1", 0)),
            partition,
            topic=options.topic,
            queues=_TURNS,
            unique_keys=options.unique_keys,
            # Unique keys must be the same in every attempt, whenever it is made: the first of a month.
            born_ms=round(datetime(2000, 1, 1).timestamp() * 1000),
        )
        number = 0
        for batch in batches:
            named = self._named(batch)
            for staged in reader.staged([batch]):
                columns = [column.to_pylist() for column in staged.columns]
                for at, (topic, queue_id, properties, body) in enumerate(zip(*columns, strict=True)):
                    own = queue_id if named is not None and named[at] is not None else None
                    yield SentRow(number, topic, body, signed(properties, producer, number), queue_id, own)
                    number += 1

    def _named(self, batch: pa.RecordBatch) -> list[int | None] | None:
        position = self.columns.get("queueId")
        return None if position is None else batch.column(position).to_pylist()


def batch_writer(schema: StructType, options: ClusterWriteOptions, overwrite: bool) -> "WireBatchWriter":
    if overwrite:
        raise OptionInvalid("mode", "a topic cannot be overwritten; use mode('append')", value="overwrite")
    return WireBatchWriter(_plan(schema, options), options.write_id or f"job-{secrets.token_hex(16)}")


def stream_writer(schema: StructType, options: ClusterWriteOptions, overwrite: bool) -> "WireStreamWriter":
    if overwrite:
        raise OptionInvalid("outputMode", "a topic cannot be overwritten with each micro-batch; use append")
    return WireStreamWriter(_plan(schema, options))


def _plan(schema: StructType, options: ClusterWriteOptions) -> SendPlan:
    return SendPlan(options, check_columns(schema, has_topic=options.topic is not None))


class WireBatchWriter(DataSourceArrowWriter):
    """One batch write. Pickled: to every task, and to the process that commits."""

    def __init__(self, plan: SendPlan, write: str) -> None:
        self._plan, self._write = plan, write

    @clear_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """In a task."""
        return self._plan.send(self._write, 0, iterator)

    @clear_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when every task is done."""
        _check(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was sent stays."""


class WireStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a stream."""

    def __init__(self, plan: SendPlan) -> None:
        self._plan = plan

    @clear_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """In a task. Which query and batch this is, only the task's properties tell."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if not query_id or not batch:
            raise StoreError(f"Spark did not say which query and batch this is ({_QUERY_ID}, {_BATCH_ID})")
        return self._plan.send(f"query-{query_id}", int(batch), iterator)

    @clear_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when every task is done."""
        _check(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was sent stays; the next attempt at the batch recognises it."""


def _check(messages: Sequence[WriterCommitMessage | None]) -> None:
    refusals = [one.refusal for one in messages if isinstance(one, SentRows) and one.refusal]
    if refusals:
        sent = sum(one.sent for one in messages if isinstance(one, SentRows))
        raise MessageRejected(f"not all rows were sent ({sent:,} were): {'; '.join(refusals[:3])}")
