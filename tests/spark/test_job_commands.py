"""The job commands as a user types them: answers as text and JSON, exit codes, one clear line for a mistake."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.testing.builder import StoreBuilder
from tests.support.lent_session import lend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> str:
    builder = StoreBuilder(tmp_path / "broker-a")
    with builder.open() as opened:
        for number in range(20):
            opened.append(Message("orders", f"order {number}".encode(), tags="paid", keys=[f"o-{number}"]))
        opened.append(Message("%DLQ%shop", b"dead", properties={"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "X"}))
    return str(builder.root)


@pytest.fixture(autouse=True)
def lend_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    lend(spark, monkeypatch)


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


def test_another_name_of_sql(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = "/* all */ select count(*) as n from orders"
    assert asked(capsys, "query", query, "--store", store) == asked(capsys, "sql", query, "--store", store)
    for comment in ("-- all", "--all"):  # Which looks like an option.
        found = asked(capsys, "query", f"{comment}\nselect count(*) as n from orders", "--store", store)
        assert found["rows"] == [{"n": 20}]
    assert "No such option" in refused(capsys, "sql", "--stor", store, "select 1")
    assert "drop" in refused(capsys, "query", "drop table orders", "--store", store)
    assert run(["spark", "--help"]) == 0
    assert "Alias of sql." in capsys.readouterr().out


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
    there = asked(capsys, "replay", store, "--topic", "orders", "--where", "keys < 'o-2'", "--dry-run")["replay"]
    assert (there["found"], there["skipped"], there["appended"]) == (12, 0, 0)
    assert "only a --dry-run needs none" in refused(capsys, "replay", store, "--topic", "orders")
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


def test_a_store_that_a_broker_has(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "broker-b")
    with MessageStore.open(target) as opened:
        opened.append(Message("orders", b"x"))
        replay = ["replay", store, "--topic", "orders", "--into", target, "--to-topic", "again"]
        for words in (["rebuild", target], replay):
            (line,) = refused(capsys, *words).splitlines()
            assert line.startswith(f"embermq: {target} is already open for writing by process ")
            assert line.endswith("; close it there")


def test_what_dead_letters_have(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StoreBuilder(Path(store)).open() as opened:
        opened.append(Message("%RETRY%shop", b"dead", properties={"ORIGIN_MESSAGE_ID": "X"}, reconsume_times=1))
        opened.append(Message("%DLQ%shop", b"\xff", properties={"REASON": "no stock"}))
    exported, target = tmp_path / "dead.jsonl", str(tmp_path / "target")
    words = ["dead-letters", store, "--group", "shop", "--resend-into", target]
    words += ["--set", "mappedFileSizeCommitLog=1048576"]
    found = asked(capsys, *words, "--export", str(exported))
    first, second = found["dead_letters"]
    assert [json.loads(line) for line in exported.read_text().splitlines()] == [first, second]
    assert [(one["attempt"], one["stored_ms"]) for one in first["retries"]] == [(1, first["first_retry_ms"])]
    assert (first["topic"], first["origin_id"], first["body"]) == ("orders", "X", "ZGVhZA==")
    assert (second["topic"], second["properties"]["REASON"], second["body"]) == (None, "no stock", "/w==")
    assert second["msg_id"] == second["origin_id"]
    assert (list(found["resent"]), found["without_origin"]) == (["orders"], 1)
    assert found["total"] == 2
    limited = asked(capsys, "dead-letters", store, "--group", "shop", "--limit", "1")
    assert limited["dead_letters"] == [first]
    assert [(one["topic"], one["letters"]) for one in limited["totals"]] == [(None, 1), ("orders", 1)]
    assert limited["totals"][1]["first_ms"] == limited["totals"][1]["last_ms"] == first["dead_ms"]
    assert run(["spark", *words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    for said in ("(unknown)", "orders: 0 would be resent, 1 were already", "1 do not say which topic"):
        assert said in out


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


def test_failing_queries_are_one_line(store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also on the streams that the JVM writes to; 2 if the user's SQL is at fault, 1 if something else is."""
    lake, target = str(tmp_path / "lake"), str(tmp_path / "target")
    assert run(["spark", "archive", store, "--into", lake]) == 0
    with_lake = ["--archive", lake]
    capfd.readouterr()
    replay = ["replay", store, "--topic", "orders", "--into", target, "--to-topic", "again"]
    failing = "cast(tags as int) = 1"
    cases = [
        (2, ["sql", "select 1/0 from orders", "--store", store], "[DIVIDE_BY_ZERO] Division by zero"),
        (2, ["sql", "select cast(tags as int) from orders", "--store", store], "'paid'"),
        (2, ["sql", "select (select tags from orders)", "--store", store], "More than one row"),
        (2, ["sql", "select * from orders where raise_error('enough')", "--store", store], "enough"),
        (2, [*replay, "--where", failing], "'paid'"),
        (2, [*replay, "--where", failing, "--dry-run"], "'paid'"),
        (2, [*replay, "--rate", "nan"], "a number above 0"),
        (2, ["dead-letters", store, "--group", "shop", "--where", "cast(topic as int) = 1"], "%DLQ%shop"),
        (2, ["dead-letters", store, "--group", "shop", "--where", "1/0 = 1", "--resend-into", target], "[DIVIDE_BY_Z"),
        (1, ["sql", "select * from orders", *with_lake], ".parquet"),
        (1, ["stats", store, *with_lake], ".parquet"),
    ]
    for code, words, said in cases:
        if code == 1:
            for file in Path(lake).rglob("*.parquet"):
                file.unlink()
        assert run(["spark", *words]) == code, words
        text = capfd.readouterr().err
        assert said in text, text
        assert len(text.splitlines()) <= 3, text
        assert "Traceback" not in text
    assert not Path(target).exists()


def test_mistakes_are_one_line(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in [
        (["archive", str(tmp_path / "nowhere"), "--into", str(tmp_path / "l")], "no such directory"),
        (["archive", store, "--into", store], "_embermq.json"),
        (["sql", "select 1"], "at least one store"),
        (["sql", "delete from orders", "--store", store], "only queries"),
        (["sql", "from orders insert overwrite directory 'x' select tags", "--store", store], "only queries"),
        (["stats", store, "--topic", "order"], "order"),
        (["stats", str(tmp_path / "nowhere"), "--report", str(tmp_path / "no" / "page.html")], "no directory"),
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
