"""How far a stream is behind, from its checkpoint alone; and figures as Prometheus reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.inspect import Survey
from embermq.spark.pipelines import BatchProgress, RunMetrics, SinkFigures
from embermq.spark.report import Metric, Sample, metrics_text
from embermq.testing.builder import StoreBuilder

pytestmark = pytest.mark.extended

LAG = ["spark", "lag"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 16)
    with builder.open() as opened:
        opened.append_many([Message("orders", b"x" * 100, queue_id=0) for _ in range(10)])
    return builder.root


def checkpoint(place: Path, *offsets: Any, committed: int | None = None) -> str:
    """As Spark writes it: a file for each batch that was begun, and one for each that is done."""
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}})
    for number, offset in enumerate(offsets):
        (place / "offsets" / str(number)).write_text(f"v1\n{head}\n{json.dumps(offset)}")
    for number in range(len(offsets) if committed is None else committed):
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (place / "commits" / f".{number}.crc").write_bytes(b"crc")
    return str(place)


def by_queue(store: Path, at: int) -> dict[str, Any]:
    identity = Survey.open(store).identity
    return {"topics": {"orders": {"broker-a": {"0": at}}}, "stores": {"broker-a": {"identity": identity}}}


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*LAG, *words, "--output", "json"]) == code
    [found] = json.loads(capsys.readouterr().out)["checkpoints"]
    assert isinstance(found, dict)
    return found


def test_a_stream_of_topics(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = checkpoint(tmp_path / "c", by_queue(store, 4), by_queue(store, 7), by_queue(store, 9), committed=2)
    prom = tmp_path / "lag.prom"
    words = ["--checkpoint", place, "--store", str(store)]
    found = asked(capsys, *words, "--metrics-file", str(prom))
    assert (found["batch"], found["batch_ms"]) == (1, 1_700_000_000_000)
    [only] = found["lags"]
    assert (only["topic"], only["queue_id"], only["position"], only["end"]) == ("orders", 0, 7, 10)
    assert (only["behind_messages"], only["state"]) == (3, "ok")
    labels = f'{{checkpoint="{place}",broker="broker-a",topic="orders",queue="0"}}'
    assert f"embermq_stream_lag_messages{labels} 3\n" in prom.read_text()
    assert run([*LAG, *words]) == 0
    shown = capsys.readouterr().out
    assert "orders" in shown
    assert "batch 1" in shown


def test_what_is_no_longer_there(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ahead = checkpoint(tmp_path / "ahead", by_queue(store, 11))
    assert asked(capsys, "--checkpoint", ahead, "--store", str(store), code=1)["lags"][0]["state"] == "data lost"
    gone = {"topics": {"gone": {"broker-a": {"0": 1}}}, "stores": by_queue(store, 0)["stores"]}
    place = checkpoint(tmp_path / "gone", gone)
    assert asked(capsys, "--checkpoint", place, "--store", str(store), code=1)["lags"][0]["state"] == "data lost"
    with StoreBuilder(tmp_path / "other" / "broker-a", segment_bytes=1 << 16).open() as opened:
        opened.append(Message("orders", b"y"))
    place = checkpoint(
        tmp_path / "log", {"stores": {"broker-a": {"identity": Survey.open(store).identity, "position": 9}}}
    )
    other = str(tmp_path / "other" / "broker-a")
    assert asked(capsys, "--checkpoint", place, "--store", other, code=1)["lags"][0]["state"] == "another log"


def test_a_stream_that_has_not_committed(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = checkpoint(tmp_path / "c", by_queue(store, 4), committed=0)
    found = asked(capsys, "--checkpoint", place, "--store", str(store))
    assert found["batch"] is None
    assert found["lags"][0]["behind_bytes"] == Survey.open(store).log_end


def test_what_is_no_checkpoint(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = checkpoint(tmp_path / "kafka", {"topic": {"0": 5}})
    for place, said in [(str(tmp_path), "no progress of a stream"), (other, "another source")]:
        assert run([*LAG, "--checkpoint", place, "--store", str(store)]) == 2
        assert said in capsys.readouterr().err
    assert run([*LAG, "--checkpoint", other, "--store", str(store), "--every", "5s"]) == 2
    assert run([*LAG, "--checkpoint", other, "--store", str(store), "--metrics-file", "/proc/none/x"]) == 2


def test_text_for_prometheus() -> None:
    one = Metric("a_bytes", "gauge", "Bytes.", [Sample(1.5, {"path": 'C:\\x "y"\n'})])
    assert metrics_text(
        [one, Metric("none", "gauge", "", []), Metric("a_bytes", "gauge", "Bytes.", [Sample(2, {})])]
    ) == ('# HELP a_bytes Bytes.\n# TYPE a_bytes gauge\na_bytes{path="C:\\\\x \\"y\\"\\n"} 1.5\na_bytes 2\n')


def test_figures_of_a_run() -> None:
    figures = RunMetrics(1_000)
    assert "embermq_pipeline_batches_total 0\n" in metrics_text(figures.metrics())
    for number in range(2):
        sinks = {"lake": SinkFigures(10, 1, ["here"], 3)}
        figures.add(BatchProgress(number, 10, 1000, 0.5, 77, {"broker-a": 1000 * number}, sinks), 5_000)
    text = metrics_text(figures.metrics())
    for line in (
        "embermq_pipeline_batches_total 2",
        "embermq_pipeline_records_total 20",
        "embermq_pipeline_damages_total 2",
        "embermq_pipeline_undecoded_total 6",
        'embermq_pipeline_sink_records_total{sink="lake"} 20',
        'embermq_pipeline_position_bytes{broker="broker-a"} 1000',
        "embermq_pipeline_lag_bytes 77",
        "embermq_pipeline_last_batch_timestamp_seconds 5",
    ):
        assert f"{line}\n" in text
