"""`embermq tap --archive`: a broker's log into a copy and from there into a lake, in several runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import embermq.spark
from embermq.cli import tap_archive
from embermq.cli.app import run
from embermq.store.services import OldSegment
from tests.support.broker_process import BrokerProcess
from tests.support.lent_session import lend
from tests.support.replication_processes import ask_all, figure, send_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def lend_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    lend(spark, monkeypatch)


def tapped(master: BrokerProcess, capsys: Captured, copy: Path, lake: Path) -> list[dict[str, Any]]:
    """What a run that copies everything says of the lake."""
    words = ["--into", str(copy), "--broker", master.address, "--whole", "--once", "--archive", str(lake)]
    assert run(["tap", f"127.0.0.1:{master.ready['haListen']}", *words, "--output", "json"]) == 0, capsys.readouterr()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [one for one in said if one["event"] == "archive"]


@pytest.mark.slow(seconds=30)
def test_a_lake_follows_a_master_over_several_runs(spark: "SparkSession", tmp_path: Path, capsys: Captured) -> None:
    copy, lake = tmp_path / "copy", tmp_path / "lake"
    with BrokerProcess(tmp_path, "--set", "haSendHeartbeatInterval=100", "--set", "brokerName=shop") as master:
        end = 0
        for turn in range(2):
            answers = ask_all(master.address, [send_command(b"%d-%d" % (turn, n)) for n in range(30)])
            assert {answer.code for answer in answers} == {0}
            (done,) = tapped(master, capsys, copy, lake)
            assert (done["broker"], done["start"]) == ("shop", end)  # It went on where the lake ended.
            assert (done["records"], done["damaged_bytes"]) == (30, 0)
            end = int(figure(master.address, "commitLogMaxOffset"))
            assert done["end"] == end
        assert tapped(master, capsys, copy, lake) == []  # Nothing new.
    wanted = sorted(b"%d-%d" % (turn, n) for turn in range(2) for n in range(30))
    rows = embermq.spark.sql(spark, "select body, brokerName from T", lake=str(lake)).collect()
    assert sorted(bytes(row.body) for row in rows) == wanted
    assert {row.brokerName for row in rows} == {"shop"}


def test_a_place_that_can_be_no_lake_is_refused_first(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("x")
    with BrokerProcess(tmp_path) as master:
        words = ["--into", str(tmp_path / "copy"), "--broker", master.address, "--archive", str(tmp_path / "file")]
        assert run(["tap", f"127.0.0.1:{master.ready['haListen']}", *words]) == 2
    assert "file" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_the_copy_keeps_what_the_lake_does_not_have(tmp_path: Path) -> None:
    feed = tap_archive.LakeFeed(tmp_path / "copy", str(tmp_path / "lake"), lambda _done: None)
    assert not feed.may_go(
        OldSegment(tmp_path / "copy", tmp_path / "copy" / "commitlog" / f"{0:020d}", 0, 8192, 0, True)
    )
