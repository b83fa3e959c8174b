"""Damaged, torn, incomplete and vanishing stores: under each onCorrupt and failOnDataLoss, in every way of reading."""

import logging
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from embermq import Message
from embermq.errors import CorruptFrame, DataLost, StorePathInvalid
from embermq.spark.planning import plan
from embermq.spark.reading.slices import Counts, read_slice
from embermq.testing.builder import StoreBuilder
from tests.spark.conftest import StoreMaker
from tests.support.spark_reads import read, reader_of

COUNT = 300
BODY = bytes(range(200))
WAYS = ["log", "queue"]

UseWay = Callable[[str], None]


def messages(count: int = COUNT) -> Iterator[Message]:
    for n in range(count):
        topic, queue_id = ("orders", "returns")[n % 2], n // 2 % 2
        yield Message(topic, BODY + b"%d" % n, queue_id=queue_id, tags=f"t{n % 3}", keys=[f"k{n}"])


@pytest.fixture
def store(make_store: StoreMaker) -> Path:
    """300 messages in two topics of two queues, in several log files."""
    return make_store(messages(), segment_bytes=32 << 10)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> UseWay:
    """Read by queues wherever a topic is given, or never."""

    def choose(way: str) -> None:
        monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20) if way == "queue" else 1 << 40)

    return choose


