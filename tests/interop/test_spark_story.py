"""The whole story of a RocketMQ user with Spark: the wheel beside a running Java broker, every row compared.

An Apache RocketMQ broker takes messages all the while. The wheel, installed with its extra `spark` and nothing else,
reads its directory: a batch, then a stream and a pipeline that are killed together and started again, then archive,
SQL, statistics and audit. In the end RocketMQ's own store reads the log record by record: those are the expected rows.
"""

import hashlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embermq.client import Message, Producer, TransactionProducer
from tests.interop import java_broker
from tests.interop.bare_environment import BareEnvironment, bare_environment
from tests.interop.java_broker import JavaProcess, broker_config, free_port, java_server
from tests.interop.python_client import APACHE, ClusterUnderTest, stored
from tests.interop.reference import Record, ReferenceMissing, ReferenceSession, copied
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

JOBS = Path(__file__).with_name("spark_story_jobs.py")
TOPICS = ("orders", "payments", "delayed", "transactions")
COMPRESSED = 0x1
PATIENCE = {f"waitTimeMillsIn{queue}Queue": 60_000 for queue in ("Send", "Pull", "Heartbeat", "Transaction")}
# A JVM of Spark on a busy machine, kernels to compile included.
JOB_SECONDS_MAX = 900
SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


@pytest.fixture(scope="module")
def environment() -> Iterator[BareEnvironment]:
    try:
        java_broker.class_path()
        with bare_environment("spark") as made:
            yield made
    except ReferenceMissing as why:
        pytest.skip(str(why))


@contextmanager
def java_cluster(place: Path) -> Iterator[tuple[ClusterUnderTest, JavaProcess]]:
    address = f"127.0.0.1:{free_port()}"
    config = broker_config(place, address) | PATIENCE | {"osPageCacheBusyTimeOutMills": 60_000}
    with (
        java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": address.partition(":")[2]}),
        java_server("broker.BrokerStartup", place, config) as broker,
    ):
        yield ClusterUnderTest(APACHE, address), broker


