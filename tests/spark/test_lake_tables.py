"""Lakes whose topics are Delta or Iceberg tables: every record once, whatever stops the writer; readable by others."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from embermq import Message
from embermq.errors import OptionInvalid, StoreError
from embermq.inspect.snapshot import Survey
from embermq.spark.lake import Lake, lakes, tables
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.names import PENDING, plain
from embermq.spark.reading.views import messages
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.test_lake import BROKER, Stopped, fill, records, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

FORMATS: list[LakeFormat] = ["delta", "iceberg"]


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / BROKER, **numbered.TINY)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run here: what is asked is not Spark's part."""
    monkeypatch.setattr(lakes, "run", lambda _, function, pieces, *rest: [function(piece) for piece in pieces])
    monkeypatch.setattr(lakes, "parallelism", lambda _: 2)
    monkeypatch.setattr(lakes, "SLICE_BYTES_MIN", 4096)


NO_SPARK: Any = None


def read(lake: Lake, topic: str) -> pa.Table:
    """A topic's table as anybody reads it."""
    if lake.head.format == "delta":
        from deltalake import DeltaTable

        return pa.table(DeltaTable(lake.files.full(plain(topic))).to_pyarrow_table())
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("embermq", uri=f"sqlite:///{lake.files.path}/_catalog.db")
    try:
        return catalog.load_table(("embermq", topic)).scan().to_arrow()
    finally:
        catalog.engine.dispose()


def everything(lake: Lake) -> list[tuple[Any, ...]]:
    names = ["physicalOffset", "topic", "queueId", "queueOffset", "body", "tags", "bodyCrc"]
    found: list[tuple[Any, ...]] = []
    for topic in {file.topic for file in lake.live_files()}:
        found += zip(*(read(lake, topic).column(name).to_pylist() for name in names), strict=True)
    return sorted(found)


@pytest.mark.parametrize("lake_format", FORMATS)
def test_with_spark(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, lake_format: LakeFormat) -> None:
    lake = Lake.open(str(tmp_path / "lake"), include_system=True, lake_format=lake_format)
    for number in range(2):
        survey = fill(builder, number * 60, number * 60 + 60)
        lake.add(spark, survey, BROKER, survey.log_end)
    again = Lake.open(str(tmp_path / "lake"), make=False)
    wanted = records(builder, all_of_them=True)
    assert everything(again) == rows(again, spark) == wanted
    again.check(spark)
    dates = {row["date"] for row in again.frame(spark).select("date", "storeTimestamp").distinct().collect()}
    assert dates == {file.date for file in again.live_files()}
    before, after = (done := again.compact(spark)).files_before, done.files_after
    assert after < before if lake_format == "delta" else after == before
    survey = fill(builder, 120, 150)
    both = messages(spark, [str(builder.root)], lake=str(tmp_path / "lake"), include_system=True)
    assert both.count() == len(records(builder, all_of_them=True))
    again.add(spark, survey, BROKER, survey.log_end)
    assert everything(again) == rows(again, spark) == records(builder, all_of_them=True)