def segment(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def file_of(store: Path, physical_offset: int) -> tuple[Path, int]:
    """The log file that holds a place, and the place in it."""
    file = [path for path in sorted((store / "commitlog").iterdir()) if int(path.name) <= physical_offset][-1]
    return file, physical_offset - int(file.name)


def overwrite(store: Path, physical_offset: int, data: bytes) -> None:
    file, at = file_of(store, physical_offset)
    content = bytearray(file.read_bytes())
    content[at : at + len(data)] = data
    file.write_bytes(content)


def spoil(store: Path, *numbers: int) -> list[int]:
    """Turn over a bit in the bodies of some records; answers where they begin."""
    rows = read(store).rows
    for number in numbers:
        overwrite(store, rows[number]["physicalOffset"] + 100, b"\xff")
    return [rows[number]["physicalOffset"] for number in numbers]


def places_of(slices: list[InputPartition], counts: Counts | None = None) -> list[int]:
    """Where the records of some slices lie, in log order."""
    batches = [batch for one in slices for batch in read_slice(one, counts)]
    return sorted(place for batch in batches for place in batch.column("physicalOffset").to_pylist())


@pytest.mark.parametrize("way", WAYS)
def test_damage_fails_the_read_by_default(store: Path, use: UseWay, way: str) -> None:
    use(way)
    (place,) = spoil(store, 100)
    slices = reader_of(store, topic="orders").partitions()
    with pytest.raises(CorruptFrame) as raised:
        places_of(slices)
    problem = raised.value
    assert problem.physical_offset == place
    assert str(problem).startswith(f"the record at physical offset {place} is damaged: bad crc")
    assert str(file_of(store, place)[0]) in str(problem)
    assert "onCorrupt=skip" in str(problem)
    assert "onCorrupt=rows" in str(problem)


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_skipped_and_counted(store: Path, use: UseWay, way: str, caplog: pytest.LogCaptureFixture) -> None:
    use(way)
    whole = read(store, topic="orders").column("physicalOffset")
    places = spoil(store, 100, 150, 200)
    with caplog.at_level(logging.WARNING):
        got = read(store, topic="orders", onCorrupt="skip")
    assert got.methods == {way}
    assert sorted(got.column("physicalOffset")) == sorted(set(whole) - set(places))
    assert sorted(damage.start for damage in got.counts.damaged) == places
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(got.slices) == 1, "one warning for a slice, whatever it met"
    assert "ranges=3" in warnings[0]
    assert str(store) in warnings[0]


@pytest.mark.parametrize("way", WAYS)
def test_damage_as_rows(store: Path, use: UseWay, way: str, caplog: pytest.LogCaptureFixture) -> None:
    use(way)
    sizes = {row["physicalOffset"]: row["size"] for row in read(store).rows}
    places = spoil(store, 100, 150)
    rows = read(store, topic="orders", onCorrupt="rows").rows
    corrupt = [row for row in rows if row["_corrupt"] is not None]
    assert sorted(row["physicalOffset"] for row in corrupt) == places
    for row in corrupt:
        assert "bad crc" in row["_corrupt"]
        assert row["size"] == sizes[row["physicalOffset"]]
        assert row["brokerName"] == store.parent.name
        assert all(row[name] is None for name in ("topic", "queueId", "queueOffset", "body", "tags", "storeTimestamp"))
    assert len(rows) == 150
    assert caplog.records == [], "rows speak for themselves"


def test_without_comparing_sums_a_changed_body_is_a_body(store: Path) -> None:
    spoil(store, 100)
    got = read(store, verifyCrc="false")
    assert len(got.rows) == COUNT
    assert b"\xff" in got.rows[100]["body"]


def test_other_damage_than_sums(store: Path) -> None:
    """A lost page, a wild length, a foreign head: one range each, and what follows is there."""
    rows = read(store).rows
    overwrite(store, rows[50]["physicalOffset"], bytes(rows[50]["size"]))
    overwrite(store, rows[100]["physicalOffset"], struct.pack(">i", 0x7FFF_FFF0))
    overwrite(store, rows[150]["physicalOffset"] + 4, b"\0\1\2\3")
    got = read(store, onCorrupt="rows").rows
    good = [row["physicalOffset"] for row in got if row["_corrupt"] is None]
    assert good == [row["physicalOffset"] for n, row in enumerate(rows) if n not in (50, 100, 150)]
    assert [row["physicalOffset"] for row in got if row["_corrupt"] is not None] == [
        rows[n]["physicalOffset"] for n in (50, 100, 150)
    ]


def test_damage_at_any_cut_is_met_once(store: Path) -> None:
    """Slices begin at records; what lies before the next one belongs to the slice before it."""
    rows = read(store).rows
    places = [row["physicalOffset"] for row in rows]
    for number in (0, 1, 120, 121, COUNT - 2):
        spoiled = store.parent / f"copy-{number}"
        shutil.copytree(store, spoiled)
        overwrite(spoiled, places[number] + 100, b"\xff")
        for count in (1, 2, 3, 7, 60):
            got = read(spoiled, onCorrupt="skip", minPartitions=str(count))
            assert sorted(got.column("physicalOffset")) == places[:number] + places[number + 1 :]
            assert [damage.start for damage in got.counts.damaged] == [places[number]], (number, count)


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 7])
def test_one_damaged_stretch_is_one_row(store: Path, use: UseWay, slices: int) -> None:
    """Records of every queue are lost to it, and which slice has them is different for each queue."""
    use("queue")
    rows = read(store).rows
    start, end = rows[120]["physicalOffset"], rows[140]["physicalOffset"]
    assert file_of(store, start)[0] == file_of(store, end)[0]
    overwrite(store, start + 4, b"\xff" * (end - start - 8))
    got = read(store, topic="orders", onCorrupt="rows", minPartitions=str(slices)).rows
    assert [(row["physicalOffset"], row["size"]) for row in got if row["_corrupt"]] == [(start, end - start)]
    orders = [row["physicalOffset"] for row in rows if row["topic"] == "orders"]
    good = [place for place in orders if not start <= place < end]
    assert sorted(row["physicalOffset"] for row in got if not row["_corrupt"]) == good


def test_bodies_that_cannot_be_decompressed(make_store: StoreMaker) -> None:
    """The sum is right, the bytes are no zlib: damage like any other."""
    good = [Message("orders", b"plain"), Message("orders", b"no zlib", sys_flag=0x1), Message("orders", b"plain too")]
    store = make_store(good)
    with pytest.raises(CorruptFrame):
        read(store)
    rows = read(store, onCorrupt="rows").rows
    assert [row["body"] for row in rows if row["_corrupt"] is None] == [b"plain", b"plain too"]
    assert sum(row["_corrupt"] is not None for row in rows) == 1
    assert read(store, onCorrupt="skip").column("body") == [b"plain", b"plain too"]
    assert [row["body"] for row in read(store, decompress="false").rows][1] == b"no zlib"
    # Who does not ask for bodies does not meet it.
    assert read(store, schema=["queueOffset"]).column("queueOffset") == [0, 1, 2]


# -- derived files that are wrong ----------------------------------------------------------------------------------


