"""A lake has every record of its ranges once, whatever happens while it is written."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from embermq import Message
from embermq.errors import DataLost, OptionInvalid, StoreError, StoreReplaced
from embermq.inspect.snapshot import Survey
from embermq.spark.lake import Lake, lakes, writing
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import COMMITS, PENDING, commit_name, date_of, file_name, quoted, shown_name, stem
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER = "broker-a"


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def fill(builder: StoreBuilder, start: int, end: int) -> Survey:
    with builder.open() as store:
        numbered.append_until(store, start, end)
    return Survey.open(builder.root)


def records(builder: StoreBuilder, *, all_of_them: bool) -> list[tuple[Any, ...]]:
    """What a lake must have, from the store itself."""
    with builder.open(read_only=True) as store:
        found = list(store.scan())
    return sorted(
        (one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.payload, one.tags or None, one.body_crc)
        for one in found
        if all_of_them or (one.sys_flag & 0xC not in (0x4, 0xC) and one.topic != "SCHEDULE_TOPIC_XXXX")
    )


def rows(lake: Lake, spark: "SparkSession") -> list[tuple[Any, ...]]:
    names = ["physicalOffset", "topic", "queueId", "queueOffset", "body", "tags", "bodyCrc"]
    found = lake.frame(spark).select(*names).collect()
    return sorted(tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in found)


@pytest.mark.parametrize("include_system", [True, False])
def test_a_log_goes_in_piece_by_piece(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, include_system: bool
) -> None:
    survey, end = fill(builder, 0, 0), 0
    for more in (40, 100, 160):
        survey = fill(builder, end, more)
        end = more
        lake = Lake.open(str(tmp_path / "lake"), include_system=include_system)
        commit = lake.add(spark, survey, BROKER, survey.log_end)
        assert commit is not None
        assert commit.ranges[0].end == survey.log_end
        assert sum(file.rows for file in commit.files) == commit.ranges[0].rows
        assert lake.add(spark, survey, BROKER, survey.log_end) is None
    again = Lake.open(str(tmp_path / "lake"), make=False)
    assert rows(again, spark) == records(builder, all_of_them=include_system)
    (whole,) = again.covered(BROKER)
    assert (whole.start, whole.end) == (0, survey.log_end)
    assert again.check(spark) == len(again.live_files())


def test_rows_have_the_columns_of_the_format(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    survey = fill(builder, 0, 32)
    lake = Lake.open(str(tmp_path / "lake"))
    lake.add(spark, survey, BROKER, survey.log_end)
    frame = lake.frame(spark)
    from embermq.spark.options.schema import COLUMNS

    assert frame.columns == [*(column.name for column in COLUMNS), "date"]
    row = frame.where("tags is not null").first()
    assert row is not None
    assert row["brokerName"] == BROKER
    assert row["date"] == row["storeTimestamp"].strftime("%Y-%m-%d")
    assert row["properties"]["TAGS"] == row["tags"]
    # And for those who know nothing of commits.
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "lake").num_rows == frame.count()


class Stopped(Exception):
    """The process died here."""


@pytest.mark.parametrize("step", ["pending written", "some files written", "all files written", "committed"])
def test_killed_between_any_two_steps(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    survey = fill(builder, 0, 60)
    lake = Lake.open(str(tmp_path / "lake"), include_system=True)
    lake.add(spark, survey, BROKER, survey.record_start(survey.log_end // 2))
    with monkeypatch.context() as patch:
        _stop_at(patch, step)
        with pytest.raises(Stopped):
            lake.add(spark, survey, BROKER, survey.log_end)
    survey = fill(builder, 60, 90)
    again = Lake.open(str(tmp_path / "lake"))
    again.add(spark, survey, BROKER, survey.log_end)
    assert rows(again, spark) == records(builder, all_of_them=True)
    counted = {file.path for file in again.live_files()}
    assert {path for path in again.files.list(recursive=True) if path.endswith(".parquet")} == counted
    assert not again.files.exists(PENDING)


def _stop_at(patch: pytest.MonkeyPatch, step: str) -> None:
    real_commit = Lake.commit

    def run(spark: Any, function: Any, pieces: Any, *rest: Any) -> Any:
        if step == "pending written":
            raise Stopped
        done = [function(piece) for piece in (pieces[:1] if step == "some files written" else pieces)]
        if step == "some files written":
            raise Stopped
        return done

    def commit(self: Lake, *arguments: Any) -> Any:
        if step == "all files written":
            raise Stopped
        real_commit(self, *arguments)
        raise Stopped

    patch.setattr(lakes, "run", run)
    patch.setattr(lakes, "SLICE_BYTES_MIN", 4096)
    patch.setattr(Lake, "commit", commit)


def test_small_files_become_one(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    lake = Lake.open(str(tmp_path / "lake"), include_system=True, clock=clock)
    for number in range(5):
        survey = fill(builder, number * 16, number * 16 + 16)
        lake.add(spark, survey, BROKER, survey.log_end)
    before, files = rows(lake, spark), len(lake.live_files())
    planned, small = lake.frame(spark), shown(lake)
    done = lake.compact(spark)
    assert done.files_before == files
    assert done.files_after == len(lake.live_files()) < files
    again = Lake.open(str(tmp_path / "lake"), clock=clock)
    assert rows(again, spark) == before == records(builder, all_of_them=True)
    assert again.check(spark) == len(again.live_files())
    # For an hour all is where it was, for queries that were planned before and readers of the folder.
    assert again.compact(spark).files_before == done.files_after
    assert shown(again) == small
    assert planned.count() == len(before)
    clock.advance(s=3600)
    survey = fill(builder, 80, 96)
    again.add(spark, survey, BROKER, survey.log_end)
    assert rows(again, spark) == records(builder, all_of_them=True)
    assert shown(again) == {shown_name(file.path) for file in again.live_files()}
    assert places_in_folder(tmp_path / "lake") == [record[0] for record in records(builder, all_of_them=True)]


def shown(lake: Lake) -> set[str]:
    """What readers without commits look at."""
    return {path for path in lake.files.list(recursive=True) if path.endswith(".parquet") and path[0] != "_"}


def places_in_folder(place: Path) -> list[int]:
    import pyarrow.parquet as pq

    return sorted(pq.read_table(place).column("physicalOffset").to_pylist())


def rows_of_files(lake: Lake) -> list[int]:
    import pyarrow.parquet as pq

    tables = [pq.read_table(lake.files.full(file.path), partitioning=None) for file in lake.live_files()]
    return sorted(place for table in tables for place in table.column("physicalOffset").to_pylist())


@pytest.mark.parametrize("step", ["joined", "committed", "linked", "some removed"])
def test_killed_while_files_are_joined(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whoever reads the folder without its commits sees no row twice, once the next writer was there."""
    no_spark: Any = None
    monkeypatch.setattr(lakes, "run", lambda _, function, pieces, *rest: [function(piece) for piece in pieces])
    monkeypatch.setattr(lakes, "parallelism", lambda _: 1)
    clock = ManualClock()
    lake = Lake.open(str(tmp_path / "lake"), include_system=True, clock=clock)
    for number in range(5):
        survey = fill(builder, number * 16, number * 16 + 16)
        lake.add(no_spark, survey, BROKER, survey.log_end)

    def stop(*_: Any) -> None:
        raise Stopped

    def stop_after(step: str) -> Callable[..., None]:
        real = LakeFiles.link if step == "linked" else LakeFiles.remove

        def call(*arguments: Any) -> None:
            real(*arguments)
            raise Stopped

        return call

    with monkeypatch.context() as patch:
        if step == "joined":
            patch.setattr(Lake, "commit", stop)
            patch.setattr(Lake, "_remove_files", lambda *_: None)  # A killed process clears nothing up.
        elif step == "committed":
            patch.setattr(Lake, "_finish", stop)
        else:
            lake.compact(no_spark)
            clock.advance(s=3600)
            patch.setattr(LakeFiles, "link" if step == "linked" else "remove", stop_after(step))
        with pytest.raises(Stopped):
            lake.compact(no_spark)
    survey = fill(builder, 80, 96)
    again = Lake.open(str(tmp_path / "lake"), clock=clock)
    again.add(no_spark, survey, BROKER, survey.log_end)
    assert (
        rows_of_files(again)
        == places_in_folder(tmp_path / "lake")
        == [record[0] for record in records(builder, all_of_them=True)]
    )
    clock.advance(s=3600)
    assert again.add(no_spark, survey, BROKER, survey.log_end) is None
    assert {shown_name(path) for path in again.files.list(recursive=True) if path.endswith(".parquet")} == shown(again)
    assert places_in_folder(tmp_path / "lake") == rows_of_files(again)


