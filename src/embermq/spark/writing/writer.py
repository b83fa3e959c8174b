"""Writing a DataFrame or a stream into a store: the classes Spark calls.

    batch_writer, stream_writer     driver, in the process that plans: options and columns are checked here
    write                           workers, once for each attempt at a partition: stages a file
    commit, abort                   driver, in another process; of a stream after a new call of stream_writer

Nothing is appended before every partition is staged, and then by `commits.Committer`, which is where it is decided
what happens once. `abort` only clears up: Spark calls it late, or not at all, and tasks may go on after it.
"""

import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from embermq.errors import MessageRejected, OptionInvalid, StoreError, StoreLocked
from embermq.files import LockHeld, RealFiles
from embermq.model.hosts import Host
from embermq.settings import StoreSettings
from embermq.spark.options.write_options import WriteOptions, parse
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.writing import staging
from embermq.spark.writing.commits import CommitBatch, Committer
from embermq.spark.writing.fitted_settings import fit_to_files
from embermq.spark.writing.staging import JOB_PREFIX, QUERY_PREFIX, StagedFile
from embermq.spark.writing.write_rows import PartitionId, RowReader, check_columns
from embermq.store.append import Admission
from embermq.store.layout import LOCK

_FILES = RealFiles()
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_REFUSALS_SHOWN = 3
_LOCK_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task did: a file, or nothing if it had no rows, or why a row of its cannot be stored."""

    query_id: str
    batch: int
    file: StagedFile | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything a task must know; travels pickled."""

    options: WriteOptions
    columns: Mapping[str, int]
    settings: StoreSettings  # with the sizes of files that are there

    def stage(self, write: str, batch: int, batches: Iterator[pa.RecordBatch]) -> tuple[StagedFile | None, str]:
        """Stage one attempt at one partition: the file, and what is wrong with a row if that cannot be."""
        context = TaskContext.get()
        assert context is not None
        options, settings = self.options, self.settings
        born_ms = time.time_ns() // 1_000_000
        rows = RowReader(
            self.columns,
            Admission(settings, settings.segment_bytes, Host(*settings.store_host)),
            PartitionId(write, batch, context.partitionId()),
            topic=options.topic,
            queues=options.queues,
            unique_keys=options.unique_keys,
            born_ms=born_ms,
        )
        directory = staging.batch_directory(options.staging, write, batch)
        try:
            staging.make_directory(_FILES, directory, options.store)
            staged = staging.stage(
                _FILES, directory, context.partitionId(), context.taskAttemptId(), rows.staged(batches), born_ms
            )
        except MessageRejected as problem:
            # Not raised here: Spark would try the same rows again, and bury the reason under the task's own story.
            return None, problem.reason
        except OSError as problem:
            raise StoreError(
                f"{problem.filename or directory}: cannot be written: {problem.strerror or problem}; tasks stage their"
                " rows there (stagingPath)"
            ) from problem
        return staged, ""

    def committer(self) -> Committer:
        options = self.options
        return Committer(
            options.store, options.settings, options.settings_said, lock_timeout_ms=options.lock_timeout_ms
        )

    def clear_forgotten(self, committer: Committer) -> None:
        before_ms = time.time_ns() // 1_000_000 - self.options.staging_retention_ms
        committer.clear_forgotten(self.options.staging, before_ms)


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> "BatchWriter":
    """Driver side: check everything that can be checked before a task runs."""
    plan = _plan(schema, parse(options, streaming=False))
    if overwrite:
        raise OptionInvalid(
            "mode",
            "a store cannot be overwritten: it is a log, and consumers know places in it. Use mode('append'), or"
            " write to a new directory",
            value="overwrite",
        )
    _wait_for_lock(plan.options)
    return BatchWriter(plan, f"{JOB_PREFIX}{secrets.token_hex(16)}")


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> "StreamWriter":
    """Driver side, for every micro-batch and every commit: changes nothing."""
    plan = _plan(schema, parse(options, streaming=True))
    if overwrite:
        raise OptionInvalid(
            "outputMode", "a store cannot be overwritten with each micro-batch; use append", value="complete"
        )
    return StreamWriter(plan)


def _plan(schema: StructType, options: WriteOptions) -> WritePlan:
    columns = check_columns(schema, has_topic=options.topic is not None)
    fitted = fit_to_files(options.settings, options.settings_said, options.store, _FILES)
    return WritePlan(options, columns, fitted)


