"""Every job over a store, to be run on different masters: the answers have to be the same.

`answers` takes the store that `make_store` made; everything that is written goes below `scratch`, which has to be new.
`expected` is what it has to answer: worked out from the messages, without Spark.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from embermq import Message, MessageStore
from embermq.repair.verify.store_check import verify
from embermq.spark.jobs.archive import archive
from embermq.spark.jobs.audit import audit
from embermq.spark.jobs.dead_letters import dead_letters
from embermq.spark.jobs.rebuild import rebuild
from embermq.spark.jobs.replay import ReplayWindow, replay
from embermq.spark.jobs.ship import ship
from embermq.spark.jobs.sql import sql
from embermq.spark.jobs.stats import stats
from embermq.spark.pipelines import pipeline
from embermq.testing.builder import StoreBuilder
from tests.support.orders import orders
from tests.support.same_work import PLACE, digest, place

FIRST = [*orders(600, body_bytes=100), *orders(200, "returns")]
LATER = orders(60, "orders")
DEAD = [
    Message("%RETRY%shop", b"b", properties={"ORIGIN_MESSAGE_ID": "1", "RETRY_TOPIC": "orders"}, reconsume_times=1),
    Message("%DLQ%shop", b"b", properties={"ORIGIN_MESSAGE_ID": "1", "RETRY_TOPIC": "orders"}, reconsume_times=2),
]
ALL = [*FIRST, *DEAD, *LATER]
JOBS = ("archive", "sql", "stats", "replay", "dead_letters", "audit", "rebuild", "pipeline", "ship")
# One that reads, one that writes the store's own files, one that writes elsewhere in batches.
SOME_JOBS = ("audit", "rebuild", "pipeline")


def make_store(directory: Path) -> Path:
    """The store the jobs are about: several log files, without what is appended `LATER`."""
    with StoreBuilder(directory, segment_bytes=64 << 10).open() as opened:
        opened.append_many([*FIRST, *DEAD])
    return directory


def answers(spark: SparkSession, store: Path, scratch: Path, jobs: Collection[str] = JOBS) -> dict[str, Any]:
    """Those of some jobs only, where they are named; `archive` is needed by `sql` and `stats`."""
    scratch.mkdir()
    lake, path = str(scratch / "lake"), str(store)
    archived = sum(one.records for one in archive(spark, [path], lake)) if "archive" in jobs else 0
    with MessageStore.open(store, StoreBuilder(store).settings) as opened:
        opened.append_many(LATER)
    tags = "select tags, count(*) from orders group by 1 order by 1"
    window = ReplayWindow("orders", tags="paid")
    ways: dict[str, Callable[[], Any]] = {
        "archive": lambda: archived,
        "sql": lambda: [list(row) for row in sql(spark, tags, [path], lake=lake).collect()],
        "stats": lambda: {one.topic: one.messages for one in stats(spark, [path], lake=lake).topics},
        "replay": lambda: replay(spark, [path], window, scratch / "replayed", to_topic="again").appended,
        "dead_letters": lambda: [(one.topic, one.attempts) for one in dead_letters(spark, [path], "shop")],
        "audit": lambda: [(one.report.records, len(one.findings)) for one in audit(spark, [path]).stores],
        "rebuild": lambda: rebuilt(spark, store, scratch / "rebuilt"),
        "pipeline": lambda: followed(spark, store, scratch),
        "ship": lambda: shipped(spark, path, scratch / "shipped"),
    }
    return {name: way() for name, way in ways.items() if name in jobs}


def rebuilt(spark: SparkSession, store: Path, copy: Path) -> bool:
    """Are queues and index made from the log alone those that were there, byte for byte?"""
    shutil.copytree(store, copy)
    for name in ("consumequeue", "index"):
        shutil.rmtree(copy / name)
    rebuild(spark, copy, settings=StoreBuilder(copy).settings)
    return derived(copy) == derived(store) and verify(copy).is_sound


def derived(store: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Queue files by name; index files, whose names are times, by what is in them."""
    queues = [file for file in (store / "consumequeue").rglob("*") if file.is_file()]
    return (
        {str(file.relative_to(store)): file.read_bytes() for file in queues},
        [file.read_bytes() for file in sorted((store / "index").iterdir())],
    )


def followed(spark: SparkSession, store: Path, scratch: Path) -> str:
    """Rows of a lake that the pipeline made."""
    lake = scratch / "followed"
    pipeline(spark, [str(store)], into=str(lake)).once()
    return digest(spark.read.parquet(str(lake)).select(*PLACE).collect())


def shipped(spark: SparkSession, path: str, target: Path) -> str:
    """Rows read from what was shipped, the tail too."""
    ship(spark, [path], target.as_uri(), tail=True)
    folder = next(one for one in target.iterdir() if one.is_dir())
    return digest(spark.read.format("rocketmq").load(folder.as_uri()).select(*PLACE).collect())


def expected(jobs: Collection[str] = JOBS) -> dict[str, Any]:
    """The answers."""
    tags = Counter(message.tags for message in ALL if message.topic == "orders")
    rows = digest(place(ALL))
    found = {
        "archive": len(FIRST) + len(DEAD),
        "sql": [[tag, tags[tag]] for tag in sorted(tag for tag in tags if tag)],
        "stats": dict(Counter(message.topic for message in ALL)),
        "replay": tags["paid"],
        "dead_letters": [["orders", 2]],
        "audit": [[len(ALL), 0]],
        "rebuild": True,
        "pipeline": rows,
        "ship": rows,
    }
    return {name: found[name] for name in jobs}


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of JSON."""
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read