class Traffic:
    """Messages of every kind, each with a key of its own; `bodies` has what was sent, by key."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self.bodies: dict[str, bytes] = {}
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._failure: BaseException | None = None

    def first(self) -> None:
        """What the batch read finds: returns when all of it can be consumed."""
        with self._producer() as producer:
            producer.send(self._message("delayed", "parked", delay_level=18))
            producer.send(self._message("delayed", "delivered", delay_level=1))
            for _ in range(30):
                self._send(producer)
        options = {"send_timeout": 60.0, "call_timeout": 60.0}
        with TransactionProducer(self._cluster.name_server, "story-t", lambda message: None, **options) as producer:  # type: ignore[arg-type]
            assert producer.send(self._message("transactions", "committed"), lambda *_: True).is_ended
            assert producer.send(self._message("transactions", "rolled-back"), lambda *_: False).is_ended
        for topic, count in (("delayed", 1), ("transactions", 1), ("orders", 750), ("payments", 750)):
            assert len(stored(self._cluster, topic, count)) == count, topic

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _go_on(self) -> None:
        try:
            with self._producer() as producer:
                while not self._is_over.wait(0.2):
                    self._send(producer)
                for _ in range(20):
                    self._send(producer)
        except BaseException as problem:
            self._failure = problem

    def _producer(self) -> Producer:
        return Producer(self._cluster.name_server, "story", send_timeout=60.0, call_timeout=60.0)

    def _send(self, producer: Producer) -> None:
        for topic in TOPICS[:2]:
            messages = [self._message(topic, f"{topic[0]}-{len(self.bodies)}") for _ in range(24)]
            producer.send_many(messages, queue_by=len(self.bodies) % 4)
            producer.send(self._message(topic, f"{topic[0]}-{len(self.bodies)}", large=True))

    def _message(self, topic: str, key: str, *, large: bool = False, delay_level: int = 0) -> Message:
        number = len(self.bodies)
        body = json.dumps({"id": number, "text": "ä€" * (8000 if large else number % 90)}).encode()
        self.bodies[key] = body
        tags = ("created", "paid", "zurückgestellt")[number % 3]
        return Message(
            topic,
            body,
            tags=tags,
            keys=[key, f"twice-{number % 7}"],
            properties={"n": str(number)},
            delay_level=delay_level,
        )


def test_batch_stream_pipeline_and_commands_from_the_wheel(environment: BareEnvironment, directory: Path) -> None:
    place = directory.parent
    store = place / "broker" / "store"
    with java_cluster(place / "broker") as (cluster, broker):
        traffic = Traffic(cluster)
        traffic.first()
        first_wave = set(traffic.bodies)
        _killed_in_the_middle(environment, store, place, traffic)
        _job(environment, "after", store, place)
        verified = _embermq(environment, "store", "verify", str(store))
        names = {path.name for path in store.rglob("*")}
        broker.stop()
    with copied(store) as copy, ReferenceSession(copy, SIZES) as session:
        records = session.dump().records
    assert len(records) > 3000
    assert not [name for name in names if "embermq" in name], "nothing is written into the broker's directory"
    assert (verified["sound"], verified["store"]["records"]) == (True, len(records))

    visible = {record.phy: _row(record, traffic.bodies) for record in records if record.topic in TOPICS}
    assert {row["keys"].split()[0] for row in visible.values()} == set(traffic.bodies) - {"parked", "rolled-back"}
    of_first_wave = {phy: row for phy, row in visible.items() if row["keys"].split()[0] in first_wave}
    _assert_same(_read(place / "rows" / "batch"), of_first_wave)
    raw = _read(place / "rows" / "records")
    _assert_same(raw, {record.phy: _row(record, {}) for record in records if record.phy <= max(raw)})
    _assert_same(_read(place / "rows" / "stream"), visible)
    _assert_same(_read(place / "lake"), visible)
    _assert_same(_read(place / "archive"), {record.phy: _row(record, traffic.bodies) for record in records})
    _assert_answers(place, records, list(visible.values()), traffic.bodies)


def _killed_in_the_middle(environment: BareEnvironment, store: Path, place: Path, traffic: Traffic) -> None:
    """The stream and the pipeline follow the broker; both have committed batches, and neither is at its end."""
    command = [environment.python, str(JOBS), "before", str(store), str(place)]
    with open(place / "before.log", "w") as log:
        process = subprocess.Popen(
            command, cwd=place, env=environment.variables, stdout=log, stderr=log, start_new_session=True
        )

    def is_running() -> None:
        assert process.poll() is None, (place / "before.log").read_text()[-4000:]

    def committed() -> bool:
        batches = len(list(place.glob("checkpoint/commits/[0-9]*")))
        return batches >= 4 and len(list(place.glob("lake/_commits/*.json"))) >= 2

    try:
        wait_until(
            (place / "rows" / "records" / "_SUCCESS").exists, "batches", seconds=JOB_SECONDS_MAX, check=is_running
        )
        with traffic:
            wait_until(committed, "commits of both", seconds=JOB_SECONDS_MAX, look_seconds=0.05, check=is_running)
            os.killpg(process.pid, signal.SIGKILL)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _job(environment: BareEnvironment, name: str, store: Path, place: Path) -> None:
    ran = subprocess.run(
        [environment.python, str(JOBS), name, str(store), str(place)],
        cwd=place,
        env=environment.variables,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]


def _embermq(environment: BareEnvironment, *words: str) -> Any:
    command = [environment.embermq, *words, "--output", "json"]
    ran = subprocess.run(
        command, env=environment.variables, capture_output=True, text=True, timeout=JOB_SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def _row(record: Record, bodies: dict[str, bytes]) -> dict[str, Any]:
    """The row of a record; a compressed body is the one that was sent, where that is known."""
    key = (record.keys or "").split(" ")[0]
    is_compressed = record.sys_flag & COMPRESSED and key in bodies
    return {
        "topic": record.topic,
        "brokerName": "broker-a",
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.phy,
        "msgId": record.msg_id,
        "uniqKey": record.properties.get("UNIQ_KEY"),
        "tags": record.tags,
        "keys": record.keys,
        "body": hashlib.sha256(bodies[key]).hexdigest() if is_compressed else record.body_hash,
        "properties": record.properties,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": "{}:{}".format(*record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": "{}:{}".format(*record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "size": record.size,
    }


def _read(place: Path) -> dict[int, dict[str, Any]]:
    """Rows by physical offset; one that is there twice fails."""
    table: Any = pq.read_table(place)
    for name in ("bornTimestamp", "storeTimestamp"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.timestamp("ms")).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        row.pop("date", None)
        row["body"] = hashlib.sha256(row["body"]).hexdigest()
    found = {row["physicalOffset"]: row for row in rows}
    assert len(found) == len(rows), f"{place} has rows twice"
    return found


def _assert_same(rows: dict[int, dict[str, Any]], expected: dict[int, dict[str, Any]]) -> None:
    assert rows.keys() == expected.keys()
    different = [(rows[place], row) for place, row in expected.items() if rows[place] != row]
    assert not different, (len(different), different[0])


def _assert_answers(
    place: Path, records: list[Record], visible: list[dict[str, Any]], bodies: dict[str, bytes]
) -> None:
    said = {path.stem: json.loads(path.read_text()) for path in (place / "answers").iterdir()}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in visible:
        groups.setdefault((row["topic"], row["tags"]), []).append(row)
    expected = {
        key: {
            "messages": len(rows),
            "bytes": sum(row["size"] for row in rows),
            "lowest": min(row["queueOffset"] for row in rows),
            "highest": max(row["queueOffset"] for row in rows),
            "body_bytes": sum(len(bodies[row["keys"].split()[0]]) for row in rows),
        }
        for key, rows in groups.items()
    }
    answered = {(row.pop("topic"), row.pop("tags")): row for row in said["sql"]["rows"]}
    assert answered == expected
    assert said["stats"]["stats"]["messages"] == len(visible)
    by_topic = {one["topic"]: (one["messages"], one["bytes"]) for one in said["stats"]["stats"]["topics"]}
    assert by_topic == {
        topic: (
            sum(row["topic"] == topic for row in visible),
            sum(row["size"] for row in visible if row["topic"] == topic),
        )
        for topic in TOPICS
    }
    (audited,) = said["audit"]["stores"]
    assert (said["audit"]["sound"], audited["records"]) == (True, len(records))
    assert sum(one["records"] for one in said["archive"]["archived"]) == len(records)
