"""Several writers of one lake, joining without end, and places with odd names."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.errors import OptionInvalid, StoreError
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.archive import archive
from embermq.spark.lake import Lake, lakes
from embermq.spark.lake import compaction as joining
from embermq.spark.lake import writer_lock as turns
from embermq.spark.lake.commits import LakeFile
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import COMMITS, LAKE, PENDING, is_joined
from embermq.spark.lake.writer_lock import alone
from embermq.spark.reading.views import messages
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.test_lake import BROKER, fill, records, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.extended

NO_SPARK: Any = None


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "run", lambda _, function, pieces, *rest: [function(piece) for piece in pieces])
    monkeypatch.setattr(lakes, "parallelism", lambda _: 2)


@pytest.mark.usefixtures("in_process")
def test_writers_take_turns(tmp_path: Path) -> None:
    """Each from its own thread, piece by piece, and one that joins files meanwhile."""
    root, failures = str(tmp_path / "lake"), list[BaseException]()
    surveys = {name: fill(StoreBuilder(tmp_path / name, **numbered.TINY), 0, 120) for name in ("a", "b", "c")}
    ready = threading.Barrier(len(surveys))

    def write(name: str, survey: Survey) -> None:
        try:
            ready.wait()
            lake = Lake.open(root, include_system=True)
            for part in range(1, 13):
                lake.add(NO_SPARK, survey, name, survey.record_start(survey.log_end * part // 12))
                if part % 5 == 0:
                    lake.compact(NO_SPARK)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=write, args=item) for item in surveys.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    lake = Lake.open(root, make=False)
    for name, survey in surveys.items():
        (whole,) = lake.covered(name)
        assert (whole.start, whole.end) == (0, survey.log_end)
        builder = StoreBuilder(tmp_path / name, **numbered.TINY)
        assert whole.rows == len(records(builder, all_of_them=True))
    assert sum(file.rows for file in lake.live_files()) == sum(lake.covered(name)[0].rows for name in surveys)
    for file in lake.live_files():
        joining.check_piece((lake.files, file))


def test_a_lake_that_appears_while_the_place_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer makes it, and begins a commit, between the look for the head and the list of the files."""
    root, list_files = tmp_path / "lake", LakeFiles.list

    def list_late(files: LakeFiles, name: str = "", *, recursive: bool = False) -> list[str]:
        monkeypatch.setattr(LakeFiles, "list", list_files)
        Lake.open(str(root), include_system=True)
        (root / PENDING).touch()
        return files.list(name, recursive=recursive)

    root.mkdir()
    monkeypatch.setattr(LakeFiles, "list", list_late)
    assert Lake.open(str(root)).head.include_system
    (root / LAKE).unlink()
    with pytest.raises(OptionInvalid, match="choose another place"):
        Lake.open(str(root))


@pytest.mark.usefixtures("in_process")
def test_a_commit_is_never_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks: the second one gets an error, and leaves no rows behind."""
    survey = fill(StoreBuilder(tmp_path / "a", **numbered.TINY), 0, 40)
    root = str(tmp_path / "lake")
    first, second = Lake.open(root, include_system=True), Lake.open(root)
    monkeypatch.setattr(second, "_clean_up", lambda: None)  # It looked before the other one wrote.
    first.add(NO_SPARK, survey, "a", survey.log_end)
    before = (tmp_path / "lake" / COMMITS / f"{1:020d}.json").read_bytes()
    with pytest.raises(StoreError, match="one writer at a time"):
        second.add(NO_SPARK, survey, "b", survey.log_end)
    assert (tmp_path / "lake" / COMMITS / f"{1:020d}.json").read_bytes() == before
    there = {path for path in first.files.list(recursive=True) if path.endswith(".parquet")}
    assert there == {file.path for file in first.live_files()}


def test_a_turn_that_never_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 0.1)
    files = LakeFiles(str(tmp_path / "lake"))
    with alone(files), pytest.raises(StoreError, match="written by another process"), alone(files):
        pass
    with alone(files):
        pass
    assert Lake.open(files.root).commits == []  # The lock alone does not make a place somebody else's.


def test_joined_files_have_a_handy_size() -> None:
    files = [LakeFile(f"topic=a/date=d/{n:05d}.parquet", "a", "d", 1, 30 << 20, 0) for n in range(2000)]
    small, groups = joining.groups_of_small_files(files)
    assert small == 2000
    assert sum(len(group) for group in groups) == 2000
    assert max(sum(file.bytes for file in group) for group in groups) <= joining.JOINED_BYTES_MAX
    tiny = [LakeFile(f"topic=a/date=d/{n:05d}.parquet", "a", "d", 1, 1000, 0) for n in range(2000)]
    assert [len(group) for group in joining.groups_of_small_files(tiny)[1]] == [2000]


@pytest.mark.usefixtures("in_process")
def test_a_day_that_becomes_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path / "store")
    lake = Lake.open(str(tmp_path / "lake"))
    for _ in range(12):
        with builder.open() as store:
            store.append_many([Message("orders", b"x") for _ in range(10)])
        survey = Survey.open(builder.root)
        lake.add(NO_SPARK, survey, BROKER, survey.log_end)
    monkeypatch.setattr(joining, "JOINED_BYTES_MAX", 4 * lake.live_files()[0].bytes + 100)
    lake.compact(NO_SPARK)
    assert len(lake.live_files()) == 3
    assert sum(file.rows for file in lake.live_files()) == 120


@pytest.mark.parametrize("name", ["lake [1]", "lake{a,b}", "lake*", "lake?"])
def test_places_that_look_like_patterns(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    builder = StoreBuilder(tmp_path / "store", **numbered.TINY)
    survey = fill(builder, 0, 16)
    (tmp_path / "lakea").mkdir()
    lake = Lake.open(str(tmp_path / name), include_system=True)
    lake.add(spark, survey, BROKER, survey.log_end)
    assert rows(lake, spark) == records(builder, all_of_them=True)


def test_a_file_that_is_missing(spark: "SparkSession", tmp_path: Path) -> None:
    survey = fill(StoreBuilder(tmp_path / "store", **numbered.TINY), 0, 16)
    lake = Lake.open(str(tmp_path / "lake"))
    lake.add(spark, survey, BROKER, survey.log_end)
    victim = lake.live_files()[0].path
    (tmp_path / "lake" / victim).unlink()
    with pytest.raises(StoreError, match="is missing; restore it") as problem:
        lake.frame(spark)
    assert Path(victim).name in str(problem.value)


def test_a_table_that_was_made_before_files_were_joined(spark: "SparkSession", tmp_path: Path) -> None:
    """No row twice, none left out, for queries before, after and in between."""
    builder, lake = StoreBuilder(tmp_path / "store"), str(tmp_path / "lake")

    def grow() -> None:
        with builder.open() as store:
            store.append_many([Message("orders", b"x") for _ in range(10)])
        archive(spark, [str(builder.root)], lake)

    def table() -> "DataFrame":
        return messages(spark, [str(builder.root)], lake=lake, topics=["orders"])

    for _ in range(3):
        grow()
    early = table()
    for _ in range(2):
        grow()
    assert any(is_joined(file.path) for file in Lake.open(lake).live_files())
    late = table()
    for _ in range(4):
        grow()  # What was joined is joined again.
    for frame in (early, late, table()):
        assert frame.count() == frame.select("physicalOffset").distinct().count() == 90
