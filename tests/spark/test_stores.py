"""Paths and globs to stores, and the names of their brokers."""

import os
from pathlib import Path

import pytest

from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.spark.planning.stores import expand_braces, find_broker_name, find_stores
from tests.support import golden


def store_at(path: Path) -> Path:
    (path / "commitlog").mkdir(parents=True)
    return path


def found(*paths: object) -> list[tuple[str, str]]:
    return [(str(place.path), place.broker_name) for place in find_stores([str(path) for path in paths])]


def refusal(*paths: object) -> StorePathInvalid:
    with pytest.raises(StorePathInvalid) as raised:
        find_stores([str(path) for path in paths])
    return raised.value


def test_one_directory(tmp_path: Path) -> None:
    store = store_at(tmp_path / "orders-store")
    assert found(store) == [(str(store), "orders-store")]
    assert found(f"file://{store}") == found(f"file:{store}") == found(store)
    os.symlink(store, tmp_path / "link")
    assert found(tmp_path / "link") == found(store)


def test_a_directory_once_however_often_it_is_named(tmp_path: Path) -> None:
    store = store_at(tmp_path / "a")
    assert found(store, f"{store}/", tmp_path / "*") == [(str(store), "a")]


def test_a_glob_takes_the_stores(tmp_path: Path) -> None:
    one, two = store_at(tmp_path / "broker-a" / "store"), store_at(tmp_path / "broker-b" / "store")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "lost+found" / "store").mkdir(parents=True)
    assert found(tmp_path / "*" / "store") == [(str(one), "broker-a"), (str(two), "broker-b")]
    assert found(tmp_path / "**") == [(str(one), "broker-a"), (str(two), "broker-b")]
    assert found(tmp_path / "broker-[b]" / "store") == [(str(two), "broker-b")]


def test_a_directory_with_glob_letters_in_its_name(tmp_path: Path) -> None:
    store = store_at(tmp_path / "store[1]")
    assert found(store) == [(str(store), "store[1]")]


def test_braces(tmp_path: Path) -> None:
    one, two = store_at(tmp_path / "a1"), store_at(tmp_path / "b2")
    store_at(tmp_path / "c3")
    assert found(tmp_path / "{a1,b2}") == found(tmp_path / "{a,b}[0-9]") == [(str(one), "a1"), (str(two), "b2")]
    assert expand_braces("/x/{a,{b,c}d}/{e}") == ["/x/a/{e}", "/x/bd/{e}", "/x/a/{e}", "/x/cd/{e}"]
    literal = store_at(tmp_path / "{d,e}")
    assert found(literal) == [(str(literal), "{d,e}")]


def test_names_are_unique(tmp_path: Path) -> None:
    for region in ("eu", "us", "ap"):
        store_at(tmp_path / region / "broker-a" / "store")
    assert [name for _, name in found(tmp_path / "*" / "*" / "store")] == ["broker-a", "broker-a-2", "broker-a-3"]


def test_the_name_in_broker_conf(tmp_path: Path) -> None:
    store = store_at(tmp_path / "store")
    (store / "broker.conf").write_text("# broker\nbrokerClusterName = c\nbrokerName = orders-1\n")
    assert find_broker_name(store) == "orders-1"
    (store / "broker.conf").unlink()
    (store / "config").mkdir()
    (store / "config" / "broker.conf").write_text("brokerName=orders-2")
    assert find_broker_name(store) == "orders-2"


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_the_name_a_java_broker_left(name: str, tmp_path: Path) -> None:
    """A broker registers a topic of its own name; these stores were written by brokers called broker-a."""
    assert find_broker_name(golden.restore(name, tmp_path)) == "broker-a"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable": 3}', '{"topicConfigTable": {"a": 3}}'])
def test_foreign_config_is_no_obstacle(text: str, tmp_path: Path) -> None:
    store = store_at(tmp_path / "here" / "store")
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(text)
    (store / "broker.conf").write_bytes(b"brokerName=\\uXXXX \xff")
    assert find_broker_name(store) == "here"


def test_two_topics_that_could_be_the_brokers(tmp_path: Path) -> None:
    store = store_at(tmp_path / "x")
    (store / "config").mkdir()
    own = '{"perm": 7, "readQueueNums": 1, "writeQueueNums": 1}'
    (store / "config" / "topics.json").write_text(f'{{"topicConfigTable": {{"a": {own}, "b": {own}}}}}')
    assert find_broker_name(store) == "x"


def test_no_such_directory(tmp_path: Path) -> None:
    problem = refusal(tmp_path / "no" / "such" / "store")
    assert problem.reason == f"there is no such directory; the path exists up to {tmp_path}"
    assert refusal(tmp_path / "nothing").reason == "there is no such directory"
    assert "nor anything else" in refusal(tmp_path / "*").reason


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").reason == "this is a file; a store is a directory"
    assert "it holds file" in refusal(tmp_path).reason
    (tmp_path / "empty").mkdir()
    assert "it is empty" in refusal(tmp_path / "empty").reason
    assert "no store: empty, file" in refusal(tmp_path / "*").reason


def test_one_level_too_deep_or_too_high(tmp_path: Path) -> None:
    store = store_at(tmp_path / "data" / "store")
    assert f"give its directory, {store}" in refusal(store / "commitlog").reason
    assert "but store in it is one" in refusal(tmp_path / "data").reason
    store_at(tmp_path / "data" / "store-2")
    assert f"use {tmp_path / 'data' / '*'} for all" in refusal(tmp_path / "data").reason


@pytest.mark.parametrize("path", ["hdfs://host/store", "s3a://bucket/store", "http://x/y"])
def test_only_mounted_directories(path: str) -> None:
    with pytest.raises(OptionInvalid) as raised:
        find_stores([path])
    assert raised.value.option == "path"
    assert raised.value.value == path
