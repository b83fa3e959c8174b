"""Micro-batches without Spark: rows known by their numbers, staged and committed as its workers and driver do.

Row r of partition p of batch b goes to a queue that follows from its numbers, and its body names the attempt that
staged it, so a store tells by itself whether every row is there once, in order, and from one attempt only.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from embermq import MessageStore, StoreSettings
from embermq.clock import Clock
from embermq.files import Files
from embermq.model.hosts import Host
from embermq.spark.writing import staging
from embermq.spark.writing.commits import CommitBatch, Committer
from embermq.spark.writing.staging import StagedFile
from embermq.spark.writing.write_rows import PartitionId, RowReader
from embermq.store.append.admission import Admission

TOPIC = "Sink"
QUERY = "query-00000000-0000-0000-0000-000000000001"
BORN_MS = 1_700_000_000_000


class SinkRow(NamedTuple):
    batch: int
    partition: int
    row: int
    attempt: int

    @property
    def number(self) -> tuple[int, int, int]:
        return self[:3]


class Sink:
    """One query and the store it writes to, on any disk."""

    def __init__(
        self,
        root: Path,
        files: Files,
        settings: StoreSettings,
        clock: Clock | None = None,
        *,
        query: str = QUERY,
        partitions: tuple[int, ...] = (5, 0, 4),
        topic: str = TOPIC,
        delay_level: int = 0,
    ) -> None:
        self.root, self.files, self.settings, self.query, self.topic = root, files, settings, query, topic
        self.partitions, self.delay_level = partitions, delay_level
        self.staging = root / "embermq.staging"
        self.committer = Committer(root, settings, files=files, clock=clock, lock_timeout_ms=0)

    def on(self, files: Files) -> "Sink":
        return Sink(self.root, files, self.settings, query=self.query, partitions=self.partitions, topic=self.topic)

    def stage(self, batch: int, attempt: int = 0) -> list[StagedFile]:
        """What the tasks of one micro-batch do."""
        directory = staging.batch_directory(self.staging, self.query, batch)
        staged = []
        for partition in range(len(self.partitions)):
            staging.make_directory(self.files, directory, self.root)
            admission = Admission(self.settings, self.settings.segment_bytes, Host("127.0.0.1", 10911))
            rows = RowReader(
                {"body": 0, "delayLevel": 1},
                admission,
                PartitionId(self.query, batch, partition),
                topic=self.topic,
                queues=2,
                unique_keys=True,
                born_ms=BORN_MS,
            )
            batches = rows.staged(self._batches(batch, partition, attempt))
            file = staging.stage(self.files, directory, partition, attempt, batches, BORN_MS)
            if file is not None:
                staged.append(file)
        return staged

    def _batches(self, batch: int, partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        bodies = [f"{batch}|{partition}|{row}|{attempt}" for row in range(self.partitions[partition])]
        step = 2 if len(bodies) < 100 else 500
        for at in range(0, len(bodies), step):
            part = bodies[at : at + step]
            yield pa.record_batch(
                [pa.array(part), pa.array([self.delay_level] * len(part))], names=["body", "delayLevel"]
            )

    def commit(self, batch: int, staged: list[StagedFile]) -> int:
        """What the driver does when all of them are done."""
        directory = staging.batch_directory(self.staging, self.query, batch)
        rows = self.committer.commit(CommitBatch(self.query, batch, self.query, directory, tuple(staged)))
        staging.clear_staged(self.files, self.staging, self.query, up_to=batch)
        return rows

    def run(self, batch: int, attempt: int = 0) -> int:
        return self.commit(batch, self.stage(batch, attempt))

    def open(self) -> MessageStore:
        return MessageStore.open(self.root, self.settings, files=self.files)

    def rows(self) -> list[SinkRow]:
        """Every row in the store, in log order."""
        with self.open() as store:
            return rows_in(store, self.topic)


def rows_in(store: MessageStore, topic: str = TOPIC) -> list[SinkRow]:
    return [SinkRow(*map(int, one.body.split(b"|"))) for one in store.scan() if one.topic == topic]


def check_rows(found: list[SinkRow], batches: int, partitions: tuple[int, ...] = (5, 0, 4)) -> None:
    """Every row of these batches once, in order, each batch from one attempt."""
    wanted = [
        (batch, partition, row)
        for batch in range(batches)
        for partition, rows in enumerate(partitions)
        for row in range(rows)
    ]
    assert [one.number for one in found] == wanted
    for batch in range(batches):
        assert len({one.attempt for one in found if one.batch == batch}) == 1, found


def check_queues(store: MessageStore, topic: str = TOPIC) -> None:
    """What consumers get from the queues is what the log holds."""
    delivered = []
    for queue_id in store.topics().get(topic, []):
        at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        assert (at, end) == (0, store.message_count(topic, queue_id))
        while at < end:
            outcome = store.fetch(topic, queue_id, at)
            delivered += [one.physical_offset for one in outcome.messages]
            at = outcome.next_offset
    assert sorted(delivered) == [one.physical_offset for one in store.scan() if one.topic == topic]
