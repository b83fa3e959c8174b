"""`embermq store info`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import MessageStore
from tests.support import golden
from tests.unit.cli.store.conftest import Command

JSON = ["--output", "json"]


def test_a_store_of_ours(command: Command, directory: Path) -> None:
    shown = command("info", directory, "--runtime", *JSON).document
    [topic] = shown["topics"]
    assert (topic["topic"], topic["queues"], topic["messages"]) == ("orders", 2, 4)
    assert topic["first_store_timestamp_ms"] <= topic["last_store_timestamp_ms"]
    assert shown["log"]["min_physical_offset"] == 0
    assert shown["log"]["log_bytes"] == shown["log"]["max_physical_offset"] > 0
    ranges = [(one["queue_id"], one["min_offset"], one["max_offset"]) for one in shown["queues"]]
    assert ranges == [(0, 0, 3), (1, 0, 1)]
    assert shown["segments"][0]["used_bytes"] == shown["log"]["log_bytes"]
    [index] = shown["index"]
    assert index["keys"] == 6
    assert {one["directory"] for one in shown["sizes"]} >= {"commitlog", "consumequeue", "index"}
    assert shown["state"]["clean"] is True
    assert shown["state"]["writer_pid"] is None
    assert shown["state"]["flushed_offset"] == shown["log"]["max_physical_offset"]
    assert shown["start"] == {
        "reason": "closed cleanly",
        "walk_from": 0,
        "walk_bytes": shown["log"]["log_bytes"],
        "derived": "keep",
        "findings": [],
    }
    assert shown["runtime"]["commitLogMaxOffset"] == str(shown["log"]["max_physical_offset"])


def test_text(command: Command, directory: Path) -> None:
    ran = command("info", directory, "--queues", "--segments")
    assert ran.code == 0
    for part in ("topics\n", "queues\n", "log files\n", "sizes\n", "index\n", "state\n", "a start would\n"):
        assert part in ran.out
    assert "believe queues and index as they are" in ran.out
    short = command("info", directory).out
    assert "first offset" not in short


def test_a_store_that_is_open(command: Command, directory: Path) -> None:
    with MessageStore.open(directory):
        shown = command("info", directory, *JSON).document
    assert shown["state"]["writer_pid"] is not None
    assert shown["state"]["clean"] is False
    assert shown["start"]["reason"].endswith("has it open")


def test_a_store_of_a_broker(command: Command, restored: Callable[[str], Path]) -> None:
    shown = command("info", restored("retry-dlq"), *JSON).document
    assert {one["topic"] for one in shown["topics"]} == {
        "RetryTopic",
        "SCHEDULE_TOPIC_XXXX",
        "%RETRY%CG_retry",
        "%DLQ%CG_retry",
    }
    assert {one["name"] for one in shown["config"]} >= {"topics.json", "consumerOffset.json"}
    assert all(one["fault"] is None for one in shown["config"])
    behind = {(one["group"], one["topic"]): one["behind_messages"] for one in shown["groups"]}
    assert behind["CG_retry", "RetryTopic"] == 0
    checkpoint = golden.manifest("retry-dlq").checkpoint_on_disk
    assert shown["state"]["checkpoint_queues_ms"] == (checkpoint.logics_msg_timestamp or None)
    assert shown["start"]["derived"] == "rebuild"
    assert shown["start"]["walk_from"] == 0


def test_a_start_with_other_settings(command: Command, directory: Path) -> None:
    shown = command("info", directory, "--set", "mappedFileSizeConsumeQueue=4000", *JSON).document
    assert shown["start"]["derived"] == "rebuild"
    assert any("2000 bytes" in finding for finding in shown["start"]["findings"])


def test_an_unclean_store(command: Command, restored: Callable[[str], Path]) -> None:
    shown = command("info", restored("unclean"), *JSON).document
    assert shown["state"]["clean"] is False
    assert shown["start"]["reason"].startswith("not closed cleanly")


def test_a_damaged_config_file_is_told(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("retry-dlq")
    (store / "config" / "topics.json").write_text("{")
    shown = {one["name"]: one for one in command("info", store, *JSON).document["config"]}
    assert shown["topics.json"]["fault"].startswith("cannot be read")


@pytest.mark.parametrize("what", ["consumequeue", "index", "checkpoint", "config"])
def test_parts_that_are_missing(command: Command, restored: Callable[[str], Path], what: str) -> None:
    store = restored("retry-dlq")
    if (store / what).is_dir():
        shutil.rmtree(store / what)
    else:
        (store / what).unlink()
    ran = command("info", store, *JSON)
    assert ran.code == 0, ran.err
    assert sum(one["messages"] for one in ran.document["topics"]) == 36


def test_a_root_without_a_log_says_what_it_looks_for(
    command: Command, restored: Callable[[str], Path], tmp_path: Path
) -> None:
    store = restored("retry-dlq")
    (store / "commitlog").rename(tmp_path / "elsewhere")
    command("info", store, *JSON).assert_one_line(2, "there is no log", str(store / "commitlog"), "--config")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path / 'elsewhere'}\n")
    ran = command("info", store, "--config", conf, *JSON)
    assert ran.code == 0, ran.err
    assert sum(one["messages"] for one in ran.document["topics"]) == 36
    assert "elsewhere" in {one["directory"] for one in ran.document["sizes"]}
