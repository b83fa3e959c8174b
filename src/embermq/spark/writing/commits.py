"""Commits: staged files become records of the store, each batch once, whatever is killed in between.

    1  take the store (its lock); finish an append that was cut short, of any writer
    2  is this batch in the store already?  then only clear up
    3  check the staged files; write append.json: this batch, these files, from this place in the log on
    4  append, partition by partition, row by row
    5  flush the log
    6  write <write>.json: this batch is in the store;  remove append.json
    7  close the store, delete what was staged

Step 3 decides. A batch that was never decided leaves no trace in the log. One that was decided will be there as a
whole: its rows are on the disk in staged files, and the next commit, of the same query or another, goes on where
it was cut short. How far that was, the log says: records of a batch lie side by side from `start` on, because no one
else has the store, and in the order of the staged files, so the ones that are there are counted by comparing
(docs/decisions/0009-spark-commits.md).

Driver side, in a Python process of Spark's that is not the one that planned. One commit at a time.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.errors import AppendRefused, DataLost, PageCacheBusy, SegmentUnavailable, StoreError, StoreLocked
from embermq.files import Files, RealFiles
from embermq.model.hosts import Host
from embermq.model.message import Message, StoredMessage
from embermq.model.properties import MULTI_QUEUE_OFFSET
from embermq.settings import StoreSettings
from embermq.spark.writing import staging
from embermq.spark.writing.broker_topics import BrokerTopics
from embermq.spark.writing.fitted_settings import fit_to_files
from embermq.spark.writing.journal import Append, CommitJournal, Committed
from embermq.spark.writing.staging import JOB_PREFIX, StagedFile
from embermq.store import MessageStore, open_for_maintenance
from embermq.store.append import Admission

log = logging.getLogger(__name__)

CHUNK_ROWS = 4096
_LOCK_PAUSE_SECONDS = 0.05
_TRIES = 3


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """What is to be committed."""

    write: str  # names the journal's file: the same for every attempt at the same rows
    number: int
    label: str
    directory: Path  # of the staged files
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class Committer:
    """Commits to one store."""

    def __init__(
        self,
        store: Path,
        settings: StoreSettings,
        said: frozenset[str] = frozenset(),
        *,
        lock_timeout_ms: int = 30_000,
        files: Files | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root, self._settings, self._said = store, settings, said
        self._files, self._clock, self._sleep = files or RealFiles(), clock or SystemClock(), sleep
        self._lock_timeout_seconds = lock_timeout_ms / 1000
        self._journal = CommitJournal(self._files, store)

    def commit(self, batch: CommitBatch) -> int:
        """Make `batch` part of the store; how many rows that appended: 0 if it was there already.

        AppendRefused if the store cannot take them now; what was decided is then completed later.
        """
        tries = 0
        while True:
            try:
                return self._commit_once(batch)
            except AppendRefused as problem:
                tries += 1
                append = self._journal.load_append()
                if append is None:
                    raise
                if not isinstance(problem, SegmentUnavailable | PageCacheBusy) or tries == _TRIES:
                    raise self._refusal(problem, append) from problem
                # The disk does not keep up. The next try goes on where this one ended.
                log.warning("append refused label=%s batch=%d reason=%s", append.label, append.batch, problem)

    def _commit_once(self, batch: CommitBatch) -> int:
        if self._journal.is_committed(batch.write, batch.number):
            return 0
        with self._open() as store:
            self._finish(store)
            if self._journal.is_committed(batch.write, batch.number):
                return 0
            if batch.rows:
                self._carry_out(store, self._decide(store, batch))
        return batch.rows

    def _refusal(self, problem: AppendRefused, append: Append) -> AppendRefused:
        """What the store said, and what becomes of the rows."""
        return AppendRefused(
            f"{problem.reason}. What is left of {append.label}, batch {append.batch}, is kept in"
            f" {self._journal.staging_path(append)} and appended by the next write to this store",
            problem.status,
        )

    def finish(self) -> None:
        """Finish an append that was cut short, if there is one."""
        if self._journal.load_append() is not None:
            with self._open() as store:
                self._finish(store)

    def needed_directory(self) -> Path | None:
        """The staged files of the append that is under way; they are all that is left of its rows."""
        append = self._journal.load_append()
        return None if append is None else self._journal.staging_path(append)

    def forget(self, write: str) -> None:
        """This write will not be asked for again, and nothing staged of it is left."""
        self._journal.forget(write)

    def clear_forgotten(self, staging_root: Path, before_ms: int) -> None:
        """Delete what writes that died left behind, if nothing has touched it since `before_ms`."""
        staging.clear_forgotten(self._files, staging_root, self.needed_directory(), before_ms)
        self._journal.forget_old(JOB_PREFIX, before_ms)

    # -- the store -----------------------------------------------------------------------------------------

    def _open(self) -> MessageStore:
        """The store, ours alone. While another process has it, wait for a while, then StoreLocked."""
        deadline = self._clock.monotonic() + self._lock_timeout_seconds
        while True:
            fitted = fit_to_files(self._settings, self._said, self._root, self._files)
            try:
                # Parked messages stay parked: another record among those of a batch would hide where it was cut short.
                return open_for_maintenance(self._root, fitted, files=self._files, clock=self._clock)
            except StoreLocked:
                if self._clock.monotonic() >= deadline:
                    raise
            self._sleep(_LOCK_PAUSE_SECONDS)

    def _decide(self, store: MessageStore, batch: CommitBatch) -> Append:
        """From here on the batch will be in the store, come what may."""
        files = sorted(batch.files, key=lambda file: file.partition)
        for file in files:
            staging.check_file(self._files, batch.directory, file)
        append = Append(
            write=batch.write,
            batch=batch.number,
            label=batch.label,
            files=files,
            start=store.max_physical,
            done=0,
            staging=self._journal.staging_text(batch.directory),
        )
        self._journal.save_append(append)
        return append

    def _finish(self, store: MessageStore) -> None:
        """Go on with an append whose process died."""
        append = self._journal.load_append()
        if append is None:
            return
        if self._journal.is_committed(append.write, append.batch):
            self._journal.drop_append()
            return
        self._check_staged(append)
        found = self._count_found(store, append)
        log.warning(
            "finishing an append label=%s batch=%d rows=%d found=%d",
            append.label,
            append.batch,
            append.rows,
            append.done + found,
        )
        if store.max_physical != append.start:
            # From now on the rest begins elsewhere: others may have appended in between.
            append = msgspec.structs.replace(append, start=store.max_physical, done=append.done + found)
            self._journal.save_append(append)
        self._carry_out(store, append)

    def _check_staged(self, append: Append) -> None:
        """StoreError if the rows of an append that was cut short are gone; it says what can be done."""
        try:
            for file in append.files:
                staging.check_file(self._files, self._journal.staging_path(append), file)
        except StoreError as problem:
            raise StoreError(
                f"{problem}. It belongs to {append.label}, batch {append.batch}, which was cut short and has to be"
                f" completed first; bring the file back, or remove {self._journal.append_path} to give its rest up"
            ) from None

    def _carry_out(self, store: MessageStore, append: Append) -> None:
        """Append what is missing of a decided batch, and note that it is all there."""
        end = self._append(store, append)
        while store.flush() < end:  # It gives up waiting after a while; a failed sync raises.
            pass
        self._journal.save_committed(
            Committed(write=append.write, batch=append.batch, label=append.label, rows=append.rows)
        )
        self._journal.drop_append()

    def _append(self, store: MessageStore, append: Append) -> int:
        """All rows that are not there yet; where they end."""
        end = store.max_physical
        topics = BrokerTopics(self._files, self._root, self._clock)
        for messages in self._chunks(append):
            topics.enter(messages)
            newest = store.append_many(messages)[-1]
            end = newest.physical_offset + newest.size
        return end

    # -- rows --------------------------------------------------------------------------------------------------

    def _chunks(self, append: Append) -> Iterator[list[Message]]:
        """The messages of a batch that are not in the store yet, in order."""
        skip = append.done
        for file in append.files:
            if skip >= file.rows:
                skip -= file.rows
                continue
            for messages in staging.iter_messages(self._files, self._journal.staging_path(append), file, skip):
                for at in range(0, len(messages), CHUNK_ROWS):
                    yield messages[at : at + CHUNK_ROWS]
            skip = 0

    def _count_found(self, store: MessageStore, append: Append) -> int:
        """How many records of the batch lie in the log from `start` on."""
        if append.start < store.min_physical:
            raise DataLost(
                f"{self._journal.append_path}: {append.label} was cut short while batch {append.batch} was appended"
                f" from physical offset {append.start} on, and the log now begins at {store.min_physical}: how many of"
                f" its {append.rows:,} rows had been written can no longer be seen. Remove that file to give it up"
            )
        settings = store.settings
        admission = Admission(settings, settings.segment_bytes, Host(*settings.store_host))
        records = store.scan(append.start)
        found = 0
        for messages in self._chunks(append):
            for message in messages:
                record = next(records, None)
                if record is None or not _is_stored_as(record, message, admission):
                    return found
                found += 1
        return found


def _is_stored_as(record: StoredMessage, message: Message, admission: Admission) -> bool:
    """Whether `record` is what appending `message` leaves."""
    wanted = admission.admit(message)  # A delayed one lies in the schedule topic.
    return (
        record.topic == wanted.topic
        and record.queue_id == wanted.queue_id
        and record.born_timestamp == message.born_timestamp
        and record.body == wanted.body
        and (record.property_bytes == wanted.properties or _differ_by_offsets(record, wanted.properties))
    )


def _differ_by_offsets(record: StoredMessage, properties: bytes) -> bool:
    """Whether the store only added the offsets of light queues."""
    given = Message("", encoded_properties=properties).all_properties()
    return {name: value for name, value in record.properties.items() if name != MULTI_QUEUE_OFFSET} == given
