"""Shipped stores on an S3 server (moto, on loopback) and on a file system that only fsspec knows; with and without
Spark. Nothing here leaves the machine."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

import embermq.spark
from embermq import Message
from embermq.cli.app import run
from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.lag import find_lags
from embermq.spark.jobs.ship import ship as ship_by_spark
from embermq.spark.jobs.sql import sql
from embermq.spark.planning.explain import explain_read
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.slices import Slice
from embermq.spark.shipped.files import ShippedFiles
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.support.lent_session import lend
from tests.support.shipping import read_at, rows_of, run_here, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 256 << 10
HOUR_MS = 3_600_000
SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """host:port of an S3 server, with a bucket named `bucket`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        made = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            access_key="user",
            secret_key=SECRET,
            allow_bucket_creation=True,
        )
        made.create_dir("bucket")
        yield f"{host}:{port}"
        server.stop()


def address(endpoint: str, path: str) -> str:
    return f"s3://user:{SECRET}@{path}?endpoint_override={endpoint}&scheme=http&region=us-east-1"


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """Two topics one after the other, hours apart; a store of several log files."""
    clock = ManualClock(1_800_000_000_000)
    made = StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES, clock=clock)
    with made.open() as store:
        for topic in ("orders", "returns"):
            clock.advance(ms=24 * HOUR_MS)
            for n in range(500):
                store.append(Message(topic, f"{n:06}".encode() * 100, keys=[f"o-{n}"], queue_id=n % 2))
    return made


def bytes_read(slices: list[Slice]) -> int:
    return sum(cast(ShippedFiles, one.files).bytes_read for one in slices)


def test_round_trip(builder: StoreBuilder, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)
    target = address(endpoint, "bucket/a/b")
    done = ship(builder.root, target)
    assert done.target == "s3://bucket/a/b/broker-a"
    assert ship(builder.root, target).objects == 0
    every, log_bytes = read_at(target), Survey.open(builder.root).log_end
    assert rows_of(every) == rows_of(read_at(builder.root))
    assert log_bytes <= bytes_read(every.slices) <= log_bytes + len(every.slices) * (64 << 10)
    one = read_at(address(endpoint, "bucket/a/b/broker-a"), topic="returns")
    assert rows_of(one) == rows_of(read_at(builder.root, topic="returns"))
    assert bytes_read(one.slices) < 0.65 * bytes_read(every.slices), "only where the topic is"
    (reported,) = explain_read({"path": target, "topic": "returns"})
    assert reported.path == "s3://bucket/a/b/broker-a"
    assert reported.bytes < 0.65 * log_bytes


