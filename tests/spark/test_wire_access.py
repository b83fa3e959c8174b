"""Accounts, TLS and namespaces over the wire, in reads, streams and writes; and where a secret must not be seen."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import embermq.spark
from embermq import Message
from embermq.client import Credentials
from embermq.errors import BrokerUnreachable, ClientError, NameServersUnreachable, OptionInvalid, TopicUnknown
from embermq.spark.options import read_options
from embermq.spark.options.access import ClusterAccess, Tls, parse_access
from embermq.spark.options.write_options import parse as parse_write
from embermq.spark.options.write_options import parse_for_cluster
from embermq.spark.wire.batch_reader import place_of
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.guarded_cluster import Door, guarded, make_certificate
from tests.support.wire_reads import wire_rows, wire_slices
from tests.support.wire_topics import create_topic

pytestmark = pytest.mark.extended

SECRET, TOKEN = "very-secret-4711", "token-4712"
ACCOUNT = Credentials("reader", SECRET)
NAMESPACE = "shop"
MESSAGES = 24
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path_factory.mktemp("access")) as running:
        for topic in ("orders", "shop%orders", "shop%returns"):
            create_topic([running.broker.address], running.name_server, topic)
            running.broker.store.append_many(
                [Message(topic, f"{topic} {n}".encode(), queue_id=n % 4, tags="paid") for n in range(MESSAGES)]
            )
        running.broker.store.wait_for_dispatch()
        yield running


@pytest.fixture(scope="module")
def door(cluster: Cluster) -> Iterator[Door]:
    """Checks signatures."""
    with guarded(cluster, account=ACCOUNT) as running:
        yield running


def account(**more: str) -> dict[str, str]:
    return {"accessKey": ACCOUNT.access_key, "secretKey": SECRET} | more


# -- accounts ----------------------------------------------------------------------------------------------------


def test_requests_are_signed_with_the_account(door: Door) -> None:
    before = door.refused
    rows = wire_rows(door.name_server, topic="orders", startingTimestamp="1000000000000", **account())
    assert len(rows) == MESSAGES
    assert door.refused == before


@pytest.mark.parametrize("given", [{}, account(secretKey="another-4713"), account(accessKey="stranger")])
def test_who_is_not_let_in_is_told_so_without_the_secret(door: Door, given: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="signature is wrong") as raised:
        wire_slices(door.name_server, topic="orders", **given)
    assert "4711" not in str(raised.value)
    assert "4713" not in str(raised.value)


@pytest.mark.slow(seconds=8)
def test_spark_reads_streams_and_writes_as_the_account(spark: SparkSession, door: Door, tmp_path: Path) -> None:
    before = door.refused
    options = account(nameServer=door.name_server, topic="orders")
    frame = spark.read.format("rocketmq").options(**options).load()
    assert frame.count() == MESSAGES
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == MESSAGES
    out = spark.range(3).selectExpr("concat('new ', id) as body")
    out.write.format("rocketmq").mode("append").options(**options | {"topic": "signed"}).save()
    assert spark.read.format("rocketmq").options(**options | {"topic": "signed"}).load().count() == 3
    assert door.refused == before
    shown = [plan_of(frame), plan_of(stream), *(str(one) for one in query.recentProgress)]
    kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    shown += [path.read_bytes().decode("latin-1") for path in kept]
    assert any("redacted" in one for one in shown)
    assert not any(SECRET in one for one in shown)


def plan_of(frame: DataFrame) -> str:
    """All plans as Spark shows them, on its pages as well."""
    made = frame._jdf.queryExecution()
    return "\n".join((str(made.toString()), str(made.logical().toString()), str(made.analyzed().treeString())))


def test_spark_tells_what_is_wrong_without_the_secret(spark: SparkSession, door: Door) -> None:
    options = account(nameServer=door.name_server, topic="orders", secretKey="another-4713")
    with pytest.raises(PySparkException) as raised:
        spark.read.format("rocketmq").options(**options).load()
    assert "signature is wrong" in str(raised.value)
    assert "4713" not in str(raised.value)
    with pytest.raises(OptionInvalid) as refused:
        embermq.spark.table(spark, nameServer=door.name_server, topic="orders", secretKey="another-4713")
    assert "4713" not in str(refused.value)


def test_no_text_of_an_object_holds_the_secret(caplog: pytest.LogCaptureFixture, door: Door) -> None:
    given = {"nameServer": door.name_server, "topic": "orders", **account(securityToken=TOKEN)}
    read = read_options.parse(given, streaming=False)
    write = parse_for_cluster(given, streaming=False)
    with caplog.at_level(logging.DEBUG):
        slices = wire_slices(door.name_server, topic="orders", **account())
    objects = [read, write, read.access, place_of(read), slices, caplog.text]
    for text in [*map(repr, objects), *map(str, objects)]:
        assert SECRET not in text
        assert TOKEN not in text
    assert read.access.credentials == Credentials("reader", SECRET, TOKEN)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"accessKey": "a"}, "secretKey is missing"),
        ({"secretKey": SECRET}, "accessKey is missing"),
        ({"securityToken": TOKEN}, "accessKey is missing"),
        ({"accessKey": " ", "secretKey": SECRET}, "accessKey: is empty"),
        ({"tlsCaFile": "/ca.pem"}, "without tls=true"),
        ({"tls": "true", "tlsCertFile": "/c.pem"}, "needs tlsKeyFile"),
        ({"tls": "perhaps"}, "true or false"),
        ({"tls": "true", "tlsVerify": "never"}, "full, ca or none"),
        ({"namespace": "a%b"}, "a namespace is expected"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionInvalid) as raised:
        parse_access(given)
    assert text in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_path_has_no_account() -> None:
    for name, value in {"secretKey": SECRET, "tls": "true", "namespace": "shop"}.items():
        with pytest.raises(OptionInvalid, match=f"{name}: has no meaning without nameServer"):
            read_options.parse({"path": "/store", name: value}, streaming=False)
        with pytest.raises(OptionInvalid, match=f"{name}: has no meaning without nameServer"):
            parse_write({"path": "/store", name: value}, streaming=False)


# -- TLS ---------------------------------------------------------------------------------------------------------


@needs_openssl
def test_reads_go_through_tls(cluster: Cluster, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with guarded(cluster, account=ACCOUNT, certificate=(cert, key)) as running:
        trusting = account(tls="true", tlsCaFile=str(cert))
        assert len(wire_rows(running.name_server, topic="orders", **trusting)) == MESSAGES
        own = {"tlsCertFile": str(cert), "tlsKeyFile": str(key), "tlsVerify": "ca"}
        assert len(wire_rows(running.name_server, topic="orders", **trusting, **own)) == MESSAGES
        assert len(wire_rows(running.name_server, topic="orders", **account(tls="true", tlsVerify="none"))) == MESSAGES
        with pytest.raises((NameServersUnreachable, BrokerUnreachable), match="CERTIFICATE_VERIFY_FAILED"):
            wire_slices(running.name_server, topic="orders", **account(tls="true"))


def test_files_that_are_no_use_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionInvalid, match=r"tlsCaFile = .*No such file"):
        Tls(ca_file=str(tmp_path / "none.pem")).context()
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(OptionInvalid, match="tlsCertFile"):
        Tls(cert_file=str(tmp_path / "empty.pem"), key_file=str(tmp_path / "empty.pem")).context()
    with pytest.raises(OptionInvalid, match="tlsCaFile"):
        wire_slices("127.0.0.1:1", topic="orders", tls="true", tlsCaFile=str(tmp_path / "none.pem"))


# -- namespaces --------------------------------------------------------------------------------------------------


def test_topics_of_a_namespace_are_called_without_it(cluster: Cluster) -> None:
    rows = wire_rows(cluster.name_server, topic="orders", namespace=NAMESPACE)
    assert {row["topic"] for row in rows} == {"orders"}
    assert sorted(row["body"] for row in rows) == sorted(f"shop%orders {n}".encode() for n in range(MESSAGES))
    everything = wire_rows(cluster.name_server, namespace=NAMESPACE)
    assert {row["topic"] for row in everything} == {"orders", "returns"}
    assert len(everything) == 2 * MESSAGES
    with pytest.raises(TopicUnknown, match=r"is not in namespace none of .*"):
        wire_slices(cluster.name_server, topic="orders", namespace="none")


@pytest.mark.slow(seconds=8)
def test_streams_and_writes_stay_in_their_namespace(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    options = {"nameServer": cluster.name_server, "topic": "written", "namespace": NAMESPACE}
    out = spark.range(5).selectExpr("concat('row ', id) as body", "concat('k', id) as shardingKey")
    for _ in range(2):  # The second finds what the first has sent.
        out.write.format("rocketmq").mode("append").options(**options, writeId="once").save()
    create_topic([cluster.broker.address], cluster.name_server, "%RETRY%shop%spark-group", queues=1)
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest", groupId="spark-group")
    query = (
        stream.load()
        .writeStream.format("memory")
        .queryName("of_a_namespace")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = spark.sql("select topic, string(body) as body from of_a_namespace").collect()
    assert sorted(row["body"] for row in rows) == [f"row {n}" for n in range(5)]
    assert {row["topic"] for row in rows} == {"written"}
    assert "shop%written" in cluster.broker.store.topics()
    assert "written" not in cluster.broker.store.topics()


def test_no_option_asks_as_no_one() -> None:
    assert parse_access({"topic": "orders"}) == ClusterAccess()
