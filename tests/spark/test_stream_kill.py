"""kill -9 of the driver, its JVM and its workers, at any moment of a micro-batch: no record is lost, none comes twice.

A child process runs the query, and reports; it is killed on what it reports and a little later, while the store is
being written. Then it is started again with the same checkpoint. At the end the sink has what the log has.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from embermq import MessageStore
from embermq.columns.plain.select import is_system_topic
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.stream_child import start
from tests.support.surveys import frames_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300.0
STARTS_MAX = 5


class Child:
    """A process, and everything it starts."""

    def __init__(self, module: str, *arguments: Path | dict[str, Any]) -> None:
        words = [json.dumps(one) if isinstance(one, dict) else str(one) for one in arguments]
        command = [sys.executable, "-m", module, *words]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        self.lines: list[str] = []
        self._rest = b""

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def listen(self, word: str, count: int) -> None:
        """Until so many lines began with `word`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while sum(line.startswith(word) for line in self.lines) < count:
            left = deadline - time.monotonic()
            assert left > 0, self.lines
            if poll.poll(left * 1000):
                data = os.read(self._pipe, 1 << 16)
                assert data, f"the child ended by itself: {self._process.wait()} {self.lines}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.lines += [line.decode() for line in lines]

    def kill(self) -> None:
        """The whole group: Python, the JVM, the workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        assert self._process.stdout is not None
        code = self._process.wait(PATIENCE_SECONDS)
        self._process.stdout.close()
        return code


class Writer:
    """Appends while a query runs: starting Spark takes long, and nobody needs a mountain of messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store, self._stop = store, threading.Event()
        self.go = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.005):
            if self.go.is_set():
                n += len(numbered.append(self._store, n))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def finish(spark: "SparkSession", store: Path, place: Path, options: dict[str, Any]) -> None:
    """The same query in this process, to the end of what is there."""
    rows = spark.readStream.format("rocketmq").options(**{**options, "maxOffsetsPerTrigger": "100000"}).load(str(store))
    for attempt in range(STARTS_MAX):
        try:
            assert start(rows, place, available_now=True).awaitTermination(int(PATIENCE_SECONDS))
        except StreamingQueryException as problem:
            # Spark gives a stream's Python process some seconds to start, and a busy machine may take longer.
            if attempt + 1 == STARTS_MAX or "failed to connect back" not in str(problem):
                raise
        else:
            return


def kill_and_check(
    spark: "SparkSession", place: Path, rounds: int, queries: dict[str, dict[str, Any]], seed: int
) -> None:
    builder = StoreBuilder(place / "store", **(numbered.TINY | {"segment_bytes": 1 << 16}))
    source = random.Random(seed)
    queries = {name: {"startingOffsets": "earliest", **options} for name, options in queries.items()}
    with builder.open() as store:
        writer = Writer(store)
        try:
            for _ in range(rounds):
                with Child("tests.spark.stream_child", builder.root, place / "sink", queries) as child:
                    child.listen("begun", 1)
                    writer.go.set()
                    for name in queries:
                        child.listen(f"batch {name} ", source.randrange(1, 5))
                    time.sleep(source.random() * 0.5)
                    child.kill()
                    writer.go.clear()
        finally:
            writer.stop()
        for name, options in queries.items():
            finish(spark, builder.root, place / "sink" / name, options)
    expected = Counter(
        (one.topic, one.queue_id, one.queue_offset)
        for one in frames_of(builder.root)
        if one.sys_flag & 4 == 0 and not is_system_topic(one.topic)
    )
    for name in queries:
        rows = spark.read.parquet(str(place / "sink" / name / "out")).select("topic", "queueId", "queueOffset")
        assert Counter((row.topic, row.queueId, row.queueOffset) for row in rows.collect()) == expected, name


QUERIES = {"log": {"maxOffsetsPerTrigger": "40"}, "topics": {"subscribePattern": ".*"}}


@pytest.mark.slow(40)
def test_the_driver_is_killed(spark: "SparkSession", tmp_path: Path) -> None:
    """With two queries at once, each at a micro-batch of its own."""
    kill_and_check(spark, tmp_path, 1, QUERIES, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_the_driver_is_killed_many_times(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    kill_and_check(spark, tmp_path, 30, {name: QUERIES[name]}, seed=2)