def test_another_store_is_refused(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    survey = fill(builder, 0, 20)
    lake = Lake.open(str(tmp_path / "lake"))
    lake.add(spark, survey, BROKER, survey.log_end)
    other = StoreBuilder(tmp_path / "other", **numbered.TINY)
    stranger = fill(other, 0, 60)
    with pytest.raises(StoreReplaced, match=BROKER):
        lake.add(spark, stranger, BROKER, stranger.log_end)
    assert lake.add(spark, stranger, "broker-b", stranger.log_end) is not None
    assert lake.brokers() == [BROKER, "broker-b"]


def test_a_gap_is_not_passed_over_in_silence(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    survey = fill(builder, 0, 20)
    lake = Lake.open(str(tmp_path / "lake"), include_system=True)
    lake.add(spark, survey, BROKER, survey.log_end)
    fill(builder, 20, 120)
    for old in sorted((builder.root / "commitlog").iterdir())[:2]:
        old.unlink()
    survey = Survey.open(builder.root)
    with pytest.raises(DataLost, match=f"{survey.log_min:,}"):
        lake.add(spark, survey, BROKER, survey.log_end)
    commit = lake.add(spark, survey, BROKER, survey.log_end, start=survey.log_min)
    assert commit is not None
    assert [(one.start, one.end) for one in lake.covered(BROKER)][1] == (survey.log_min, survey.log_end)


def test_damage_is_counted_and_the_rest_goes_in(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    fill(builder, 0, 60)
    with builder.open(read_only=True) as store:
        victim = list(store.scan())[20]
    segment = builder.root / "commitlog" / f"{victim.physical_offset // 8192 * 8192:020d}"
    data = bytearray(segment.read_bytes())
    data[victim.physical_offset % 8192 + 4] ^= 0xFF
    segment.write_bytes(data)
    survey = Survey.open(builder.root)
    lake = Lake.open(str(tmp_path / "lake"), include_system=True)
    commit = lake.add(spark, survey, BROKER, survey.log_end)
    assert commit is not None
    assert commit.ranges[0].damaged_bytes == victim.size
    assert victim.physical_offset not in {row[0] for row in rows(lake, spark)}


def edit(lake: Path, change: Callable[[bytes], bytes]) -> None:
    path = lake / commit_name(1)
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.replace(b'"rows":', b'"rows":1'), "changed after it was written"),
        (lambda data: b"{}", "is no commit"),
        (lambda data: b"", "is no commit"),
    ],
)
def test_a_commit_that_was_edited_is_refused(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    survey = fill(builder, 0, 20)
    Lake.open(str(tmp_path / "lake")).add(spark, survey, BROKER, survey.log_end)
    edit(tmp_path / "lake", change)
    with pytest.raises(StoreError, match=said):
        Lake.open(str(tmp_path / "lake"))


def test_a_commit_that_is_missing_is_noticed(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path / "lake"))
    for number in range(2):
        survey = fill(builder, number * 16, number * 16 + 16)
        lake.add(spark, survey, BROKER, survey.log_end)
    (tmp_path / "lake" / commit_name(1)).unlink()
    with pytest.raises(StoreError, match="is missing"):
        Lake.open(str(tmp_path / "lake"))