def queue_file(store: Path, topic: str = "orders", queue_id: int = 0) -> Path:
    return sorted((store / "consumequeue" / topic / str(queue_id)).iterdir())[0]


def put_entries(store: Path, entries: dict[int, bytes]) -> None:
    """Overwrite entries of the first queue of orders."""
    file = queue_file(store)
    data = bytearray(file.read_bytes())
    for number, entry in entries.items():
        data[20 * number : 20 * (number + 1)] = entry
    file.write_bytes(data)


def entry_at(store: Path, number: int) -> bytes:
    return queue_file(store).read_bytes()[20 * number : 20 * (number + 1)]


@pytest.mark.parametrize("what", ["zeros", "other record", "past the log", "wrong size", "negative", "blank"])
def test_entries_that_lead_nowhere(store: Path, use: UseWay, what: str) -> None:
    """The record is found between its neighbours, once."""
    use("queue")
    expected = sorted(read(store, topic="orders").column("physicalOffset"))
    planned = [reader_of(store, topic="orders", subExpression=tags).partitions() for tags in ("*", "t1 || t2")]
    entry = {
        "zeros": bytes(20),
        "other record": entry_at(store, 30),
        "past the log": struct.pack(">qiq", 1 << 40, 300, 0),
        "wrong size": entry_at(store, 10)[:8] + struct.pack(">iq", 299, 0),
        "negative": struct.pack(">qiq", -5, -7, 0),
        "blank": struct.pack(">qiq", 0, 0x7FFF_FFFF, 0),
    }[what]
    tagged = set(places_of(planned[1]))
    put_entries(store, dict.fromkeys((10, 11, 40), entry))
    counts = Counts()
    assert places_of(planned[0], counts) == expected
    assert counts.damaged == []
    if what in ("zeros", "blank"):  # Else the tag's code in the entry is what it is, and rules the record out.
        assert set(places_of(planned[1])) == tagged


@pytest.mark.parametrize("slices", [1, 5])
def test_lost_entries_at_the_edges_of_slices(store: Path, use: UseWay, slices: int) -> None:
    use("queue")
    expected = sorted(read(store, topic="orders").column("physicalOffset"))
    planned = reader_of(store, topic="orders", minPartitions=str(slices)).partitions()
    assert len(planned) == slices
    put_entries(store, dict.fromkeys((0, 14, 15, 16, 29, 30, 45, 60, 74), bytes(20)))
    counts = Counts()
    assert places_of(planned, counts) == expected
    # A few neighbours are passed on the way, not the whole log for each.
    assert counts.bytes_read < 2 * sum(read(store).column("size"))


def test_queue_files_that_go_while_the_read_is_under_way(store: Path, use: UseWay) -> None:
    use("queue")
    expected = sorted(read(store, topic="orders").column("physicalOffset"))
    planned = reader_of(store, topic="orders", minPartitions="3").partitions()
    shutil.rmtree(store / "consumequeue")
    assert places_of(planned) == expected


def test_entries_not_written_yet(store: Path, use: UseWay) -> None:
    """The last entries of each queue are still to come: their records are found behind the last one known."""
    use("queue")
    expected = sorted(read(store, topic="orders").column("physicalOffset"))
    planned = reader_of(store, topic="orders").partitions()
    put_entries(store, dict.fromkeys(range(70, 75), bytes(20)))
    counts = Counts()
    assert places_of(planned, counts) == expected
    assert counts.bytes_read < 0.7 * sum(read(store).column("size"))


@pytest.mark.parametrize("family", ["consumequeue", "index", "config", "checkpoint"])
def test_missing_derived_files_change_nothing(store: Path, family: str) -> None:
    options = [{"topic": "orders"}, {"keys": "k77"}, {"subExpression": "t1"}]
    expected = [sorted(read(store, **one).column("physicalOffset")) for one in options]
    path = store / family
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    assert [sorted(read(store, **one).column("physicalOffset")) for one in options] == expected


def test_a_wrong_index_entry_is_no_row(store: Path) -> None:
    """Places from the index are only candidates: every record is compared with the key."""
    got = read(store, keys="k100")
    assert (got.methods, got.column("keys")) == ({"places"}, ["k100"])
    assert got.counts.records <= 3
    damaged = spoil(store, 100)
    with pytest.raises(CorruptFrame):
        read(store, keys="k100")
    skipped = read(store, keys="k100", onCorrupt="skip")
    assert skipped.rows == []
    assert [damage.start for damage in skipped.counts.damaged] == damaged


