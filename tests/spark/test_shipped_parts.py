"""The parts of shipped stores by themselves: addresses, summaries, streams, which pieces to ship."""

import pickle
import random
from itertools import pairwise
from pathlib import Path

import pytest

from embermq import Message
from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.ship_pieces import TIER_BYTES, TIER_PARTS, find_pieces, tail_start, tier_of
from embermq.spark.planning.stores import find_stores
from embermq.spark.shipped.manifests import (
    Dropped,
    Manifest,
    ShippedObject,
    ShippedPart,
    ShippedSegment,
    still_kept,
)
from embermq.spark.shipped.places import Place, is_address, shown, without_secrets
from embermq.spark.shipped.streams import FIRST_BYTES, PIECE_BYTES, ObjectStream
from embermq.spark.shipped.summaries import SCHEMA, Summary, SummaryMaker, from_bytes, joined, to_bytes
from embermq.store.log.file_scan import DamagedRange, LogSegment
from embermq.testing.builder import StoreBuilder
from tests.support.records import START_MS, LogOfRecords

pytestmark = pytest.mark.extended

# -- addresses ---------------------------------------------------------------------------------------------------------


def test_addresses_are_shown_without_secrets() -> None:
    address = "s3://AKIA:s3cr3t@bucket/logs/x?endpoint_override=host:9000&secret_key=abc"
    assert shown(address) == "s3://bucket/logs/x"
    assert is_address(address)
    assert not any(map(is_address, ["/data/x", "C:/x", "file:///data/x", "data:x", "./s3:/x"]))
    assert shown("/data/x") == "/data/x"


def test_no_secret_in_any_error() -> None:
    for address in ("gopher://user:s3cr3t@host/x?key=s3cr3t", "s3://user:s3cr3t@bucket/x?secret_key=s3cr3t"):
        with pytest.raises(OptionInvalid) as refused:
            Place(address)
        assert "s3cr3t" not in str(refused.value)
    assert without_secrets("key abc of s3://AKIA:abc@b/x?token=t0k refused t0k", "s3://AKIA:abc@b/x?token=t0k") == (
        "key *** of s3://b/x refused ***"
    )
    with pytest.raises(OptionInvalid, match="two slashes"):
        find_stores(["s3:/bucket/x"])


def test_place(tmp_path: Path) -> None:
    place = pickle.loads(pickle.dumps(Place(str(tmp_path / "a")))).child("b%2Fc d")
    assert place.objects() == {}
    assert place.folders() == []
    assert place.size("x/y") is None
    place.write("x/y", [b"one ", b"two"])
    place.write("z", [b"z"])
    assert place.objects() == {"x/y": 7, "z": 1}
    assert place.objects("x") == {"x/y": 7}
    assert place.folders() == ["x"]
    assert place.read("x/y") == b"one two"
    with place.open("x/y") as file:
        assert place.read_at(file, "x/y", 3, 4) == b"two"
    assert (tmp_path / "a" / "b%2Fc d" / "x" / "y").exists()
    place.remove("x/y")
    place.remove("x/y")
    with pytest.raises(FileNotFoundError):
        place.read("x/y")
    with pytest.raises(StorePathInvalid, match=f"^{tmp_path}/a/b%2Fc d/z/under: "):
        place.write("z/under", [b""])


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def content(tmp_path: Path) -> tuple[Place, bytes]:
    data = random.Random(7).randbytes(3 * PIECE_BYTES + 12_345)
    (tmp_path / "object").write_bytes(data)
    return Place(str(tmp_path)), data