def test_a_file_that_was_changed_is_found(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    survey = fill(builder, 0, 40)
    lake = Lake.open(str(tmp_path / "lake"))
    lake.add(spark, survey, BROKER, survey.log_end)
    victim = max(lake.live_files(), key=lambda file: file.rows)
    path = tmp_path / "lake" / victim.path
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    at = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])  # The last byte of a page.
    with pytest.raises(StoreError, match=r"cannot be read back|holds"):
        writing.check_file(lake.files, victim)
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read back"):
        writing.check_file(lake.files, victim)


def test_a_place_that_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(OptionInvalid, match=r"no _embermq\.json"):
        Lake.open(str(tmp_path / "mine"))
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(OptionInvalid, match="no lake here"):
        Lake.open(str(tmp_path / "nothing"), make=False)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionInvalid):
        Lake.open(str(tmp_path / "file"))
    Lake.open(str(tmp_path / "new"), include_system=True)
    with pytest.raises(OptionInvalid, match="what no consumer sees"):
        Lake.open(str(tmp_path / "new"), include_system=False)


def test_topics_that_are_no_file_names(spark: "SparkSession", tmp_path: Path) -> None:
    names = ["%RETRY%group", "a|b", "123", "-"]
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as store:
        store.append_many([Message(name, b"x") for name in names])
    survey = Survey.open(builder.root)
    lake = Lake.open(str(tmp_path / "lake"))
    lake.add(spark, survey, "br/../oker", survey.log_end)
    assert sorted(row["topic"] for row in lake.frame(spark).select("topic").collect()) == sorted(names)
    assert all(path.resolve().is_relative_to(tmp_path / "lake") for path in (tmp_path / "lake").rglob("*"))


def test_names() -> None:
    assert quoted("../x") == "%2E%2E%2Fx"
    assert date_of(0) == "1970-01-01"
    assert date_of(20_773) == "2026-11-16"
    assert file_name("a", "2026-11-16", stem("b", 1, 2)).endswith(f"/b-{1:020d}-{2:020d}.parquet")
    assert commit_name(7) == f"{COMMITS}/{7:020d}.json"