def test_times_rule_out_parts_of_the_log(builder: StoreBuilder, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.datasource import GreaterThan, LessThan

    run_here(monkeypatch)
    target = address(endpoint, "bucket/times")
    ship(builder.root, target)
    middle = datetime.fromtimestamp((1_800_000_000_000 + 30 * HOUR_MS) / 1000, UTC)
    every = read_at(target)
    for one, topic in ((GreaterThan, "returns"), (LessThan, "orders")):
        found = read_at(target, filters=[one(("storeTimestamp",), middle)])
        assert {row["topic"] for row in found.rows} == {topic}
        assert len(found.rows) == 500
        assert bytes_read(found.slices) < 0.65 * bytes_read(every.slices)
    late = read_at(target, startingTimestamp=str(1_800_000_000_000 + 30 * HOUR_MS))
    assert rows_of(late) == rows_of(read_at(target, topic="returns"))


def test_mistakes(builder: StoreBuilder, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that names the object, and no secret."""
    run_here(monkeypatch)
    for attempt, expected in [
        (lambda: ship(builder.root, address(endpoint, "nobucket/a")), r"^s3://nobucket/a/.*: .*NO_SUCH_BUCKET"),
        (lambda: read_at(address(endpoint, "bucket/empty")), "^s3://bucket/empty: no shipped store is here"),
        (lambda: read_at(address("127.0.0.1:9", "bucket/empty")), "^s3://bucket/empty/.*: .*NETWORK_CONNECTION"),
        (lambda: read_at(address(endpoint, "bucket/x") + "&retries=9"), "no place for files: .*retries"),
    ]:
        with pytest.raises((StorePathInvalid, OptionInvalid), match=expected) as refused:
            attempt()  # type: ignore[no-untyped-call]
        assert SECRET not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_file_system_of_fsspec(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)
    target = "memory://far/logs"
    ship(builder.root, target, tail=False)
    done = ship(builder.root, target)
    assert done.target == "memory://far/logs/broker-a"
    assert rows_of(read_at(target)) == rows_of(read_at(builder.root))
    assert rows_of(read_at(target, topic="orders")) == rows_of(read_at(builder.root, topic="orders"))


def test_with_spark(
    builder: StoreBuilder,
    endpoint: str,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Shipped by tasks; read as a table and as a stream, asked with SQL; by commands too. The source is gone then."""
    target = address(endpoint, "bucket/spark")
    config = builder.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text('{"offsetTable": {"orders@shop": {"0": 200}}}')
    (done,) = ship_by_spark(spark, [str(builder.root)], target, tail=True)
    assert (done.records, done.end) == (1000, Survey.open(builder.root).log_end)

    def streamed() -> list[Any]:
        rows = embermq.spark.stream(spark, target, ["topic", "queueId", "queueOffset"], startingOffsets="earliest")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(300)
        return sorted(map(tuple, spark.read.parquet(str(tmp_path / "rows")).collect()))

    first = streamed()
    assert len(set(first)) == len(first) == 1000
    with builder.open() as store:
        store.append_many([Message("late", b"%d" % n) for n in range(30)])
    lend(spark, monkeypatch)
    words = ["spark", "ship", str(builder.root), "--to", target, "--tail"]
    assert run([*words, "--output", "json"]) == 0
    (reported,) = json.loads(capsys.readouterr().out)["shipped"]
    assert (reported["records"], reported["start"]) == (30, done.end)
    names = ("topic", "queueId", "queueOffset")
    expected = {tuple(row[name] for name in names) for row in read_at(builder.root, schema=names).rows}
    for file in (builder.root / "commitlog").iterdir():
        file.unlink()
    assert set(streamed()) == expected
    assert len(expected) == 1030
    table = embermq.spark.table(spark, target, ["topic", "body"], topic="late")
    assert sorted(row["body"] for row in table.collect()) == sorted(b"%d" % n for n in range(30))
    assert sql(spark, "select count(*) as n from returns", [target]).collect()[0]["n"] == 500
    (place,) = find_stores([target], shipped=True)
    assert [(lag.topic, lag.behind) for lag in find_lags(place, place.survey())] == [("orders", 50)]


def test_commands_say_what_is_wrong(
    builder: StoreBuilder,
    endpoint: str,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(spark, monkeypatch)
    for target, expected in [
        ("gopher://far/away", "option to = 'gopher://far/away': this is no place for files"),
        (address(endpoint, "nobucket/a"), "NO_SUCH_BUCKET"),
    ]:
        assert run(["spark", "ship", str(builder.root), "--to", target]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert SECRET not in said
        assert len(said.strip().splitlines()) <= 3
    run_here(monkeypatch)
    words = ["spark", "ship", str(builder.root), "--to", address(endpoint, "bucket/cmd")]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "shipped to s3://bucket/cmd" in shown
    assert SECRET not in shown
    builder.root.rename(tmp_path / "old")
    with StoreBuilder(builder.root, segment_bytes=SEGMENT_BYTES).open() as store:
        store.append_many([Message("others", bytes(1000)) for _ in range(300)])
    assert run(words) == 2
    assert "s3://bucket/cmd/broker-a begins with other records; use another target" in capsys.readouterr().err
    assert run(["spark", "archive", address(endpoint, "bucket/a"), "--into", "lake"]) == 2
    assert SECRET not in capsys.readouterr().err
