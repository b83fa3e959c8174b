"""Replay into a running cluster, and from one: each message once, however often it is run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq import Message, StoredMessage
from embermq.cli.app import run
from embermq.errors import NameServersUnreachable, OptionInvalid, TopicUnknown
from embermq.spark.jobs.replay import ReplayWindow, replay
from embermq.spark.jobs.replay_marks import ORIGIN_PLACE, ORIGIN_TOPIC, REPLAY_ID
from embermq.testing.builder import StoreBuilder
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.lent_session import lend
from tests.support.wire_topics import create_topic

pytestmark = pytest.mark.extended

ORDERS = ReplayWindow("orders")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path / "brokers") as running:
        for topic in ("orders", "again"):
            create_topic([running.broker.address], running.name_server, topic, 2)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> str:
    builder = StoreBuilder(tmp_path / "archived")
    with builder.open() as opened:
        opened.append_many(
            [
                Message("orders", b"%d" % n, tags="paid", keys=[f"k-{n}"], properties={"a": "b"}, queue_id=n % 4)
                for n in range(40)
            ]
        )
    return str(builder.root)


def stored(cluster: Cluster, topic: str) -> list[StoredMessage]:
    opened = cluster.broker.store
    opened.wait_for_dispatch()
    return [one for queue in (0, 1) for one in opened.fetch(topic, queue, 0, 1000).messages]


@pytest.mark.slow(seconds=12)
def test_messages_of_a_store_come_once(spark: SparkSession, cluster: Cluster, store: str) -> None:
    def again(*, dry_run: bool = False) -> tuple[int, int, int]:
        done = replay(spark, [store], ORDERS, None, to_topic="again", name_server=cluster.name_server, dry_run=dry_run)
        return done.found, done.skipped, done.appended

    assert again(dry_run=True) == (40, 0, 0)
    # What an earlier run has left that was cut short.
    mark = {ORIGIN_TOPIC: "orders", REPLAY_ID: "replay", ORIGIN_PLACE: "archived@0"}
    cluster.broker.store.append(Message("again", b"0", properties=mark, queue_id=0))
    cluster.broker.store.wait_for_dispatch()
    assert again() == (40, 1, 39)
    assert again() == (40, 40, 0)
    found = stored(cluster, "again")
    assert sorted(int(one.body) for one in found) == list(range(40))
    last = next(one for one in found if one.body == b"39")
    assert (last.tags, last.keys, last.properties["a"], last.properties[ORIGIN_TOPIC]) == (
        "paid",
        ["k-39"],
        "b",
        "orders",
    )
    for first in range(4):  # What was in one queue is in one queue, in order.
        there = [(one.queue_id, int(one.body)) for one in found if int(one.body) % 4 == first and int(one.body)]
        assert there == sorted(there)
        assert len({queue for queue, _ in there}) == 1


@pytest.mark.slow(seconds=12)
def test_back_into_the_topic_of_a_cluster(spark: SparkSession, cluster: Cluster) -> None:
    opened = cluster.broker.store
    opened.append_many([Message("orders", b"%d" % n, queue_id=n % 2) for n in range(10)])
    opened.wait_for_dispatch()
    name_server = cluster.name_server
    for skipped in (0, 10):
        done = replay(spark, [], ORDERS, None, name_server=name_server, from_name_server=name_server)
        assert (done.found, done.skipped, done.appended) == (10, skipped, 10 - skipped)
    assert len(stored(cluster, "orders")) == 20


@pytest.mark.slow(seconds=6)
def test_the_command(
    spark: SparkSession,
    cluster: Cluster,
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(spark, monkeypatch)
    words = ["spark", "replay", store, "--topic", "orders", "--to-topic", "again", "--where", "queueOffset < 2"]
    assert run([*words, "--name-server", cluster.name_server, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["replay"]["appended"] == 8
    assert len(stored(cluster, "again")) == 8


def test_a_replay_that_cannot_be(
    spark: SparkSession, cluster: Cluster, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name_server = cluster.name_server
    with pytest.raises(OptionInvalid, match="not together with a store to append to"):
        replay(spark, [store], ORDERS, tmp_path / "target", name_server=name_server)
    with pytest.raises(OptionInvalid, match="only a store is appended to at a rate"):
        replay(spark, [store], ORDERS, None, name_server=name_server, rate=5.0)
    with pytest.raises(OptionInvalid, match="not together with stores"):
        replay(spark, [store], ORDERS, None, name_server=name_server, from_name_server=name_server)
    with pytest.raises(TopicUnknown, match="did you mean orders"):
        replay(spark, [], ReplayWindow("oders"), None, from_name_server=name_server, dry_run=True)
    with pytest.raises(NameServersUnreachable):
        replay(spark, [store], ORDERS, None, name_server="127.0.0.1:1")
    assert run(["spark", "replay", "--topic", "orders", "--dry-run"]) == 2
    assert "name at least one store, a lake, or a name server" in " ".join(capsys.readouterr().err.split())
