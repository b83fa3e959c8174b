"""Commits: which ranges of which logs a lake holds, and which files. Values, and their JSON.

A commit either adds ranges with their files, or (compaction) puts files in the place of others; both at once would
be allowed and is not done. A lake is filled from logs, by ranges of a log, or from a running cluster, by ranges of
queues. `crc` guards against a manifest edited by hand: of its JSON with crc 0, field by field as
the file has them, so that a commit of an older version keeps its checksum.
"""

import zlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from embermq.spark.lake.topic_filter import TopicFilter

LakeFormat = Literal["parquet", "delta", "iceberg"]
LakeSource = Literal["log", "cluster"]


class LakeFile(msgspec.Struct, frozen=True):
    """A Parquet file. `crc` is of its columns physicalOffset, size and bodyCrc, row by row, as 64-bit numbers."""

    path: str  # below the lake
    topic: str
    date: str
    rows: int
    bytes: int
    crc: int
    undecoded: int | None = None  # rows whose body gave no value; None if the file has no such column


class LakeRange(msgspec.Struct, frozen=True):
    """Everything of one log from `start` to `end` (half-open, physical offsets) is in the files of the commit."""

    broker_name: str
    identity: str  # of the log, as Survey.identity gives it
    start: int
    end: int
    records: int  # in the log
    rows: int  # in the lake: less when the lake leaves out what no consumer sees
    damaged_bytes: int = 0
    undecoded: int = 0  # rows whose JSON body did not fit the schema of the topic


class LakeQueueRange(msgspec.Struct, frozen=True):
    """The messages of one queue from `start` to `end` (half-open, queue offsets) are in the files of the commit."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int


class LakeCommit(msgspec.Struct, frozen=True):
    number: int
    made_ms: int
    ranges: list[LakeRange]
    files: list[LakeFile]
    replaced: list[str] = []  # paths that count no longer
    crc: int = 0
    schemas: dict[str, str] = {}  # of JSON bodies: topic -> what is new with this commit, as Spark's JSON
    queues: list[LakeQueueRange] = []  # of a lake that is filled from a cluster

    def sealed(self) -> "LakeCommit":
        bare = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(bare, crc=zlib.crc32(msgspec.json.encode(bare)))


def load_commit(data: bytes) -> LakeCommit | None:
    """A commit from its file; None if it is not what was written. msgspec.DecodeError if it is no commit at all."""
    commit, raw = msgspec.json.decode(data, type=LakeCommit), msgspec.json.decode(data)
    raw["crc"] = 0
    return commit if zlib.crc32(msgspec.json.encode(raw)) == commit.crc else None


class LakeHead(msgspec.Struct, frozen=True):
    """_embermq.json: what kind of lake this is."""

    version: int
    include_system: bool  # whether it has what no consumer sees: system topics, half and rolled-back records
    made_ms: int
    format: LakeFormat = "parquet"
    catalog: str = ""  # of Iceberg: name and namespace as the user gave them; empty for one of the lake's own
    lake_id: str = ""  # tells lakes apart that share a catalog
    topics: TopicFilter = TopicFilter()  # what it has at all; version 2 if that is not everything
    source: LakeSource = "log"  # version 3 if that is a cluster


class Pending(msgspec.Struct, frozen=True):
    """_pending.json: the beginnings of names that are being written for the commit `number`."""

    number: int
    stems: list[str]


def live_files(commits: Iterable[LakeCommit]) -> list[LakeFile]:
    """The files that count after all these commits, in the order they came."""
    found: dict[str, LakeFile] = {}
    for commit in commits:
        for path in commit.replaced:
            found.pop(path, None)
        for file in commit.files:
            found[file.path] = file
    return list(found.values())


def covered(commits: Iterable[LakeCommit], broker_name: str) -> list[LakeRange]:
    """The ranges of one broker's log in log order; neighbours are joined."""
    joined: list[LakeRange] = []
    ranges = [one for commit in commits for one in commit.ranges if one.broker_name == broker_name]
    for one in sorted(ranges, key=lambda one: one.start):
        if joined and joined[-1].end == one.start:
            last = joined[-1]
            joined[-1] = LakeRange(
                broker_name,
                one.identity,
                last.start,
                one.end,
                last.records + one.records,
                last.rows + one.rows,
                last.damaged_bytes + one.damaged_bytes,
                last.undecoded + one.undecoded,
            )
        else:
            joined.append(one)
    return joined
