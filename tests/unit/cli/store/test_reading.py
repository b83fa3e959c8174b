"""`embermq store` fetch, find and get; and what all verbs that read have in common."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.app import run
from embermq.cli.store import VERBS
from embermq.format.message_json import KEYS
from tests.support import golden
from tests.unit.cli.store.conftest import Command

JSON = ["--output", "json"]
TEXT = ["--body", "text", *JSON]
# Verbs that read, with what they need to do so on the store with the orders.
READING: dict[str, list[str]] = {
    "info": [],
    "dump": [],
    "fetch": ["orders", "0"],
    "find": ["--topic", "orders", "--key", "all"],
    "get": ["--at", "0"],
    "trace": ["--key", "all"],
    "top": ["--once", "--interval", "0.01"],
}


# -- fetch -------------------------------------------------------------------------------------------------------


def test_fetch_from_an_offset_with_tags(command: Command, directory: Path) -> None:
    shown = command("fetch", directory, "orders", "0", "--offset", "1", "--tags", "created", *TEXT).document
    assert [message["body"] for message in shown["messages"]] == ["body 2"]
    assert shown["queue"] == {"min_offset": 0, "max_offset": 3, "next_offset": 3}


def test_fetch_shows_as_many_as_asked(command: Command, directory: Path) -> None:
    shown = command("fetch", directory, "orders", "0", "--count", "2", *JSON).document
    assert [message["queueOffset"] for message in shown["messages"]] == [0, 1]
    assert shown["queue"]["next_offset"] == 2


def test_fetch_from_beyond_the_end(command: Command, directory: Path) -> None:
    shown = command("fetch", directory, "orders", "0", "--offset", "99", *JSON).document
    assert (shown["messages"], shown["queue"]["next_offset"]) == ([], 3)


def test_fetch_from_a_time(command: Command, directory: Path) -> None:
    [first, *_] = command("fetch", directory, "orders", "0", *JSON).document["messages"]
    shown = command("fetch", directory, "orders", "0", "--offset", "2020-01-01", *JSON).document
    assert shown["messages"][0] == first
    assert command("fetch", directory, "orders", "0", "--offset", "yesterday").code == 2
    assert command("fetch", directory, "orders", "0", "--offset", "2999-01-01", *JSON).document["messages"] == []


def test_bodies_that_are_no_text_are_shown_in_hexadecimal(command: Command, directory: Path) -> None:
    assert "(2 B) ff00" in command("fetch", directory, "orders", "1").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["order", "0"], "did you mean orders?"), (["orders", "7"], "has no queue 7; queues: 0, 1")],
)
def test_a_queue_that_is_not_there_says_what_is(
    command: Command, directory: Path, arguments: list[str], reason: str
) -> None:
    command("fetch", directory, *arguments).assert_one_line(1, reason)


@pytest.mark.parametrize("name", ["basic", "index", "transaction", "unclean", "deleted-segments"])
def test_queues_of_rocketmq(command: Command, restored: Callable[[str], Path], name: str) -> None:
    store = restored(name)
    by_queue: dict[tuple[str, int], list[int]] = {}
    for record in golden.manifest(name).records:
        if not record.blank and not record.sys_flag & 4:
            by_queue.setdefault((record.topic, record.queue_id), []).append(record.queue_offset)
    for (topic, queue_id), offsets in by_queue.items():
        shown = command("fetch", store, topic, str(queue_id), "--count", "1000", *JSON).document
        assert [message["queueOffset"] for message in shown["messages"]] == offsets


@pytest.mark.parametrize("name", ["basic", "cqext", "delay"])
@pytest.mark.slow
def test_tags_of_rocketmq(command: Command, restored: Callable[[str], Path], name: str) -> None:
    """By hash in the queue, by text in the record; in `cqext` the queue has addresses and no hashes."""
    store = restored(name)
    lines = [line for line in command("dump", store).lines if not line["sysFlag"] & 4]
    for topic, queue_id, tag in {(line["topic"], line["queueId"], line["tags"]) for line in lines if line["tags"]}:
        place = (topic, queue_id, tag)
        expected = [one["msgId"] for one in lines if (one["topic"], one["queueId"], one["tags"]) == place]
        words = [topic, str(queue_id), "--tags", tag, "--count", "1000"]
        shown = command("fetch", store, *words, *JSON).document
        assert [message["msgId"] for message in shown["messages"]] == expected, words


# -- find --------------------------------------------------------------------------------------------------------


def test_find_by_key(command: Command, directory: Path) -> None:
    find = ["find", str(directory), "--topic", "orders", "--key"]
    found = command(*find, "order-1", *TEXT).document
    assert [message["body"] for message in found["messages"]] == ["body 1"]
    assert found["query"]["seconds"] >= 0
    assert found["query"]["by"] == "index"
    assert len(command(*find, "all", *JSON).document["messages"]) == 3
    assert [one["body"] for one in command(*find, "all", "--limit", "2", *TEXT).document["messages"]] == [
        "body 1",
        "body 2",
    ]
    nothing = command(*find, "all", "--end", "2020-01-01", *JSON)
    assert (nothing.code, nothing.document["messages"]) == (1, [])
    assert command("find", directory, "orders", "order-1", *TEXT).document["messages"] == found["messages"]


def test_find_without_an_index(command: Command, tmp_path: Path, settings: StoreSettings) -> None:
    with MessageStore.open(tmp_path / "store", settings.replace(index=False)) as store:
        store.append(Message("t", b"x", keys=["k"]))
    found = command("find", tmp_path / "store", "--topic", "t", "--key", "k", *TEXT).document
    assert found["query"]["by"] == "reading the log"
    assert [message["body"] for message in found["messages"]] == ["x"]


def test_a_key_nobody_used_is_said_and_is_exit_code_1(command: Command, directory: Path) -> None:
    ran = command("find", directory, "--topic", "orders", "--key", "nobody")
    assert ran.code == 1
    assert "no message of topic 'orders' has the key 'nobody'" in ran.out


@pytest.mark.parametrize("words", [["find", "--topic", "order", "--key", "all"], ["dump", "--topic", "order"]])
def test_a_topic_that_is_not_there_is_no_empty_answer(command: Command, directory: Path, words: list[str]) -> None:
    command(words[0], directory, *words[1:]).assert_one_line(1, "topic 'order' is not in", "did you mean orders?")


@pytest.mark.parametrize("words", [[], ["--topic", "orders"], ["--key", "all"], ["orders"]])
def test_find_needs_topic_and_key(command: Command, directory: Path, words: list[str]) -> None:
    ran = command("find", directory, *words)
    assert ran.code == 2
    assert "--topic T --key K" in ran.err


@pytest.mark.parametrize("option", ["--begin", "--end"])
def test_find_notices_seconds(command: Command, directory: Path, option: str) -> None:
    ran = command("find", directory, "orders", "all", option, "1700000000")
    ran.assert_one_line(2, f"{option}: 1700000000 looks like seconds")


def test_find_notices_an_end_before_the_beginning(command: Command, directory: Path) -> None:
    words = ("find", directory, "orders", "all")
    ran = command(*words, "--begin", "2024-02-01T00:00Z", "--end", "2024-01-01T00:00Z")
    ran.assert_one_line(2, "--begin 2024-", " is later than --end 202")
    assert command(*words, "--begin", "2024-01-01", "--end", "2024-01-01").code == 1  # A moment, and nothing in it.


def test_fetch_notices_seconds(command: Command, directory: Path) -> None:
    command("fetch", directory, "orders", "0", "--offset", "yesterday").assert_one_line(2, "--offset: 'yesterday' is")


# -- get ---------------------------------------------------------------------------------------------------------


def test_get_by_id_and_place(command: Command, directory: Path) -> None:
    second = command("dump", directory).lines[1]
    place = str(second["physicalOffset"])
    by_place = command("get", directory, "--at", place, *TEXT).document["message"]
    assert by_place["body"] == "body 1"
    for words in (["--id", second["msgId"]], [second["msgId"]], ["--id", second["msgId"].lower()], ["--at", place]):
        assert command("get", directory, *words, *JSON).document["message"] == second


def test_get_the_body_alone(capsysbinary: pytest.CaptureFixture[bytes], directory: Path) -> None:
    with MessageStore.open(directory, read_only=True) as store:
        [message] = store.fetch("orders", 1, 0).messages
    assert run(["store", "get", str(directory), "--id", message.message_id, "--body"]) == 0
    assert capsysbinary.readouterr().out == b"\xff\x00"
    assert run(["store", "get", str(directory), "--body", "bytes", "--id", message.message_id]) == 0
    assert capsysbinary.readouterr().out == b"\xff\x00"


def test_a_body_that_does_not_decompress_is_shown_as_stored(
    command: Command, tmp_path: Path, settings: StoreSettings
) -> None:
    root = tmp_path / "new"
    with MessageStore.open(root, settings) as store:
        receipt = store.append(Message("t", b"not zlib", sys_flag=1))
    [message] = command("fetch", root, "t", "0", *TEXT).document["messages"]
    assert message["body"] == "not zlib"
    assert command("get", root, receipt.message_id, *TEXT).document["message"]["body"] == "not zlib"
    command("get", root, receipt.message_id, "--body").assert_one_line(1, "does not decompress")


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ([], 2, "either --id ID or --at OFFSET"),
        (["--id", "x", "--at", "0"], 2, "either --id ID or --at OFFSET"),
        (["--at", "0", "--body", *JSON], 2, "with --output json it is base64 or text"),
        (["--body", "hex", "--at", "0"], 2, "'hex' is not one of 'bytes', 'base64', 'text'"),
        (["--at", "-1"], 2, "-1"),
        (["nonsense"], 2, "is not a message id"),
        (["7F00000100002A9F" + "0" * 15 + "7"], 1, "there is no message"),
        (["AC11000100002A9F" + "0" * 16], 2, "an id that a client gave is a key: `embermq store find "),
        (["0A00000100002A9F" + "0" * 16], 2, "is an id of the store at 10.0.0.1:10911;"),
        (["--at", "1"], 1, "no message starts at physical offset 1 of"),
        (["--at", "1"], 1, "the next record begins at"),
        (["--at", "99999999"], 1, "the log goes from 0 to"),
    ],
)
def test_get_what_is_not_there(command: Command, directory: Path, words: list[str], code: int, reason: str) -> None:
    ran = command("get", directory, *words)
    assert (ran.code, ran.out) == (code, "")
    assert reason in ran.err


# -- one JSON form of a message ----------------------------------------------------------------------------------


def messages_in_json(command: Command, store: Path, *body: str) -> dict[str, list[dict[str, Any]]]:
    """Every message a verb answers, by verb; all of them are asked for all of the store."""
    dumped = command("dump", store, *body).lines
    queues = sorted({(line["topic"], line["queueId"]) for line in dumped})
    fetched = [command("fetch", store, topic, str(queue), *body, *JSON).document for topic, queue in queues]
    got = [command("get", store, "--at", str(line["physicalOffset"]), *body, *JSON).document for line in dumped]
    found = command("find", store, "orders", "all", *body, *JSON).document
    traced = command("trace", store, "--key", "all", *body, *JSON).document
    return {
        "dump": dumped,
        "fetch": [message for answer in fetched for message in answer["messages"]],
        "get": [answer["message"] for answer in got],
        "find": found["messages"],
        "trace": [step["message"] for message in traced["messages"] for step in message["steps"]],
    }


@pytest.mark.parametrize("body", [[], ["--body", "text"]])
def test_every_verb_answers_the_same_form(command: Command, directory: Path, body: list[str]) -> None:
    answers = messages_in_json(command, directory, *body)
    by_place = {line["physicalOffset"]: line for line in answers["dump"]}
    assert len(by_place) == 4
    for verb, messages in answers.items():
        assert len(messages) == (3 if verb in ("find", "trace") else 4)
        for message in messages:
            assert message == by_place[message["physicalOffset"]], verb
            assert list(message)[: len(KEYS)] == list(KEYS), verb


def test_what_a_verb_answers_can_be_loaded(
    command: Command, directory: Path, tmp_path: Path, settings_file: Path
) -> None:
    for verb, messages in messages_in_json(command, directory).items():
        lines = tmp_path / f"{verb}.jsonl"
        lines.write_text("".join(json.dumps(message) + "\n" for message in messages))
        copy = tmp_path / verb
        assert command("load", copy, "--from", lines, "--config", settings_file).code == 0, verb
        assert [one["body"] for one in command("dump", copy).lines] == [one["body"] for one in messages], verb


def test_a_body_that_is_no_text_is_base64(command: Command, directory: Path) -> None:
    [message] = command("fetch", directory, "orders", "1", *TEXT).document["messages"]
    assert (message["body"], message["bodyBase64"]) == (None, "/wA=")


# -- every verb that reads ---------------------------------------------------------------------------------------


def test_every_verb_is_here() -> None:
    assert set(READING) <= set(VERBS)
    assert set(VERBS) - set(READING) <= {"append", "clean", "drop", "load", "verify", "rebuild", "salvage"}


@pytest.mark.parametrize("verb", sorted(READING))
def test_reading_changes_nothing(command: Command, directory: Path, verb: str) -> None:
    before = golden.tree_state(directory)
    assert command(verb, directory, *READING[verb]).code == 0
    assert golden.tree_state(directory) == before


@pytest.mark.parametrize("verb", sorted(READING))
@pytest.mark.slow
def test_reading_beside_a_writer(command: Command, directory: Path, verb: str) -> None:
    with MessageStore.open(directory) as store:
        store.append(Message("orders", b"one more", keys=["all"]))
        store.flush()
        assert command(verb, directory, *READING[verb]).code == 0
        assert store.append(Message("orders", b"and one more")).ok


@pytest.mark.parametrize("name", golden.ALL_STORES)
@pytest.mark.slow
def test_stores_of_rocketmq(command: Command, restored: Callable[[str], Path], name: str) -> None:
    """Of whatever file sizes, clean or not: everything works without any setting."""
    store = restored(name)
    before = golden.tree_state(store)
    first = next(record for record in golden.manifest(name).records if not record.blank)
    for words in (
        ["info"],
        ["dump"],
        ["fetch", first.topic, str(first.queue_id)],
        ["get", "--at", str(first.phy)],
        ["get", "--id", first.offset_msg_id],
        ["trace", "--id", first.offset_msg_id],
    ):
        ran = command(words[0], store, *words[1:], *JSON)
        queueless = words[0] == "fetch" and first.sys_flag & 4
        assert ran.code == 0 or queueless, (words, ran.err)
    assert golden.tree_state(store) == before


@pytest.mark.parametrize("verb", sorted(READING))
def test_a_directory_that_is_no_store_is_one_line(command: Command, tmp_path: Path, verb: str) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    (tmp_path / "empty").mkdir()
    reasons: dict[str, str] = {
        "missing": "there is no such directory\n",
        "foreign": "not a message store (it holds letter.txt)",
        "empty": "the directory is empty",
        "foreign/letter.txt": "this is a file",
        "foreign/letter.txt/below": "there is no such directory\n",
    }
    for name, reason in reasons.items():
        command(verb, tmp_path / name, *READING[verb]).assert_one_line(2, str(tmp_path / name), reason)
    assert not (tmp_path / "missing").exists()
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("verb", sorted(READING))
def test_no_permission_is_one_line(command: Command, directory: Path, verb: str) -> None:
    (directory / "commitlog").chmod(0)
    try:
        command(verb, directory, *READING[verb]).assert_one_line(2, "ermission")
    finally:
        (directory / "commitlog").chmod(0o755)


@pytest.mark.parametrize("verb", sorted(READING))
def test_files_that_may_not_be_opened_are_one_line(
    command: Command, directory: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user without permission; root has it always."""
    real_open = os.open

    def guarded(path: Any, *rest: Any, **options: Any) -> int:
        if "commitlog" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *rest, **options)

    monkeypatch.setattr(os, "open", guarded)
    command(verb, directory, *READING[verb]).assert_one_line(2, "commitlog", "ermission")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_teaches_with_examples(command: Command, verb: str) -> None:
    ran = command(verb, "--help")
    assert ran.code == 0
    assert f"embermq store {verb} ~/" in ran.out
    assert "--output" in ran.out


def test_help_of_the_noun_names_every_verb(command: Command) -> None:
    ran = command("--help")
    assert all(f"  {verb} " in ran.out for verb in VERBS)
    assert command("no-such-verb").code == 2
