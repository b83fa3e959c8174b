"""`embermq spark sql`, `stats` and `pipeline` with --name-server: a running cluster in place of stores."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import embermq.spark
from embermq import Message
from embermq.cli.app import run
from embermq.client import Credentials
from embermq.errors import ClientError, NameServersUnreachable, OptionInvalid, TopicUnknown
from embermq.spark.jobs.sql import sql
from embermq.spark.jobs.stats import stats
from embermq.spark.wire.views import cluster_topics
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.guarded_cluster import guarded
from tests.support.lent_session import lend
from tests.support.wire_topics import create_topic

pytestmark = pytest.mark.extended


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path / "brokers") as running:
        create_topic([running.broker.address], running.name_server, "orders")
        messages = [
            Message("orders", b'{"amount": %d}' % n, tags=("paid", "sent")[n % 2], keys=["k"], queue_id=n % 4)
            for n in range(20)
        ]
        running.broker.store.append_many(messages)
        running.broker.store.wait_for_dispatch()
        yield running


@pytest.mark.slow(seconds=8)
def test_commands_ask_a_cluster(
    spark: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    query = "select tags, sum(value.amount) as amount from orders group by tags order by tags"
    words = ["spark", "sql", query, "-n", cluster.name_server, "--json", "orders=amount int", "--output", "json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [
        {"tags": "paid", "amount": 90},
        {"tags": "sent", "amount": 100},
    ]
    assert run(["spark", "stats", "--name-server", cluster.name_server, "--topic", "orders", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["stats"]
    assert (found["messages"], found["lags"]) == (20, [])
    assert found["hot_keys"] == [{"name": "k", "messages": 20}]
    assert run(["spark", "sql", "select 1 from orders", "-n", "127.0.0.1:1"]) == 2
    assert "no name server answers" in capsys.readouterr().err
    assert run(["spark", "stats"]) == 2
    assert "name at least one store, or a name server" in capsys.readouterr().err
    assert run(["spark", "stats", "store", "-n", cluster.name_server]) == 2
    assert "not together with stores" in capsys.readouterr().err


def test_what_cannot_be_is_said_before_a_query(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(OptionInvalid, match="not together with stores"):
        sql(spark, "select 1", ["store"], name_server=cluster.name_server)
    with pytest.raises(OptionInvalid, match="not together with stores"):
        stats(spark, lake="lake", name_server=cluster.name_server)
    with pytest.raises(TopicUnknown, match="did you mean orders"):
        sql(spark, "select 1 from orders", json={"oders": "a int"}, name_server=cluster.name_server)
    with pytest.raises(NameServersUnreachable):
        sql(spark, "select 1 from orders", name_server="127.0.0.1:1")
    with pytest.raises(OptionInvalid, match=r"tables: messages, .*orders"):
        sql(spark, "select * from returns", name_server=cluster.name_server)


@pytest.mark.slow(seconds=10)
def test_a_pipeline_of_a_cluster(
    spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(spark, monkeypatch)
    lake, metrics = str(tmp_path / "lake"), tmp_path / "metrics.prom"
    words = ["spark", "pipeline", "-n", cluster.name_server, "--into", lake, "--topic", "ord*", "--group", "lake"]
    assert run([*words, "--metrics-file", str(metrics), "--output", "json"]) == 0
    (batch,) = json.loads(capsys.readouterr().out)["batches"]
    assert (batch["records"], batch["lag_messages"]) == (20, 0)
    assert batch["offsets"] == {"cluster": {"orders": {"a": {str(n): 5 for n in range(4)}}}}
    assert "embermq_pipeline_lag_messages 0" in metrics.read_text()
    assert run(words) == 0
    assert "nothing new" in capsys.readouterr().out
    assert run(["spark", "sql", "select count(*) as n from orders", "--archive", lake, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": 20}]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name at least one store, or a name server"),
        (["store", "--group", "lake"], "has no meaning without --name-server"),
        (["-n", "127.0.0.1:1", "--report", "page.html"], "embermq spark stats --name-server ADDRESSES --report"),
    ],
)
def test_a_pipeline_that_cannot_be(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", "pipeline", *words, "--into", "lake"]) == 2
    assert text in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["archive", "--into", "lake"], "embermq tap MASTER:10912 --into DIR --archive LAKE"),
    ],
)
def test_commands_that_work_on_files_say_what_to_do_instead(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", *words, "--name-server", "127.0.0.1:9876"]) == 2
    said = capsys.readouterr().err
    assert "--name-server" in said
    assert text in " ".join(said.split())
    assert "Traceback" not in said


def test_a_read_of_a_cluster_is_explained(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["spark", "explain", "-n", cluster.name_server, "-o", "topic=orders", "-o", "subExpression=paid || sent"]
    assert run([*words, "-o", "minPartitions=2", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["cluster"]
    assert (found["filter"], found["queues"], found["messages"]) == ("paid || sent", 4, 20)
    assert found["bytes"] == pytest.approx(sum(one.size for one in cluster.broker.store.scan()), rel=0.1)
    assert [(one["broker_name"], one["queues"], one["messages"]) for one in found["slices"]] == [("a", 2, 10)] * 2
    assert run(words) == 0
    assert "brokers filter by" in capsys.readouterr().out
    assert run([*words, "store"]) == 2
    assert "not together with stores" in capsys.readouterr().err
    assert run(["spark", "explain"]) == 2
    assert "name at least one store, or a name server" in capsys.readouterr().err


def test_an_account_and_a_namespace_of_a_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", "stats", "store", "--namespace", "shop"]) == 2
    assert "--namespace: has no meaning without --name-server" in capsys.readouterr().err
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "very-secret-4711")
    account = {"accessKey": "reader", "secretKey": "very-secret-4711"}
    with guarded(cluster, account=Credentials("reader", "very-secret-4711")) as door:
        assert "orders" in cluster_topics(door.name_server, account)
        assert cluster_topics(door.name_server, account | {"namespace": "shop"}) == []
        with pytest.raises(ClientError, match="signature is wrong"):
            cluster_topics(door.name_server)


@pytest.mark.slow(seconds=5)
def test_a_scan_reads_a_cluster(spark: SparkSession, cluster: Cluster) -> None:
    frame = embermq.spark.scan(spark, columns=["queueId", "body"], nameServer=cluster.name_server, topic="orders")
    assert sorted(bytes(row["body"]) for row in frame.collect()) == sorted(b'{"amount": %d}' % n for n in range(20))
    with pytest.raises(OptionInvalid, match="path: is missing"):
        embermq.spark.scan(spark, topic="orders")
