"""The job commands as a user types them: answers as text and JSON, exit codes, one clear line for a mistake."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import embermq.spark
from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.testing.builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> str:
    builder = StoreBuilder(tmp_path / "broker-a")
    with builder.open() as opened:
        for number in range(20):
            opened.append(Message("orders", f"order {number}".encode(), tags="paid", keys=[f"o-{number}"]))
        opened.append(
            Message("%DLQ%shop", b"dead", properties={"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "X"})
        )  # fmt: skip
    return str(builder.root)


class Lent:
    """The session of the tests, which no command may stop."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def lend_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embermq.spark, "session", lambda *_: Lent(spark), raising=False)


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(["spark", *words, "--output", "json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["spark", *words]) == 2
    return capsys.readouterr().err


def test_archive_and_sql(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")
    (done,) = asked(capsys, "archive", store, "--into", lake)["archived"]
    assert (done["broker_name"], done["records"], done["damaged_bytes"]) == ("broker-a", 21, 0)
    query = "select tags, count(*) as n from orders group by 1"
    for source in (["--store", store], ["--archive", lake], ["--store", store, "--archive", lake]):
        assert asked(capsys, "sql", query, *source)["rows"] == [{"tags": "paid", "n": 20}]
    assert (
        run(["spark", "sql", "select keys, string(body) from orders order by keys", "--store", store, "--limit", "3"])
        == 0
    )
    out = capsys.readouterr().out
    assert "o-0" in out
    assert "only the first 3 rows" in out


def test_answers_are_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where JSON has no such number, and where a name would be lost."""
    query = (
        "select double('nan') as a, float('-inf') as b, array(double('inf'), 1.5D) as c, map(double('nan'), 1.0D) as d,"
        " map(date'2026-11-01', array(body)) as e from orders limit 1"
    )

    def never(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    assert run(["spark", "sql", query, "--store", store, "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=never)["rows"]
    assert (row["a"], row["b"], row["c"], row["d"]) == ("NaN", "-Infinity", ["Infinity", 1.5], {"NaN": 1.0})
    assert row["e"] == {"2026-11-01": ["order 0"]}
    words = ["sql", "select 1 as n, 2 as m, 3 as n", "--store", store]
    said = refused(capsys, *words, "--output", "json")
    assert "two columns are called n; give one of them another name with AS" in said
    assert run(["spark", *words]) == 0


def test_stats_with_a_page(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    found = asked(capsys, "stats", store, "--report", str(page))
    assert found["stats"]["messages"] == 21
    assert found["report"] == str(page)
    assert "orders" in page.read_text()
    assert run(["spark", "stats", store]) == 0
    assert "orders" in capsys.readouterr().out


def test_replay_and_dead_letters(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "target")
    words = ["replay", store, "--topic", "orders", "--into", target, "--to-topic", "again", "--where", "keys < 'o-2'"]
    words += ["--set", "mappedFileSizeCommitLog=1048576"]
    assert asked(capsys, *words, "--dry-run")["replay"]["found"] == 12
    assert asked(capsys, *words)["replay"]["appended"] == 12
    exported = tmp_path / "dead.jsonl"
    words = ["dead-letters", store, "--group", "shop", "--export", str(exported), "--resend-into", target]
    found = asked(capsys, *words)
    assert [letter["topic"] for letter in found["dead_letters"]] == ["orders"]
    assert found["resent"]["orders"]["appended"] == 1
    assert json.loads(exported.read_text())["origin_id"] == "X"
    assert "already" in refused(capsys, *words)
    with MessageStore.open(target, read_only=True) as opened:
        assert {topic: opened.max_offset(topic, 0) for topic in opened.topics()} == {"again": 12, "orders": 1}


def test_pipeline(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")
    assert run(["spark", "pipeline", store, "--into", lake, "--output", "json"]) == 0
    captured = capsys.readouterr()
    (batch,) = json.loads(captured.out)["batches"]
    assert json.loads(captured.err.strip().splitlines()[-1]) == batch
    assert batch["sinks"]["lake"]["records"] == 21
    assert run(["spark", "pipeline", store, "--into", lake]) == 0
    assert "nothing new" in capsys.readouterr().out


def test_a_store_that_derives_by_itself(store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One line, also on the streams that the JVM writes to, and no checkpoint."""
    words = ["spark", "pipeline", store, "--derive", "queues", "--checkpoint", str(tmp_path / "progress")]
    with StoreBuilder(Path(store)).open():
        assert run(words) == 2
    said = capfd.readouterr().err
    assert f"{store} is open in another process that derives queues and index itself" in said
    assert len(said.splitlines()) == 1, said
    assert not (tmp_path / "progress").exists()


def test_mistakes_are_one_line(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in [
        (["archive", str(tmp_path / "nowhere"), "--into", str(tmp_path / "l")], "no such directory"),
        (["archive", store, "--into", store], "_embermq.json"),
        (["sql", "select 1"], "at least one store"),
        (["sql", "delete from orders", "--store", store], "only queries"),
        (["stats", store, "--topic", "order"], "order"),
        (["replay", store, "--topic", "order", "--into", "x", "--to-topic", "y"], "did you mean orders"),
        (["replay", store, "--topic", "orders", "--into", str(tmp_path / "l"), "--to-topic", "o 2"], "character ' '"),
        (["dead-letters", store, "--group", "none"], "shop"),
        (["pipeline", store, "--into", str(tmp_path / "p"), "--derive", "lakes"], "choose from"),
    ]:
        text = refused(capsys, *words)
        assert said in text, text
        assert "Traceback" not in text
        assert len(text.strip().splitlines()) <= 3, text
    assert not (tmp_path / "l").exists()