def test_stream_gives_the_bytes(content: tuple[Place, bytes]) -> None:
    place, data = content
    stream, chance = ObjectStream(place, "object", len(data), len(data)), random.Random(8)
    for _ in range(300):
        at = chance.choice([chance.randrange(len(data)), chance.randrange(200_000), len(data) - 5])
        for _ in range(chance.randrange(1, 5)):
            count = chance.choice([0, 8, 5_000, 70_000, 1 << 20])
            assert stream.read(count, at) == data[at : at + count]
            at += chance.choice([count, count // 2])
    stream.close()
    assert stream.read(10, 3) == data[3:13]
    stream.close()


def test_stream_reads_each_byte_once_and_little_ahead(content: tuple[Place, bytes]) -> None:
    place, data = content
    end = 2 * PIECE_BYTES
    stream = ObjectStream(place, "object", len(data), end)
    for at in range(0, end, 1 << 20):
        assert stream.read(1 << 20, at) == data[at : at + (1 << 20)]
    stream.close()
    assert stream.bytes_read == end
    jumping = ObjectStream(place, "object", len(data), len(data))
    for at in range(0, 10 * PIECE_BYTES // 4, PIECE_BYTES // 4):
        jumping.read(100, at)
    jumping.close()
    assert jumping.bytes_read <= 10 * FIRST_BYTES


def test_stream_of_an_object_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ObjectStream(Place(str(tmp_path)), "object", 10, 10).read(1, 0)


# -- summaries ---------------------------------------------------------------------------------------------------------


def summary_of(
    log: LogOfRecords, *steps: int, stretch_bytes: int = 1, damages: tuple[DamagedRange, ...] = ()
) -> Summary:
    """Of a log that came in batches of so many records; a stretch for each."""
    maker = SummaryMaker(log.start, log.end, stretch_bytes)
    for damage in damages:
        maker.take(damage)
    at = 0
    for step in steps:
        maker.take(log.columns(at, at + step))
        at += step
    return Summary([from_bytes(to_bytes(maker.table()))])


def test_queues_and_extents() -> None:
    log = LogOfRecords(1000)
    for number in range(4):
        log.append("orders", 0, 10 + number, store_ms=START_MS + number)
    for number in range(4):
        log.append("returns", 3, number, store_ms=START_MS + 100 + number)
    summary, places = summary_of(log, 2, 2, 2, 2), log.offsets
    queues = summary.queues()
    assert set(queues) == {("orders", 0), ("returns", 3)}
    orders = queues["orders", 0]
    assert (orders.min, orders.next, orders.first_physical, orders.end_physical) == (10, 14, 1000, places[4])
    assert (list(orders.mark_offsets), list(orders.mark_physicals)) == ([10, 12], [places[0], places[2]])
    assert summary.extents({("orders", 0): (0, 100)}, None, None) == [(1000, places[4])]
    assert summary.extents({("orders", 0): (12, 13)}, None, None) == [(places[2], places[4])]
    assert summary.extents({("orders", 0): (14, 20), ("none", 0): (0, 9)}, None, None) == []
    assert summary.extents({("orders", 0): (10, 11), ("returns", 3): (3, 4)}, None, None) == [
        (1000, places[2]),
        (places[6], log.end),
    ]
    assert summary.extents(None, START_MS + 100, None) == [(places[4], log.end)]
    assert summary.extents(None, START_MS + 1, START_MS + 3) == [(1000, places[4])]
    assert summary.extents(None, None, START_MS) == []


def test_queue_that_began_anew() -> None:
    """In the middle of a batch, between batches, and from one part to the next: what came before is in no queue."""
    log = LogOfRecords()
    for offset in (5, 6, 0, 1, 2, 0, 1):
        log.append("orders", 0, offset)
    places = log.offsets
    for steps, begun in (((7,), 5), ((3, 4), 5), ((5, 2), 5), ((2, 3), 2), ((3,), 2)):
        queue = summary_of(log.cut(sum(steps)), *steps).queues()["orders", 0]
        assert (queue.min, queue.first_physical) == (0, places[begun]), steps
    again = LogOfRecords(log.end)
    again.append("orders", 0, 0)
    one, other = SummaryMaker(0, log.end), SummaryMaker(again.start, again.end)
    one.take(log.columns())
    other.take(again.columns())
    queue = Summary([one.table(), other.table()]).queues()["orders", 0]
    assert (queue.min, queue.next, queue.first_physical) == (0, 1, again.start)


def test_what_is_in_no_queue_and_damage() -> None:
    """Prepared records make a stretch without queues; what is damaged may have been anything."""
    log = LogOfRecords()
    log.append("orders", 0, 0, sys_flag=4)
    log.append("orders", 0, 0)
    summary = summary_of(log, 1, 1, damages=(DamagedRange(0, 5, "bad"),))
    assert summary.queues()["orders", 0].first_physical == log.offsets[1]
    assert summary.extents({("orders", 0): (0, 1)}, None, None) == [(0, log.end)]
    assert summary.extents({("other", 0): (0, 1)}, None, None) == [(0, log.offsets[1])]
    assert Summary([SCHEMA.empty_table()]).queues() == {}
    assert Summary([]).extents({}, None, None) == []


def test_queues_as_a_survey_finds_them(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    chance = random.Random(3)
    with builder.open() as store:
        for number in range(600):
            store.append(Message(f"t{chance.randrange(5)}", b"x" * chance.randrange(900), queue_id=number % 3))
    survey = Survey.open(builder.root)
    maker = SummaryMaker(survey.log_min, survey.log_end, 20_000)
    for scanned in survey.scan(survey.log_min, survey.log_end, rows_max=50):
        maker.take(scanned)
    assert maker.records == 600
    assert {name: queue.span for name, queue in Summary([maker.table()]).queues().items()} == survey.queues()


def test_joined() -> None:
    assert joined([]) == []
    assert joined([(5, 6), (0, 2), (2, 3), (6, 9)]) == [(0, 3), (5, 9)]


# -- what to ship ------------------------------------------------------------------------------------------------------


def segments(*sizes: int) -> list[LogSegment]:
    return [LogSegment(Path(f"{100 * n:020}"), 100 * n, size) for n, size in enumerate(sizes)]


def shipped(start: int, *ends: int, is_sealed: bool = False) -> ShippedSegment:
    one = ShippedObject("x", 0, "")
    edges = [start, *ends]
    parts = [ShippedPart(a, b, one, one, 1, 0, 0, 0) for a, b in pairwise(edges)]
    return ShippedSegment(start, 100, is_sealed, parts)


def found(log: list[LogSegment], known: list[ShippedSegment], end: int, *, tail: bool) -> list[tuple[int, int, bool]]:
    pieces = find_pieces(log, known, end, "there", tail=tail)
    assert len({piece.name for piece in pieces} | {piece.summary_name for piece in pieces}) == 2 * len(pieces)
    return [(piece.start, piece.end, piece.is_sealed) for piece in pieces]


def test_pieces() -> None:
    log = segments(100, 100, 100)
    assert found(log, [], 150, tail=False) == [(0, 100, True)]
    assert found(log, [], 150, tail=True) == [(0, 100, True), (100, 150, False)]
    assert found(log, [shipped(0, 100, is_sealed=True)], 150, tail=False) == []
    known = [shipped(0, 100, is_sealed=True), shipped(100, 120, 150)]
    assert found(log, known, 150, tail=True) == []
    assert found(log, known, 140, tail=True) == [], "it is being recovered"
    assert found(log, known, 170, tail=True) == [(150, 170, False)]
    assert found(log, known, 170, tail=False) == []
    assert found(log, known, 230, tail=True) == [(100, 200, True), (200, 230, False)]
    assert found(log, known, 200, tail=True) == [(100, 200, True)]
    many = shipped(100, *range(101, 100 + TIER_PARTS))
    assert found(log, [shipped(0, 100, is_sealed=True), many], 190, tail=True) == [(100, 190, False)]
    few = shipped(100, *range(101, 99 + TIER_PARTS))
    assert found(log, [shipped(0, 100, is_sealed=True), few], 190, tail=True) == [(few.end, 190, False)]
    assert found(segments(60, 100), [], 130, tail=True) == [(0, 60, True), (100, 130, False)], "a file that was cut"


@pytest.mark.parametrize("most", [300, 40_000, 3 << 20, 200 << 20])
def test_parts_of_a_tail_stay_few_and_are_not_shipped_again_and_again(most: int) -> None:
    """Whatever comes in at a time, little or much, until the log file is full."""
    chance, end, sent, rounds = random.Random(most), 1000, 0, 0
    parts: list[ShippedPart] = []
    full = min(1 << 30, 20_000 * most)
    while end < 1000 + full:
        end += chance.randrange(1, most if chance.random() < 0.9 else 30 * most)
        start = tail_start(parts, 1000, end)
        parts = [part for part in parts if part.end <= start]
        assert (parts[-1].end if parts else 1000) == start, "without a gap"
        parts += shipped(start, end).parts
        sent, rounds = sent + end - start, rounds + 1
        assert len(parts) <= 42
    small = rounds * TIER_BYTES // TIER_PARTS  # what parts of the smallest size may take, little as it is
    assert sent <= (tier_of(full) + 1) * 1.2 * (end - 1000) + small


def test_what_is_kept_for_readers_of_older_manifests() -> None:
    hour = 3_600_000
    few = [Dropped(f"{n}", n * hour) for n in range(40)]
    assert [one.name for one in still_kept(few, 40 * hour)] == [f"{n}" for n in range(17, 40)], "a day"
    many = [Dropped(f"{n}", n * 10_000) for n in range(10_000)]
    now_ms = 10_000 * 10_000
    kept = still_kept(many, now_ms)
    assert len(kept) == 999, "about so many, if that is not too short"
    quick = [Dropped(f"{n}", n * 1_000) for n in range(100_000)]
    assert len(still_kept(quick, 100_000 * 1000)) == 3599, "an hour"
    assert still_kept([], 5) == []


def test_manifest_knows_when_it_was_edited() -> None:
    manifest = Manifest(3, 5, "broker-a", "-:-:-", [shipped(0, 100)]).sealed()
    assert manifest.sealed() == manifest
    assert manifest.end == 100
    assert Manifest(3, 5, "broker-b", "-:-:-", [shipped(0, 100)], crc=manifest.crc).sealed().crc != manifest.crc