# -- retention and other losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_log_file_that_goes_while_the_read_is_under_way(store: Path, use: UseWay, way: str) -> None:
    use(way)
    expected = read(store, topic="orders").column("physicalOffset")
    first_end = int(segment(store, 1).name)
    strict, lenient = reader_of(store, topic="orders"), reader_of(store, topic="orders", failOnDataLoss="false")
    slices, lenient_slices = strict.partitions(), lenient.partitions()
    segment(store, 0).unlink()
    with pytest.raises(DataLost) as raised:
        places_of(slices)
    assert "failOnDataLoss=false" in str(raised.value)
    counts = Counts()
    assert places_of(lenient_slices, counts) == [place for place in sorted(expected) if place >= first_end]
    assert counts.damaged_bytes > 0


def test_log_files_deleted_before_the_read(store: Path) -> None:
    expected = read(store).column("physicalOffset")
    segment(store, 0).unlink()
    start = int(segment(store, 0).name)
    assert read(store).column("physicalOffset") == [place for place in expected if place >= start]
    got = read(store, topic="returns").column("physicalOffset")
    assert got
    assert min(got) >= start
    with pytest.raises(DataLost) as raised:
        read(store, topic="orders", startingOffsets='{"orders": {"0": 0}}')
    assert "orders queue 0" in str(raised.value)
    assert "is gone" in str(raised.value)
    lenient = read(store, topic="orders", startingOffsets='{"orders": {"0": 0}}', failOnDataLoss="false")
    assert min(lenient.column("physicalOffset")) >= start


def test_a_log_file_missing_in_the_middle_is_known_before_any_task(store: Path) -> None:
    expected = read(store).column("physicalOffset")
    gone = segment(store, 1)
    start, end = int(gone.name), int(segment(store, 2).name)
    gone.unlink()
    with pytest.raises(DataLost) as raised:
        reader_of(store).partitions()
    assert f"bytes {start} to {end} of the log are missing" in str(raised.value)
    got = read(store, failOnDataLoss="false")
    assert got.column("physicalOffset") == [place for place in expected if not start <= place < end]
    rows = read(store, failOnDataLoss="false", onCorrupt="rows").rows
    assert [(row["physicalOffset"], row["size"]) for row in rows if row["_corrupt"]] == [(start, end - start)]


def test_a_store_that_a_worker_does_not_see(store: Path) -> None:
    slices = reader_of(store).partitions()
    store.rename(store.parent / "elsewhere")
    with pytest.raises(StorePathInvalid) as raised:
        list(read_slice(slices[0]))
    assert "mount it at the same path on every machine" in str(raised.value)


def test_rolled_files(make_store: StoreMaker) -> None:
    """Many small files, and records that fill a file to the last byte."""
    store = make_store(messages(1000), segment_bytes=4096)
    assert len(list((store / "commitlog").iterdir())) > 80
    for count in (1, 4, 50):
        assert read(store, minPartitions=str(count)).column("keys") == [f"k{n}" for n in range(1000)]


# -- a store that is being written ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_store_is_read_while_it_is_written(tmp_path: Path, use: UseWay, way: str) -> None:
    """Whatever was appended before a read is planned is in it, in order, and nothing is there twice."""
    use(way)
    builder = StoreBuilder(tmp_path / "live", segment_bytes=64 << 10)
    with builder.open() as store:
        for done in range(0, 2000, 250):
            store.append_many(
                Message("orders", BODY, queue_id=n % 3, tags="t", keys=[f"k{n}"]) for n in range(done, done + 250)
            )
            got = read(builder.root, topic="orders")
            assert sorted(int(key[1:]) for key in got.column("keys")) == list(range(done + 250))
            rows = sorted(zip(got.column("queueId"), got.column("queueOffset"), strict=True))
            assert len(set(rows)) == len(rows)


def test_a_read_keeps_to_what_was_there_when_it_was_planned(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "live", segment_bytes=64 << 10)
    with builder.open() as store:
        store.append_many(messages(100))
        slices = reader_of(builder.root).partitions()
        store.append_many(messages(100))
        assert sum(batch.num_rows for one in slices for batch in read_slice(one)) == 100
