"""Slices and what they are read with: entries from files, candidates by tag, batches by limits, big records."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from embermq import Message
from embermq.columns.plain.select import Selection, select_rows
from embermq.format.java import string_hash
from embermq.format.queue_entry import BLANK_SIZE, ENTRY
from embermq.spark.options.schema import spark_schema
from embermq.spark.planning import plan
from embermq.spark.planning.plan import LogCut, QueueRequest
from embermq.spark.planning.size_samples import can_match, sampled, tag_codes
from embermq.spark.planning.stores import StorePlace
from embermq.spark.reading import known_places as picked
from embermq.spark.reading import queue_reader
from embermq.spark.reading.queue_files import QueueEntryFiles
from embermq.spark.reading.queue_reader import merged
from embermq.spark.reading.slice_rows import Counts, ReadSettings, Slice, SliceReader, chooser
from tests.spark.conftest import StoreMaker
from tests.support.kernels import force_compiled, force_plain
from tests.support.records import LogOfRecords
from tests.support.spark_reads import read, reader_of


def queue_directory(store: Path, topic: str = "t", queue_id: int = 0) -> Path:
    directory = store / "consumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True)
    return directory


def entries(start: int, end: int) -> bytes:
    return b"".join(ENTRY.pack(1000 * n, 100 + n, n) for n in range(start, end))


# -- entries -----------------------------------------------------------------------------------------------------------


def test_entries_over_several_files(tmp_path: Path) -> None:
    directory = queue_directory(tmp_path)
    (directory / f"{0:020d}").write_bytes(entries(0, 10))
    (directory / f"{200:020d}").write_bytes(entries(10, 20))
    (directory / f"{400:020d}").write_bytes(entries(20, 23) + bytes(20 * 7))
    (directory / "notes").write_text("")
    queue = QueueEntryFiles(tmp_path, "t", 0)
    assert queue.end == 30
    found = queue.entries(5, 27)
    assert found["size"].tolist() == [*range(105, 123), 0, 0, 0, 0]
    assert found["physical_offset"].tolist()[:18] == [1000 * n for n in range(5, 23)]
    assert queue.entries(25, 40)["size"].tolist() == [0] * 15
    assert [queue.known_end(*span) for span in ((0, 30), (0, 23), (0, 10), (5, 99), (25, 30))] == [23, 23, 10, 23, 25]


def test_entries_that_are_not_there(tmp_path: Path) -> None:
    nobody = QueueEntryFiles(tmp_path, "t", 0)
    assert (nobody.end, nobody.known_end(0, 10), nobody.entries(0, 2)["size"].tolist()) == (0, 0, [0, 0])
    directory = queue_directory(tmp_path)
    (directory / f"{0:020d}").write_bytes(ENTRY.pack(0, BLANK_SIZE, 0) * 4 + entries(4, 10))
    (directory / f"{200:020d}").write_bytes(entries(10, 20)[:-7])
    queue = QueueEntryFiles(tmp_path, "t", 0)
    assert queue.entries(0, 6)["size"].tolist() == [0, 0, 0, 0, 104, 105], "a blank is no entry"
    assert queue.entries(17, 20)["size"].tolist() == [117, 118, 0], "nor is a part of one"
    (directory / f"{0:020d}").unlink()
    assert queue.entries(8, 12)["size"].tolist() == [0, 0, 110, 111], "a file may go at any time"


def test_tags_by_their_codes() -> None:
    wanted = tag_codes(frozenset({"a", "Ö-tag", "polygenelubricants"}))
    hashes = [string_hash(tag) for tag in ("a", "b", "Ö-tag", "polygenelubricants")]
    address = -(1 << 31) - 1
    stored = np.array([*hashes, 0, address, -(1 << 63), 1 << 40], ">i8")
    assert can_match(stored, wanted).tolist() == [True, False, True, True, False, True, True, False]


def test_samples_tell_sizes_shares_and_what_is_missing(tmp_path: Path) -> None:
    directory = queue_directory(tmp_path)
    code = string_hash("rare")
    data = b"".join(ENTRY.pack(1000 * n, 100 if n < 500 else 900, code if n % 10 == 0 else 5) for n in range(1000))
    (directory / f"{0:020d}").write_bytes(data)
    place = StorePlace(tmp_path, "b")
    request = QueueRequest("t", 0, 0, 1000, 0, 10**6)
    (found,), because = sampled(place, [request], frozenset({"rare"}))
    assert because == ""
    assert plan.queue_bytes(found) == pytest.approx(500_000, rel=0.1)
    assert found.wanted_share == pytest.approx(0.1, rel=0.3)
    (none,), _ = sampled(place, [request], frozenset({"nobody"}))
    assert 0 < none.wanted_share < 0.01
    _, because = sampled(place, [QueueRequest("t", 0, 0, 2000, 0, 10**6)], None)
    assert because == "queue files lack 1,000 of 2,000 entries"
    _, because = sampled(place, [QueueRequest("elsewhere", 0, 0, 10, 0, 10**6)], None)
    assert because == "queue files lack 10 of 10 entries"


# -- places ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8))
def test_merged_ranges_are_the_same_places(ranges: list[tuple[int, int]]) -> None:
    got = merged(ranges)
    assert {at for start, end in got for at in range(start, end)} == {
        at for start, end in ranges for at in range(start, end)
    }
    assert all(start < end for start, end in got)
    assert all(one[1] < other[0] for one, other in pairwise(got))


@pytest.mark.parametrize("stretch_bytes", [1, 3000, 1 << 30])
def test_files_are_mapped_a_stretch_at_a_time(
    make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch, stretch_bytes: int
) -> None:
    monkeypatch.setattr(picked, "_STRETCH_BYTES", stretch_bytes)
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20))
    store = make_store((Message(f"t{n % 3}", b"%d" % n) for n in range(300)), segment_bytes=8 << 10)
    got = read(store, topic="t1")
    assert got.methods == {"queue"}
    assert [int(body) for body in got.column("body")] == list(range(1, 300, 3))


@pytest.mark.parametrize("step_entries", [1, 7, 100, 1 << 17])
def test_entries_are_held_a_step_at_a_time(
    make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch, step_entries: int
) -> None:
    monkeypatch.setattr(queue_reader, "STEP_ENTRIES", step_entries)
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20))
    store = make_store(Message(f"t{n % 3}", b"%d" % n, queue_id=n % 5) for n in range(300))
    got = read(store, topic="t0,t1", minPartitions="2")
    assert sorted(int(body) for body in got.column("body")) == [n for n in range(300) if n % 3 < 2]


@pytest.mark.parametrize("way", ["log", "queue"])
def test_kernels_and_twins_give_the_same(make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20) if way == "queue" else 1 << 40)
    messages = (Message(f"t{n % 3}", b"%d" % n, queue_id=n % 2, tags=f"g{n % 4}") for n in range(600))
    store = make_store(messages)
    options = {"topic": "t0,t2", "subExpression": "g1 || g2"}
    answers = []
    for force in (force_compiled, force_plain):
        force(monkeypatch)
        got = read(store, **options)
        assert got.methods == {way}
        answers.append(got.rows)
    assert answers[0] == answers[1]
    assert len(answers[0]) == len([n for n in range(600) if n % 3 != 1 and n % 4 in (1, 2)])


@pytest.mark.parametrize("way", ["log", "queue"])
def test_rows_that_do_not_meet_an_expression_are_not_made(
    make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20) if way == "queue" else 1 << 40)
    store = make_store(
        Message(f"t{n % 3}", b"%d" % n, tags=f"g{n % 2}", keys=[f"k{n % 50}"], properties={"n": str(n)})
        for n in range(300)
    )
    wanted = "n BETWEEN 100 AND 199 AND TAGS = 'g1'"
    got = read(store, topic="t0,t1", sqlExpression=wanted)
    assert got.methods == {way}
    expected = [n for n in range(100, 200) if n % 2 == 1 and n % 3 < 2]
    assert sorted(int(body) for body in got.column("body")) == expected
    assert read(store, topic="t0", sqlExpression="n > 1000").rows == []
    assert sorted(read(store, sqlExpression=wanted, keys="k11").column("body")) == [b"111", b"161"]
    assert len(read(store, sqlExpression="missing IS NULL").rows) == 300


@pytest.mark.parametrize("way", ["log", "queue"])
def test_records_of_megabytes(make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20) if way == "queue" else 1 << 40)
    bodies = [bytes([n]) * (3 << 20) if n % 2 else b"small" for n in range(6)]
    store = make_store((Message("t", body, keys=[f"k{n}"]) for n, body in enumerate(bodies)), segment_bytes=16 << 20)
    got = read(store, topic="t", minPartitions="4")
    assert got.methods == {way}
    assert sorted(got.column("body")) == sorted(bodies)
    assert read(store, keys="k3").column("body") == [bodies[3]]


# -- batches ---------------------------------------------------------------------------------------------------------


def test_choosing_everything_chooses_nothing() -> None:
    log = LogOfRecords()
    log.append("orders", 0, 0)
    log.append("RMQ_SYS_TRACE_TOPIC", 0, 0)
    records = log.columns()
    assert chooser(Selection(include_system=True), 10)(records) is None
    wanted = chooser(Selection(), 10)(records)
    assert wanted is not None
    assert wanted.tolist() == select_rows(records, Selection()).tolist() == [0]
    by_kernel = chooser(Selection(), 1 << 40)(records)
    assert by_kernel is not None
    assert by_kernel.tolist() == [0]


def reader_with(batch_rows: int, batch_bytes: int) -> SliceReader:
    schema = StructType([spark_schema("rocketmq")["size"]])
    reading = ReadSettings(schema, batch_rows=batch_rows, batch_bytes=batch_bytes)
    return SliceReader(Slice(Path("/nowhere"), "b", (), LogCut(0, 0), Selection(), reading), Counts())


@given(sizes=st.lists(st.integers(0, 300), max_size=30), rows=st.integers(1, 12), limit=st.integers(1, 2000))
def test_batches_are_within_limits(sizes: list[int], rows: int, limit: int) -> None:
    log = LogOfRecords()
    for n, size in enumerate(sizes):
        log.append("t", 0, n, body=bytes(size))
    reader = reader_with(rows, limit)
    batches = [batch.column(0).to_pylist() for batch in reader.batches(log.columns(), None)]
    assert [size for batch in batches for size in batch] == [log.columns().rows[n, 1] for n in range(len(sizes))]
    assert all(0 < len(batch) <= rows for batch in batches)
    assert all(sum(batch) <= limit or len(batch) == 1 for batch in batches)
    assert reader.counts.rows == len(sizes)


def test_slices_are_small_and_whole_when_pickled(make_store: StoreMaker) -> None:
    store = make_store((Message(f"t{n % 20}", b"%d" % n, queue_id=n % 4) for n in range(400)), segment_bytes=8 << 10)
    slices = reader_of(store, topic="t1,t2", minPartitions="3").partitions()
    for one in slices:
        data = pickle.dumps(one)
        assert pickle.loads(data) == one
        assert len(data) < 8_000