def _wait_for_lock(options: WriteOptions) -> None:
    """StoreLocked if a broker has the store: better now than after hours of work. It is not kept."""
    path = options.store / LOCK
    deadline = time.monotonic() + options.lock_timeout_ms / 1000
    while path.exists():
        try:
            _FILES.lock(path).release()
            return
        except PermissionError:
            raise StoreError(f"{path}: no permission to write it; check its owner and mode") from None
        except LockHeld as held:
            if time.monotonic() >= deadline:
                raise StoreLocked(options.store, held.pid, held.command) from None
        time.sleep(_LOCK_PAUSE_SECONDS)


class BatchWriter(DataSourceArrowWriter):
    """One batch write. Pickled: to every task, and to the process that commits."""

    def __init__(self, plan: WritePlan, job: str) -> None:
        self._plan, self._job = plan, job

    @clear_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task."""
        file, refusal = self._plan.stage(self._job, 0, iterator)
        return Staged(self._job, 0, file, refusal)

    @clear_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when every task is done."""
        options, committer = self._plan.options, self._plan.committer()
        name = options.write_id
        write = self._job if name is None else _journal_name(name)
        directory = staging.batch_directory(options.staging, self._job, 0)
        committer.commit(CommitBatch(write, 0, name or self._job, directory, _files_of(messages)))
        staging.clear_staged(_FILES, options.staging, self._job, up_to=None)
        if name is None:
            committer.forget(write)
        self._plan.clear_forgotten(committer)

    @clear_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, after a failure, perhaps. A commit that failed half way still needs its files."""
        directory = staging.batch_directory(self._plan.options.staging, self._job, 0)
        if self._plan.committer().needed_directory() != directory:
            staging.clear_staged(_FILES, self._plan.options.staging, self._job, up_to=None)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a stream. Made anew for each, and for each commit."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @clear_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task. Which query and batch this is, only the task's properties tell."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if not query_id or not batch:
            raise StoreError(f"Spark did not say which query and batch this is ({_QUERY_ID}, {_BATCH_ID})")
        file, refusal = self._plan.stage(_query_name(query_id), int(batch), iterator)
        return Staged(query_id, int(batch), file, refusal)

    @clear_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when every task is done; again after a restart, if Spark did not note that it was."""
        options, committer = self._plan.options, self._plan.committer()
        files = _files_of(messages)
        queries = {one.query_id for one in messages if isinstance(one, Staged)}
        if not queries:
            return
        (query_id,) = queries
        write = _query_name(query_id)
        if files:
            directory = staging.batch_directory(options.staging, write, batchId)
            committer.commit(CommitBatch(write, batchId, query_id, directory, files))
        else:
            committer.finish()  # It may be this very batch, which had rows before: they are decided, and staged.
        staging.clear_staged(_FILES, options.staging, write, up_to=batchId)
        self._plan.clear_forgotten(committer)

    @clear_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, after a failure, perhaps. The next commit of this query deletes what is left."""
        options = self._plan.options
        needed = self._plan.committer().needed_directory()
        for one in messages:
            if isinstance(one, Staged) and one.file is not None:
                directory = staging.batch_directory(options.staging, _query_name(one.query_id), one.batch)
                if directory != needed:
                    (directory / one.file.name).unlink(missing_ok=True)


def _files_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[StagedFile, ...]:
    """The files of all partitions; MessageRejected if a row of any cannot be stored."""
    staged = [one for one in messages if isinstance(one, Staged)]
    assert len(staged) == len(messages), messages
    refusals = [one.refusal for one in staged if one.refusal]
    if refusals:
        more = len(refusals) - _REFUSALS_SHOWN
        shown = "; ".join(refusals[:_REFUSALS_SHOWN]) + (f"; and {more} more partitions" if more > 0 else "")
        raise MessageRejected(f"nothing was written: {shown}")
    return tuple(one.file for one in staged if one.file is not None)


def _query_name(query_id: str) -> str:
    """Spark's ids are UUIDs; anything else is hashed, since this names files."""
    plain = query_id.replace("-", "")
    return QUERY_PREFIX + (query_id if plain.isalnum() and plain.isascii() else _digest(query_id))


def _journal_name(write_id: str) -> str:
    return f"write-{_digest(write_id)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
