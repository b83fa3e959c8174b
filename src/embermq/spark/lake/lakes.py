"""A lake as a whole: open one, add ranges of logs to it, check it, join its small files. Driver side.

    lake = Lake.open("/data/lake")
    lake.add(spark, survey, "broker-a", survey.log_end)

Adding is exactly once: before anything is written, `_pending.json` says under which names; then tasks write and read
back the files; then the commit appears, in one step. Killed in between, the next add removes what the pending names
left behind and begins again where the last commit ended. One writer at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from embermq.clock import Clock, SystemClock
from embermq.errors import DataLost, OptionInvalid, StoreError, StoreReplaced
from embermq.spark.jobs.work import Told, parallelism, run
from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeHead, LakeRange, Pending, covered, live_files
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import COMMITS, LAKE, PENDING, commit_name, commit_number, stem
from embermq.spark.lake.writing import LakeSlice, SliceRows, check_file, write_slice, write_table
from embermq.spark.schema import spark_schema
from embermq.store.survey import LogSegment, Survey

VERSION = 1
SLICE_BYTES_MAX = 128 << 20
SLICE_BYTES_MIN = 4 << 20
SMALL_FILE_BYTES = 32 << 20
COMPACT_FILES_MIN = 4


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    files_before: int
    files_after: int


class Lake:
    """One lake. Not thread-safe."""

    def __init__(self, files: LakeFiles, head: LakeHead, clock: Clock) -> None:
        """Use `open`."""
        self.files, self.head, self._clock = files, head, clock
        self._commits: dict[int, LakeCommit] = {}

    @classmethod
    def open(
        cls, root: str, *, include_system: bool | None = None, make: bool = True, clock: Clock | None = None
    ) -> "Lake":
        """The lake at `root`; made if there is none (and `make`). OptionInvalid if the place holds something else.

        `include_system` is what a new lake has, and must be what an old one has, if given.
        """
        files, clock = LakeFiles(str(root)), clock or SystemClock()
        try:
            head = _load_head(files)
            if head is None:
                if not make:
                    raise OptionInvalid("lake", "there is no lake here", value=root)
                head = LakeHead(VERSION, bool(include_system), clock.now_ms())
                files.write(LAKE, msgspec.json.encode(head))
        except OSError as problem:
            raise OptionInvalid("lake", f"cannot be used: {problem.strerror or problem}", value=root) from None
        if include_system is not None and include_system != head.include_system:
            has = "has" if head.include_system else "leaves out"
            raise OptionInvalid(
                "lake", f"this lake {has} what no consumer sees; choose the same or another lake", value=root
            )
        lake = cls(files, head, clock)
        lake.refresh()
        return lake

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

    def _load_commit(self, name: str, number: int) -> LakeCommit:
        place = self.files.full(name)
        try:
            commit = msgspec.json.decode(self.files.read(name), type=LakeCommit)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise StoreError(f"{place}: is no commit: {problem}; restore it before using this lake") from None
        if commit.sealed() != commit or commit.number != number:
            raise StoreError(f"{place}: was changed after it was written (its sum is wrong); restore it")
        return commit

    @property
    def commits(self) -> list[LakeCommit]:
        return [self._commits[number] for number in sorted(self._commits)]

    def live_files(self) -> list[LakeFile]:
        """The files that count."""
        return live_files(self.commits)

    def brokers(self) -> list[str]:
        return sorted({one.broker_name for commit in self.commits for one in commit.ranges})

    def covered(self, broker_name: str) -> list[LakeRange]:
        """What the lake has of a broker's log, in log order."""
        return covered(self.commits, broker_name)

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

    def frame(self, spark: SparkSession, topics: Sequence[str] | None = None) -> DataFrame:
        """The lake's rows in the columns of the format, and `date`."""
        paths = [self.files.full(file.path) for file in self.live_files() if topics is None or file.topic in topics]
        whole = spark_schema("rocketmq")
        stored = StructType([*(one for one in whole.fields if one.name != "topic"), whole["topic"]])
        stored = stored.add(StructField("date", StringType()))
        if not paths:
            return spark.createDataFrame([], stored).select(*whole.names, "date")
        reader = spark.read.schema(stored).option("basePath", self.files.path)
        return reader.parquet(*paths).select(*whole.names, "date")

    # -- adding ------------------------------------------------------------------------------------------------

    def add(
        self, spark: SparkSession, survey: Survey, broker_name: str, end: int, *, start: int | None = None,
        told: Told | None = None,
    ) -> LakeCommit | None:  # fmt: skip
        """Bring the lake up to `end` of a log; None if it is already there.

        DataLost if the log no longer has what comes next (`start` accepts that, and begins there).
        """
        self.check_same_log(survey, broker_name)
        self._clean_up()
        known = self.end_of(broker_name)
        begin = survey.log_min if known is None else known
        if start is not None:
            begin = max(begin, start)
        if begin >= end:
            return None
        if known is not None and survey.log_min > begin:
            raise DataLost(
                f"{survey.path}: the lake ends at {begin:,} and the log now begins at {survey.log_min:,}; what lies"
                " between is gone. Pass the new beginning as `start` to go on with a gap"
            )
        pieces = self._slices(survey, broker_name, survey.record_start(begin), end, parallelism(spark))
        number = len(self._commits) + 1
        stems = [stem(broker_name, piece.start, piece.end) for piece in pieces]
        self.files.write(PENDING, msgspec.json.encode(Pending(number, stems)))
        results = run(spark, write_slice, pieces, f"writing {broker_name}", told)
        commit = self._commit([_range_of(results, broker_name, survey.identity, begin, end)], results)
        self.files.remove(PENDING)
        return commit

    def _slices(self, survey: Survey, broker_name: str, start: int, end: int, cores: int) -> list[LakeSlice]:
        """Even parts that begin where records begin, as many as cores unless that makes them too large or small."""
        size = min(max((end - start) // cores, SLICE_BYTES_MIN), SLICE_BYTES_MAX)
        count = max(1, -(-(end - start) // size))
        cuts = [start, *(survey.record_start(start + (end - start) * n // count) for n in range(1, count)), end]
        root, system = self.files.root, self.head.include_system
        return [
            LakeSlice(root, broker_name, _between(survey, low, high), low, high, system)
            for low, high in pairwise(sorted({min(cut, end) for cut in cuts}))
        ]

    def _commit(
        self, ranges: list[LakeRange], results: Sequence[SliceRows], replaced: Sequence[str] = ()
    ) -> LakeCommit:
        files = [file for result in results for file in result.files]
        commit = LakeCommit(len(self._commits) + 1, self._clock.now_ms(), ranges, files, list(replaced)).sealed()
        self.files.write(commit_name(commit.number), msgspec.json.encode(commit))
        self._commits[commit.number] = commit
        return commit

    def _clean_up(self) -> None:
        """Remove what an add that did not come to its end left behind."""
        self.refresh()
        if not self.files.exists(PENDING):
            return
        try:
            pending = msgspec.json.decode(self.files.read(PENDING), type=Pending)
        except msgspec.DecodeError as problem:
            raise StoreError(
                f"{self.files.full(PENDING)}: {problem}; remove it if nothing is writing this lake"
            ) from None
        if pending.number not in self._commits:
            counted = {file.path for file in self.live_files()}
            stems = tuple(pending.stems)
            for path in self.files.list(recursive=True):
                name = path.rpartition("/")[2]
                if path not in counted and (name.startswith(stems) or name.startswith("_half-")):
                    self.files.remove(path)
        self.files.remove(PENDING)

    # -- keeping -----------------------------------------------------------------------------------------------

    def check(self, spark: SparkSession, told: Told | None = None) -> int:
        """Read every file back; StoreError for the first that is not what its commit says. How many there are."""
        pieces = [(self.files, file) for file in self.live_files()]
        run(spark, _check_piece, pieces, "reading back", told)
        return len(pieces)

    def compact(self, spark: SparkSession, told: Told | None = None) -> Compacted:
        """Join the small files of each topic and day. The rows stay the same; readers see one or the other."""
        self._clean_up()
        small = [file for file in self.live_files() if file.bytes < SMALL_FILE_BYTES]
        small.sort(key=lambda file: (file.topic, file.date, file.path))
        groups = [list(found) for _, found in groupby(small, key=lambda file: (file.topic, file.date))]
        number = len(self._commits) + 1
        stem_ = f"compacted-{number:020d}"
        pieces = [
            _Joining(self.files, tuple(group), f"{group[0].path.rpartition('/')[0]}/{stem_}.parquet")
            for group in groups
            if len(group) >= COMPACT_FILES_MIN
        ]
        if not pieces:
            return Compacted(len(small), len(small))
        self.files.write(PENDING, msgspec.json.encode(Pending(number, [stem_])))
        results = run(spark, _join_files, pieces, "joining small files", told)
        replaced = [file.path for piece in pieces for file in piece.files]
        self._commit([], results, replaced)
        self.files.remove(PENDING)
        for path in replaced:
            self.files.remove(path)
        return Compacted(len(small), len(small) - len(replaced) + len(pieces))


@dataclass(frozen=True, slots=True)
class _Joining:
    """Files that become one."""

    root: LakeFiles
    files: tuple[LakeFile, ...]
    name: str


def _join_files(piece: _Joining) -> SliceRows:
    import pyarrow as pa

    places = [piece.root.full(file.path) for file in piece.files]
    tables = [
        pq.read_table(place, filesystem=piece.root.arrow, page_checksum_verification=True, partitioning=None)
        for place in places
    ]
    first = piece.files[0]
    made = write_table(piece.root, piece.name, first.topic, first.date, pa.concat_tables(tables))
    return SliceRows(0, 0, 0, made.rows, (), (made,))


def _check_piece(piece: tuple[LakeFiles, LakeFile]) -> None:
    check_file(*piece)


def _load_head(files: LakeFiles) -> LakeHead | None:
    """What the place says it is; None if it is empty or not there."""
    if not files.exists(LAKE):
        if files.exists() and files.list():
            raise OptionInvalid(
                "lake", "there are files here and no _embermq.json; choose another place", value=files.root
            )
        return None
    try:
        head = msgspec.json.decode(files.read(LAKE), type=LakeHead)
    except msgspec.DecodeError as problem:
        raise StoreError(f"{files.full(LAKE)}: {problem}; restore it") from None
    if head.version != VERSION:
        raise StoreError(f"{files.full(LAKE)}: version {head.version} is not known here; a newer EmberMQ wrote it")
    return head


def _between(survey: Survey, start: int, end: int) -> tuple[LogSegment, ...]:
    """The log files that a range lies in."""
    return tuple(one for one in survey.segments if one.start < end and one.end > start)


def _range_of(results: Sequence[SliceRows], broker_name: str, identity: str, start: int, end: int) -> LakeRange:
    return LakeRange(
        broker_name, identity, start, end, sum(one.records for one in results), sum(one.rows for one in results),
        sum(damage.end - damage.start for one in results for damage in one.damages),
    )  # fmt: skip