STEPS = ["pending", "some files", "all files", "committed", "some tables", "all tables", "cleared"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("lake_format", FORMATS)
def test_killed_between_any_two_steps(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_format: LakeFormat
) -> None:
    """One kill after the other in the same lake, each a step later than the last, and the log grows meanwhile."""
    end = 0
    for step in STEPS if lake_format == "delta" else STEPS[3:]:  # The first are the same, and its commits are slow.
        survey = fill(builder, end, end + 20)
        end += 20
        with monkeypatch.context() as patch:
            _stop_at(patch, step)
            lake = Lake.open(str(tmp_path / "lake"), include_system=True, lake_format=lake_format)
            with pytest.raises(Stopped):
                lake.add(NO_SPARK, survey, BROKER, survey.log_end)
        seen = Lake.open(str(tmp_path / "lake"), make=False)  # A reader believes only what all tables have.
        assert (seen.end_of(BROKER) == survey.log_end) is (step == "cleared"), step
        survey = fill(builder, end, end + 4)  # What comes next is a longer stretch than the one that was cut short.
        end += 4
        again = Lake.open(str(tmp_path / "lake"))
        again.add(NO_SPARK, survey, BROKER, survey.log_end)
        assert everything(again) == records(builder, all_of_them=True), step
        again.check(NO_SPARK)
        assert not again.files.exists(PENDING)


def _stop_at(patch: pytest.MonkeyPatch, step: str) -> None:
    def stopping(real: Callable[..., Any], limit: int = 0) -> Callable[..., Any]:
        """`real` goes through `limit` times and once more if that is 0, and then the process is gone."""
        calls = list[int]()

        def call(*arguments: Any) -> Any:
            calls.append(1)
            if limit and len(calls) > limit:
                raise Stopped
            answer = real(*arguments)
            if not limit:
                raise Stopped
            return answer

        return call

    if step == "pending":
        patch.setattr(lakes, "run", lambda *_: (_ for _ in ()).throw(Stopped))
    elif step in ("some files", "all files"):
        limit = 1 if step == "some files" else 1000

        def run(_: Any, function: Any, pieces: Any, *rest: Any) -> Any:
            for piece in pieces[:limit]:
                function(piece)
            raise Stopped

        patch.setattr(lakes, "run", run)
        patch.setattr(Lake, "_remove_files", lambda *_: None)  # A killed process clears nothing up.
    elif step == "committed":
        patch.setattr(lakes, "publish", lambda *_: (_ for _ in ()).throw(Stopped))
    elif step == "some tables":
        real = tables.publish

        def publish(into: Any, *rest: Any) -> None:
            patch.setattr(into, "publish", stopping(into.publish, 1), raising=False)
            real(into, *rest)

        patch.setattr(lakes, "publish", publish)
    elif step == "all tables":
        patch.setattr(lakes, "publish", stopping(tables.publish))
    else:
        patch.setattr(Lake, "writing", _stopped_after(Lake.writing))


def _stopped_after(real: Any) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def writing(self: Lake, stems: list[str]) -> Any:
        with real(self, stems):
            yield
        raise Stopped

    return writing


SMALL = StructType([StructField("id", StringType())])
LARGE = StructType([*SMALL.fields, StructField("amount", DecimalType(10, 2)), StructField("n", LongType())])


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("lake_format", FORMATS)
def test_a_column_that_comes_later_and_grows(tmp_path: Path, lake_format: LakeFormat) -> None:
    builder, place = StoreBuilder(tmp_path / "store"), str(tmp_path / "lake")
    topic, steps = "%RETRY%a|b", [None, SMALL, LARGE]
    lake = Lake.open(place, lake_format=lake_format)
    for number, schema in enumerate(steps):
        with builder.open() as store:
            store.append(Message(topic, json.dumps({"id": f"o-{number}", "amount": "1.5", "n": number}).encode()))
        survey = Survey.open(builder.root)
        lake = Lake.open(place, schemas={topic: schema} if schema else None)
        lake.add(NO_SPARK, survey, "br/../oker", survey.log_end)
    found = read(lake, topic).sort_by("physicalOffset").column("value").to_pylist()
    assert found[0] is None
    assert (found[1]["id"], found[1]["n"]) == ("o-1", None)
    assert (found[2]["id"], str(found[2]["amount"]), found[2]["n"]) == ("o-2", "1.50", 2)
    assert all(path.resolve().is_relative_to(tmp_path / "lake") for path in (tmp_path / "lake").rglob("*"))
    if lake_format == "delta":
        assert lake.compact(NO_SPARK).files_after == 1
        assert len(read(lake, topic)) == 3


@pytest.mark.usefixtures("in_process")
def test_delta_says_what_a_commit_is(builder: StoreBuilder, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    survey = fill(builder, 0, 40)
    lake = Lake.open(str(tmp_path / "lake"), lake_format="delta")
    lake.add(NO_SPARK, survey, BROKER, survey.log_end)
    table = DeltaTable(tmp_path / "lake" / "Topic0")
    assert table.transaction_version(f"embermq-{lake.head.lake_id}") == 1
    assert table.history(1)[0]["embermq"] == f"{BROKER} 0 to {survey.log_end}"
    assert table.metadata().partition_columns == ["date"]
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sum(one["num_records"] for one in actions) == len(read(lake, "Topic0"))
    assert min(one["min.physicalOffset"] for one in actions) == min(read(lake, "Topic0")["physicalOffset"].to_pylist())


@pytest.mark.usefixtures("in_process")
def test_iceberg_in_a_catalog_that_others_use(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog import load_catalog

    (tmp_path / "warehouse").mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/prod.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config", fromlist=["x"]).Config())
    survey = fill(builder, 0, 20)
    lake = Lake.open(str(tmp_path / "lake"), lake_format="iceberg", catalog="prod.shop")
    lake.add(NO_SPARK, survey, BROKER, survey.log_end)
    table = load_catalog("prod").load_table(("shop", "Topic0"))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["embermq.stretch"] == f"{BROKER} 0 to {survey.log_end}"
    assert (table.properties["embermq.lake"], table.properties["embermq.commit"]) == (lake.head.lake_id, "1")
    assert table.scan().count() == sum(file.rows for file in lake.live_files() if file.topic == "Topic0")
    assert not (tmp_path / "lake" / "_catalog.db").exists()
    assert Lake.open(str(tmp_path / "lake"), make=False).end_of(BROKER) == survey.log_end  # It remembers where.
    other = Lake.open(str(tmp_path / "other"), lake_format="iceberg", catalog="prod.shop")
    with pytest.raises(StoreError, match=r"shop\.\w+ is of another lake; choose another namespace"):
        other.add(NO_SPARK, survey, BROKER, survey.log_end)
    with pytest.raises(OptionInvalid, match=r"are in prod\.shop"):
        Lake.open(str(tmp_path / "lake"), catalog="test")
    with pytest.raises(OptionInvalid, match="pyiceberg cannot open it"):
        Lake.open(str(tmp_path / "third"), lake_format="iceberg", catalog="nowhere")
    assert not (tmp_path / "third").exists()


def test_formats_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Any] = ["parquet", *FORMATS]
    for lake_format in known:
        Lake.open(str(tmp_path / lake_format), lake_format=lake_format)
        assert Lake.open(str(tmp_path / lake_format)).head.format == lake_format
        for other in set(known) - {lake_format}:
            with pytest.raises(OptionInvalid, match=f"has the format {lake_format}"):
                Lake.open(str(tmp_path / lake_format), lake_format=other)
    wrong: list[tuple[Any, str | None, str]] = [
        ("delta", "x", "only lakes of the format iceberg"),
        ("orc", None, "choose from parquet, delta, iceberg"),
    ]
    for lake_format, catalog, said in wrong:
        with pytest.raises(OptionInvalid, match=said):
            Lake.open(str(tmp_path / "new"), lake_format=lake_format, catalog=catalog)
    monkeypatch.setattr(tables, "find_spec", lambda name: None if name in ("deltalake", "pyiceberg") else name)
    for lake_format, package in zip(FORMATS, ("deltalake", "pyiceberg"), strict=True):
        for place in ("new", lake_format):
            said = rf"{package} is not installed: pip install 'embermq\[{lake_format}\]'"
            with pytest.raises(OptionInvalid, match=said):
                Lake.open(str(tmp_path / place), lake_format=lake_format)
    assert not (tmp_path / "new").exists()
    assert importlib.util.find_spec("deltalake") is not None
