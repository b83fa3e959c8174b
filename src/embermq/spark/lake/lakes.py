"""A lake as a whole: open one, add ranges of logs to it, check it, join its small files. Driver side.

    lake = Lake.open("/data/lake")
    lake.add(spark, survey, "broker-a", survey.log_end)

Ranges of queues of a cluster are added by queue_ranges.py.

Adding is exactly once: before anything is written, `_pending.json` says under which names; then tasks write and read
back the files; then the commit appears, in one step; in a lake of tables its files are then published into them, which
may be repeated. Killed in between, the next add removes what the pending names left behind, or publishes what was
committed, and begins again where the last commit ended. Writers take turns (writer_lock.py). Small files that
were joined stay a while (compaction_grace.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from embermq.clock import Clock, SystemClock
from embermq.errors import DataLost, OptionInvalid, StoreError, StoreReplaced
from embermq.inspect import Survey, record_starts, slice_count
from embermq.spark.jobs.cluster_tasks import ProgressReport, parallelism, run
from embermq.spark.lake import compaction as joining
from embermq.spark.lake.commits import (
    LakeCommit,
    LakeFile,
    LakeFormat,
    LakeHead,
    LakeQueueRange,
    LakeRange,
    LakeSource,
    Pending,
    covered,
    live_files,
    load_commit,
)
from embermq.spark.lake.compaction import Compacted, Joining
from embermq.spark.lake.compaction_grace import keeps_replaced, let_go
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.frames import file_frame, queue_table_frame, table_frame
from embermq.spark.lake.header import check_head, load_head, make_head
from embermq.spark.lake.json_schemas import merged
from embermq.spark.lake.names import (
    COMMITS,
    JOINED,
    PENDING,
    SUFFIX,
    commit_name,
    commit_number,
    half_of,
    is_joined,
    joined_name,
    joined_stem,
    shown_name,
    stem,
)
from embermq.spark.lake.plain_schema import write_plain_schemas
from embermq.spark.lake.spark_paths import spark_root
from embermq.spark.lake.tables import LakeTables, open_tables, paths_of, publish
from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.lake.writer_lock import alone
from embermq.spark.lake.writing import LakeSlice, SliceRows, clear_disk_errors, write_slice
from embermq.store.log import LogSegment

SLICE_BYTES_MAX = 96 << 20
SLICE_BYTES_MIN = 4 << 20


class Lake:
    """One lake. Not thread-safe."""

    def __init__(self, files: LakeFiles, head: LakeHead, clock: Clock) -> None:
        """Use `open`."""
        self.files, self.head, self._clock = files, head, clock
        self._commits: dict[int, LakeCommit] = {}
        self._unpublished: int | None = None  # the last commit, while its tables may lack it
        self._opened_tables: LakeTables | None = None
        self._given: dict[str, StructType] = {}  # schemas that no commit has yet
        self.drop_bodies = False
        self._summarised: dict[str, StructType] = {}  # schemas that are known to be in the summary files
        self._let_go = 0  # commits whose replaced files are gone
        self.file_bytes: int | None = None

    @classmethod
    def open(
        cls,
        root: str,
        *,
        include_system: bool | None = None,
        make: bool = True,
        clock: Clock | None = None,
        lake_format: LakeFormat | None = None,
        catalog: str | None = None,
        schemas: Mapping[str, StructType] | None = None,
        drop_bodies: bool = False,
        topics: TopicFilter | None = None,
        file_bytes: int | None = None,
        source: LakeSource | None = None,
    ) -> "Lake":
        """The lake at `root`; made if there is none (and `make`). OptionInvalid if the place holds something else.

        `include_system`, `lake_format`, `catalog`, `topics` and `source` are what a new lake has, and must be what an
        old one has, if given. `schemas` are of JSON bodies, by topic; they are joined with those that the lake knows.
        `file_bytes` is the size that files should have, of what this process writes.
        """
        files, clock = LakeFiles(str(root)), clock or SystemClock()
        try:
            head = load_head(files)
            if head is None:
                if not make:
                    raise OptionInvalid("lake", "there is no lake here", value=root)
                head = make_head(
                    files,
                    bool(include_system),
                    lake_format or "parquet",
                    catalog or "",
                    clock.now_ms(),
                    topics,
                    source or "log",
                )
        except OSError as problem:
            raise OptionInvalid("lake", f"cannot be used: {problem.strerror or problem}", value=root) from None
        check_head(head, root, include_system, lake_format, catalog, topics, source)
        lake = cls(files, head, clock)
        lake.file_bytes = file_bytes
        lake.refresh()
        if make:  # Who writes learns at once whether that is possible; who only asks what is covered needs no tables.
            lake._tables  # noqa: B018
        lake._take_schemas(schemas or {}, drop_bodies)
        return lake

    @property
    def _tables(self) -> LakeTables | None:
        """The topics' tables; None if its files are all this lake has."""
        if self._opened_tables is None and self.head.format != "parquet":
            self._opened_tables = open_tables(self.head, self.files)
        return self._opened_tables

    @property
    def has_tables(self) -> bool:
        """Whether each topic is a table of Delta or Iceberg."""
        return self._tables is not None

    @property
    def next_number(self) -> int:
        """Of the commit that comes next."""
        return len(self._commits) + 1

    def _take_schemas(self, given: Mapping[str, StructType], drop_bodies: bool) -> None:
        self._given = {}
        known = self.schemas
        joined = {topic: merged(topic, known[topic], new) if topic in known else new for topic, new in given.items()}
        self._given = {topic: schema for topic, schema in joined.items() if known.get(topic) != schema}
        if drop_bodies and not self.schemas:
            raise OptionInvalid("drop-bodies", "no topic has a schema for its JSON; give one with --json")
        if drop_bodies and self.head.include_system:
            raise OptionInvalid(
                "drop-bodies", f"the lake {self.files.root} is an archive, it stands in for the log; use another lake"
            )
        self.drop_bodies = drop_bodies

    # -- looking -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See commits that others made."""
        for name in self.files.list(COMMITS):
            number = commit_number(name.rpartition("/")[2])
            if number is not None and number not in self._commits:
                self._commits[number] = self._load_commit(name, number)
        numbers = sorted(self._commits)
        if numbers != list(range(1, len(numbers) + 1)):
            missing = next(number for number in range(1, len(numbers) + 2) if number not in self._commits)
            raise StoreError(f"{self.files.full(commit_name(missing))} is missing; restore it before using this lake")
        pending = self._pending() if self.head.format != "parquet" else None
        self._unpublished = pending.number if pending is not None and pending.number in self._commits else None

    def _load_commit(self, name: str, number: int) -> LakeCommit:
        place = self.files.full(name)
        try:
            commit = load_commit(self.files.read(name))
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise StoreError(f"{place}: is no commit: {problem}; restore it before using this lake") from None
        if commit is None or commit.number != number:
            raise StoreError(f"{place}: was changed after it was written (its checksum is wrong); restore it")
        return commit

    def _pending(self) -> Pending | None:
        if not self.files.exists(PENDING):
            return None
        try:
            return msgspec.json.decode(self.files.read(PENDING), type=Pending)
        except FileNotFoundError:
            return None  # The writer is done.
        except msgspec.DecodeError as problem:
            raise StoreError(
                f"{self.files.full(PENDING)}: {problem}; remove it if nothing is writing this lake"
            ) from None

    @property
    def commits(self) -> list[LakeCommit]:
        """What counts, in order: in a lake of tables not the one that is still being published."""
        return [self._commits[number] for number in sorted(self._commits) if number != self._unpublished]

    @property
    def schemas(self) -> dict[str, StructType]:
        """Of JSON bodies, by topic."""
        found: dict[str, str] = {}
        for number in sorted(self._commits):
            found |= self._commits[number].schemas
        known = {topic: StructType.fromJson(msgspec.json.decode(text)) for topic, text in found.items()}
        return known | self._given

    def live_files(self) -> list[LakeFile]:
        """The files that count. In a lake of tables: as they were published; the tables may have joined them."""
        return live_files(self.commits)

    def brokers(self) -> list[str]:
        return sorted({one.broker_name for commit in self.commits for one in commit.ranges})

    def covered(self, broker_name: str) -> list[LakeRange]:
        """What the lake has of a broker's log, in log order."""
        return covered(self.commits, broker_name)

    def ranges(self, broker_name: str) -> list[LakeRange]:
        """The same as it was added, commit by commit."""
        return [one for commit in self.commits for one in commit.ranges if one.broker_name == broker_name]

    def end_of(self, broker_name: str) -> int | None:
        """Up to where the lake has a broker's log; None if it has nothing of it."""
        ranges = self.covered(broker_name)
        return ranges[-1].end if ranges else None

    def check_same_log(self, survey: Survey, broker_name: str) -> None:
        """StoreReplaced if the lake holds another log under this broker's name."""
        ranges = self.covered(broker_name)
        if ranges and not survey.same_log_as(ranges[-1].identity):
            raise StoreReplaced(
                survey.path,
                f"the lake {self.files.root} holds another log under the name {broker_name}; use another lake",
            )

    def frame(
        self, spark: SparkSession, topics: Sequence[str] | None = None, *, value: StructType | None = None
    ) -> DataFrame:
        """The lake's rows in the columns of the format, with `value` also decoded bodies, and `date`."""
        files = [file for file in self.live_files() if topics is None or file.topic in topics]
        root = spark_root(spark, self.files)
        if self._tables is None:
            return self._file_frame(spark, root, files, value)
        paths = paths_of(self._tables, sorted({file.topic for file in files}))
        if self.head.source == "cluster":
            queues = [one for commit in self.commits for one in commit.queues]
            return queue_table_frame(spark, paths, queues, value)
        ranges = {name: self.covered(name) for name in self.brokers()}
        return table_frame(spark, paths, ranges, value)

    def _file_frame(
        self, spark: SparkSession, root: str, files: Sequence[LakeFile], value: StructType | None
    ) -> DataFrame:
        """Spark takes topic and day from what comes after a root: files that were joined have one of their own."""
        plain = [f"{root}/{file.path}" for file in files if not is_joined(file.path)]
        joined = [f"{root}/{file.path}" for file in files if is_joined(file.path)]
        if not joined:
            return file_frame(spark, root, plain, value)
        frame = file_frame(spark, f"{root}/{JOINED}", joined, value)
        return file_frame(spark, root, plain, value).unionByName(frame) if plain else frame

    # -- adding ------------------------------------------------------------------------------------------------

    def add(
        self,
        spark: SparkSession,
        survey: Survey,
        broker_name: str,
        end: int,
        *,
        start: int | None = None,
        on_progress: ProgressReport | None = None,
    ) -> LakeCommit | None:
        """Bring the lake up to `end` of a log; None if it is already there.

        DataLost if the log no longer has what comes next (`start` accepts that, and begins there).
        """
        with self.turn():
            return self._add(spark, survey, broker_name, end, start, on_progress)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While no other process writes, with all that others wrote in view."""
        with ExitStack() as held:
            with clear_disk_errors(self.files.root):
                held.enter_context(alone(self.files))
            self._clean_up()
            self._let_replaced_go()
            self._take_schemas(self._given, self.drop_bodies)  # Others may have brought some.
            yield

    def _add(
        self,
        spark: SparkSession,
        survey: Survey,
        broker_name: str,
        end: int,
        start: int | None,
        on_progress: ProgressReport | None,
    ) -> LakeCommit | None:
        self.check_same_log(survey, broker_name)
        known = self.end_of(broker_name)
        begin = survey.log_min if known is None else known
        if start is not None:
            begin = max(begin, start)
        if begin >= end:
            return None
        if known is not None and survey.log_min > begin:
            raise DataLost(
                f"{survey.path}: the lake ends at {begin:,} and the log now begins at {survey.log_min:,}; what lies"
                " between is gone. A pipeline into this lake continues with a gap if --ignore-data-loss is set"
            )
        pieces = self._slices(survey, broker_name, survey.record_start(begin), end, parallelism(spark))
        stems = [stem(broker_name, piece.start, piece.end) for piece in pieces]
        with self.writing(stems):
            results = run(spark, write_slice, pieces, f"writing {broker_name}", on_progress)
            files = [file for result in results for file in result.files]
            return self.commit([_range_of(results, broker_name, survey.identity, begin, end)], files)

    @contextmanager
    def writing(self, stems: list[str]) -> Iterator[None]:
        """Around tasks that write files with these beginnings of names, and the commit that lists them."""
        with clear_disk_errors(self.files.root):
            number = self.next_number
            self.files.write(PENDING, msgspec.json.encode(Pending(number, stems)))
            try:
                yield
            except BaseException:
                # What was written goes at once, a disk may be full. The pending names stay: a task may still be at it.
                if number not in self._commits:
                    self._remove_files(stems)
                raise
            self._finish(self._commits[number])
            self.files.remove(PENDING)

    def _slices(self, survey: Survey, broker_name: str, start: int, end: int, cores: int) -> list[LakeSlice]:
        """Even parts that begin where records begin, as many as cores unless that makes them too large or small."""
        if start >= end:
            return []
        # A slice makes a file of each topic and day: who wants large files gets fewer slices.
        least = min(max(self.file_bytes or 0, SLICE_BYTES_MIN), SLICE_BYTES_MAX)
        count = slice_count(end - start, cores, least, SLICE_BYTES_MAX)
        starts = record_starts(start, end, count, survey.record_start)
        as_tables, schemas = self.has_tables, self.schemas
        return [
            LakeSlice(
                self.files.root,
                broker_name,
                _between(survey, low, high),
                low,
                high,
                self.head.include_system,
                as_tables,
                schemas,
                self.drop_bodies,
                self.head.topics,
            )
            for low, high in pairwise([*starts, end])
        ]

    def commit(
        self,
        ranges: list[LakeRange],
        files: Sequence[LakeFile],
        replaced: Sequence[str] = (),
        queues: Sequence[LakeQueueRange] = (),
    ) -> LakeCommit:
        """Let the files count that were written; inside `writing`."""
        schemas = {topic: schema.json() for topic, schema in self._given.items()}
        commit = LakeCommit(
            self.next_number,
            self._clock.now_ms(),
            ranges,
            list(files),
            list(replaced),
            schemas=schemas,
            queues=list(queues),
        ).sealed()
        try:
            self.files.write(commit_name(commit.number), msgspec.json.encode(commit), new=True)
        except FileExistsError:
            self.refresh()
            self._remove_uncounted(files)
            raise StoreError(
                f"the lake {self.files.root} got a commit from another writer; one writer at a time. Run it again"
            ) from None
        self._commits[commit.number] = commit
        self._given = {}
        self._unpublished = commit.number if self._tables is not None else None
        return commit

    def _finish(self, commit: LakeCommit) -> None:
        """What follows from a commit, and may be done twice: tables take it, and files that count no longer go."""
        if self._tables is not None:
            publish(self._tables, commit, self.schemas)
        elif self.schemas != self._summarised:
            write_plain_schemas(self.files, self.schemas)
            self._summarised = self.schemas
        self._unpublished = None
        if not keeps_replaced(self.files):
            for path in commit.replaced:
                self.files.remove(path)

    def _let_replaced_go(self) -> None:
        if keeps_replaced(self.files):
            with clear_disk_errors(self.files.root):
                self._let_go += let_go(self.files, self.commits[self._let_go :], self._clock.now_ms())

    def _clean_up(self) -> None:
        """Finish, or remove what is left of, an add that did not come to its end."""
        self.refresh()
        pending = self._pending()
        if pending is not None:
            with clear_disk_errors(self.files.root):
                if pending.number in self._commits:
                    self._finish(self._commits[pending.number])
                else:
                    self._remove_files(pending.stems)
                self.files.remove(PENDING)

    def _remove_uncounted(self, files: Sequence[LakeFile]) -> None:
        for path in {file.path for file in files} - {file.path for file in self.live_files()}:
            self.files.remove(path)

    def _remove_files(self, stems: Sequence[str]) -> None:
        counted = {file.path for file in self.live_files()}
        for path, is_linked in self.files.list_own():
            name = path.rpartition("/")[2]
            whole = half_of(name)
            is_rows = name.endswith(SUFFIX) and (not path.startswith("_") or is_joined(path))
            ours = is_rows and name.startswith(tuple(stems))
            # A link may lead to another lake, which is being written.
            is_half = whole is not None and (not is_linked or whole.startswith(tuple(stems)))
            if path not in counted and (ours or is_half):
                self.files.remove(path)

    # -- keeping -----------------------------------------------------------------------------------------------

    def check(self, spark: SparkSession, on_progress: ProgressReport | None = None) -> int:
        """Read every file back; StoreError for the first that is not what its commit says. How many there are.

        Of a lake of tables, whose files others may rewrite: whether each table has as many rows as the commits say.
        """
        files = self.live_files()
        if self._tables is None:
            run(spark, joining.check_piece, [(self.files, file) for file in files], "reading back", on_progress)
            return len(files)
        for topic in sorted({file.topic for file in files}):
            wanted, found = sum(file.rows for file in files if file.topic == topic), self._tables.rows(topic)
            if wanted != found:
                raise StoreError(f"the table of topic {topic} has {found:,} rows, and the commits say {wanted:,}")
        return sum(len(self._tables.paths(topic)) for topic in {file.topic for file in files})

    def compact(
        self, spark: SparkSession, on_progress: ProgressReport | None = None, *, full_only: bool = False
    ) -> Compacted:
        """Join the small files of each topic and day; with `full_only` those that make a file of the wanted size. The
        rows stay the same; readers see one or the other."""
        with self.turn():
            return self._compact(spark, on_progress, full_only)

    def _compact(self, spark: SparkSession, on_progress: ProgressReport | None, full_only: bool) -> Compacted:
        size = self.file_bytes or joining.JOINED_BYTES_MAX
        if self._tables is not None:
            topics = sorted({file.topic for file in self.live_files()})
            counts = [self._tables.compact(topic, self.file_bytes) for topic in topics]
            return Compacted(sum(before for before, _ in counts), sum(after for _, after in counts))
        small, groups = joining.groups_of_small_files(self.live_files(), size, full_only=full_only)
        number, schemas = self.next_number, self.schemas
        pieces = [
            Joining(self.files, tuple(group), self._joined_name(group[0], number, place), schemas.get(group[0].topic))
            for place, group in enumerate(groups)
        ]
        if not pieces:
            return Compacted(small, small)
        replaced = [file.path for piece in pieces for file in piece.files]
        with self.writing([joined_stem(number)]):
            results = run(spark, joining.join_files, pieces, "joining small files", on_progress)
            self.commit([], [file for result in results for file in result.files], replaced)
        return Compacted(small, small - len(replaced) + len(pieces))

    def _joined_name(self, first: LakeFile, number: int, group: int) -> str:
        name = joined_name(first.path.rpartition("/")[0], number, group)
        return name if keeps_replaced(self.files) else shown_name(name)


def _between(survey: Survey, start: int, end: int) -> tuple[LogSegment, ...]:
    """The log files that a range lies in."""
    return tuple(one for one in survey.segments if one.start < end and one.end > start)


def _range_of(results: Sequence[SliceRows], broker_name: str, identity: str, start: int, end: int) -> LakeRange:
    return LakeRange(
        broker_name,
        identity,
        start,
        end,
        sum(one.records for one in results),
        sum(one.rows for one in results),
        sum(damage.end - damage.start for one in results for damage in one.damages),
        sum(one.undecoded for one in results),
    )
