"""Ship: what comes out at the other end is what went in, whatever happened in between. Into a local directory."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from embermq import Message
from embermq.errors import CorruptFrame, DataLost, OptionInvalid, StoreError, StorePathInvalid, StoreReplaced
from embermq.inspect.snapshot import Survey
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.spark.jobs import ship as job
from embermq.spark.jobs import ship_pieces, ship_store
from embermq.spark.planning.stores import find_stores
from embermq.spark.shipped.manifests import HEAD, KEEP_MS, newest_manifest
from embermq.spark.shipped.places import Place
from embermq.spark.shipped.surveys import ShippedSurvey
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.support import golden
from tests.support.shipping import NO_SPARK, objects_in, read_at, rows_of, run_here, ship

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 128 << 10


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)


def messages(start: int, end: int, topic: str = "orders") -> list[Message]:
    return [
        Message(topic, f"{n:06}".encode() * 80, tags=("paid", "sent")[n % 2], keys=[f"o-{n}"], queue_id=n % 3)
        for n in range(start, end)
    ]


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """A closed store of some log files; orders first, then returns."""
    made = StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)
    with made.open() as store:
        store.append_many(messages(0, 400))
        store.append_many(messages(0, 300, "returns"))
    return made


def assert_same(store: Path, target: Path | str, **options: str) -> int:
    """Rows of the shipped store are those of the directory; how many."""
    here, there = rows_of(read_at(store, **options)), rows_of(read_at(target, **options))
    assert there == here
    return len(there)


def test_round_trip(builder: StoreBuilder, tmp_path: Path) -> None:
    target = tmp_path / "far"
    done = ship(builder.root, target)
    survey = Survey.open(builder.root)
    assert (done.start, done.end, done.records) == (0, survey.log_end, 700)
    assert done.objects == len([one for one in survey.segments if one.start < survey.log_end])
    assert assert_same(builder.root, target) == 700
    assert assert_same(builder.root, target / "broker-a", topic="returns", queues="1") == 100
    assert assert_same(builder.root, target, startingOffsets='{"orders": {"0": 100, "1": -2, "2": 133}}') > 0
    assert assert_same(builder.root, target, topic="orders", subExpression="paid") == 200
    assert assert_same(builder.root, target, keys="o-17") == 2
    assert {row["brokerName"] for row in read_at(target).rows} == {"broker-a"}
    # A log file is shipped as it is.
    sealed = survey.segments[0]
    assert (target / "broker-a" / "commitlog" / sealed.path.name).read_bytes() == sealed.path.read_bytes()


def test_entries_and_times_of_a_fresh_look(tmp_path: Path) -> None:
    """Each asked of a look that has not read anything yet."""
    clock, made = ManualClock(1_800_000_000_000), StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)
    with StoreBuilder(made.root, clock=clock, segment_bytes=SEGMENT_BYTES).open() as store:
        for message in messages(0, 300):
            store.append(message)
            clock.advance(ms=10)
    ship(made.root, tmp_path / "far")
    (place,) = find_stores([str(tmp_path / "far")], shipped=True)
    here = Survey.open(made.root)
    for offset in (0, 7, 60, 99):
        found, expected = place.survey().entries("orders", 1, offset, 100), here.entries("orders", 1, offset, 100)
        assert len(found) == 100 - offset
        assert found.tolist() == expected.tolist()
    for time_ms in (0, 15, 500, 1_234, 2_985, 9_000):
        at = clock.now_ms() - 3_000 + time_ms
        assert place.survey().offset_at("orders", 1, at) == here.offset_at("orders", 1, at), time_ms
    for physical_offset in (0, 1, 20_000, here.log_end - 700, here.log_end):
        expected_offset = here.offset_from("orders", 1, physical_offset)
        assert place.survey().offset_from("orders", 1, physical_offset) == expected_offset


def test_back_into_a_store(builder: StoreBuilder, tmp_path: Path) -> None:
    """As docs/format/shipped.md says: log files copied back, parts of the tail one behind the other."""
    ship(builder.root, tmp_path / "far", tail=False)
    with builder.open() as store:
        store.append(Message("orders", b"in one part"))
        store.flush()
        ship(builder.root, tmp_path / "far")
        store.append(Message("orders", b"in another"))
        store.flush()
        ship(builder.root, tmp_path / "far")
    shutil.copytree(tmp_path / "far" / "broker-a" / "commitlog", tmp_path / "back" / "commitlog")
    (tail,) = (tmp_path / "far" / "broker-a" / "tail").iterdir()
    parts = sorted(part for part in tail.iterdir() if not part.suffix)
    assert len(parts) == 2
    whole = b"".join(part.read_bytes() for part in parts)
    (tmp_path / "back" / "commitlog" / tail.name).write_bytes(whole.ljust(SEGMENT_BYTES, b"\0"))
    report = rebuild(tmp_path / "back", builder.settings)
    assert report.records == 702, report
    assert assert_same(builder.root, tmp_path / "back") == 702


@pytest.mark.parametrize("name", [name for name in golden.ALL_STORES if name != "default-size"])
def test_golden_stores(name: str, golden_store: Callable[[str], Path], tmp_path: Path) -> None:
    """Of RocketMQ: everything it stores, what no consumer sees included."""
    store = golden_store(name)
    ship(store, tmp_path / "far")
    (place,) = find_stores([str(store)])
    assert assert_same(store, tmp_path / "far", includeSystemTopics="true", onCorrupt="rows") > 0
    here, there = read_at(store, onCorrupt="skip"), read_at(tmp_path / "far", onCorrupt="skip")
    assert [row["brokerName"] for row in there.rows] == [place.broker_name] * len(here.rows)
    for topic in sorted({row["topic"] for row in here.rows})[:3]:
        assert_same(store, tmp_path / "far", topic=topic, onCorrupt="skip")


def test_only_what_is_new(builder: StoreBuilder, tmp_path: Path) -> None:
    """Again and again while the store is written: nothing twice, and one object in the end."""
    target, folder = tmp_path / "far", tmp_path / "far" / "broker-a"
    ends, last = [], -1
    for turn in range(8):
        with builder.open() as store:
            store.append_many(messages(400 + 40 * turn, 440 + 40 * turn))
            store.flush()
            before = objects_in(folder) if folder.exists() else {}
            done = ship(builder.root, target)
            assert done.start >= last or done.start % SEGMENT_BYTES == 0
            assert done.end == Survey.open(builder.root).log_end
            after = objects_in(folder)
            assert {name: after[name] for name in before if name in after} == before, "written objects stay"
            again = ship(builder.root, target)
            assert (again.objects, again.start, again.manifest) == (0, done.end, done.manifest)
            assert objects_in(folder) == after
        last = done.end
        ends.append(done.end)
        assert_same(builder.root, target)
    assert len(set(ends)) == 8
    manifest = newest_manifest(Place(str(folder)))
    assert manifest is not None
    assert [one.is_sealed for one in manifest.segments] == [True] * (len(manifest.segments) - 1) + [False]
    assert all(len(one.parts) == 1 for one in manifest.segments[:-1])


def test_sealed_files_only(builder: StoreBuilder, tmp_path: Path) -> None:
    done = ship(builder.root, tmp_path / "far", tail=False)
    assert done.end % SEGMENT_BYTES == 0
    assert done.end < Survey.open(builder.root).log_end
    shipped = rows_of(read_at(tmp_path / "far"))
    assert shipped == rows_of(read_at(builder.root))[: len(shipped)]
    assert done.records == len(shipped) > 0


def test_tail_of_many_parts_is_joined(builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ship_pieces, "TIER_PARTS", 3)
    monkeypatch.setattr(ship_pieces, "TIER_BYTES", 2_000)
    counts = []
    with builder.open() as store:
        for number in range(12):
            store.append(Message("few", b"%d" % number))
            store.flush()
            ship(builder.root, tmp_path / "far")
            manifest = newest_manifest(Place(str(tmp_path / "far" / "broker-a")))
            assert manifest is not None
            parts = manifest.segments[-1].parts
            assert all(before.end == after.start for before, after in pairwise(parts))
            counts.append(len(parts))
            assert_same(builder.root, tmp_path / "far", topic="few")
    assert max(counts) < 6
    assert any(after < before for before, after in pairwise(counts)), "some became one"
    assert_same(builder.root, tmp_path / "far")


def test_what_counts_no_longer_goes_after_a_day(builder: StoreBuilder, tmp_path: Path) -> None:
    clock, target = ManualClock(1_800_000_000_000), tmp_path / "far"
    ship(builder.root, target, clock=clock)
    (part,) = [name for name in objects_in(target) if "/tail/" in name and not Path(name).suffix]
    old = read_at(target).slices
    with builder.open() as store:
        store.append_many(messages(400, 800))
    ship(builder.root, target, clock=clock)
    assert part in objects_in(target), "a reader may have planned with it"
    assert sum(len(one.segments) for one in old) > 0
    clock.advance(ms=KEEP_MS + 1)
    with builder.open() as store:
        store.append(Message("orders", b"one more"))
    ship(builder.root, target, clock=clock)
    assert part not in objects_in(target)
    assert_same(builder.root, target)


class Killed(Exception):
    """Stands for the end of the process."""


def test_killed_anywhere(builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write, before and half-way through it: what is there reads well, and the next run ends the work."""
    target, folder = tmp_path / "far", tmp_path / "far" / "broker-a"
    run_here(monkeypatch, parallel=1)
    real_write = Place.write
    left = [0]

    def write(place: Place, name: str, chunks: Iterable[bytes]) -> None:
        if left[0] == 0:
            half = folder / (name + ".half")
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half a")
            raise Killed
        left[0] -= 1
        real_write(place, name, chunks)

    monkeypatch.setattr(Place, "write", write)
    kills = 0
    while True:
        left[0] = kills % 11
        before = newest_manifest(Place(str(folder)))
        try:
            ship(builder.root, target)
            break
        except Killed:
            kills += 1
            assert kills < 100
        after = newest_manifest(Place(str(folder)))
        assert (after.end if after else 0) >= (before.end if before else 0)
        if after is not None:
            shown = rows_of(read_at(target))
            assert shown == rows_of(read_at(builder.root))[: len(shown)]
    assert kills > 5
    left[0] = 1000
    with builder.open() as store:
        store.append(Message("orders", b"one more"))
    ship(builder.root, target)
    assert assert_same(builder.root, target) == 701
    assert not [name for name in objects_in(folder) if name.endswith(".half")]


def test_damaged_store(builder: StoreBuilder, tmp_path: Path) -> None:
    """Damage is shipped as it is, counted, and met by whoever reads."""
    file = sorted((builder.root / "commitlog").iterdir())[1]
    with file.open("r+b") as opened:
        opened.seek(30_000)
        opened.write(os.urandom(9_000))
    done = ship(builder.root, tmp_path / "far")
    assert done.damaged_bytes >= 9_000
    for how in ("rows", "skip"):
        assert_same(builder.root, tmp_path / "far", onCorrupt=how)
        assert_same(builder.root, tmp_path / "far", onCorrupt=how, topic="orders")
    there = read_at(tmp_path / "far", onCorrupt="skip", topic="orders", queues="1")
    assert there.counts.damaged_bytes == done.damaged_bytes
    with pytest.raises(CorruptFrame, match="set onCorrupt=skip"):
        read_at(tmp_path / "far")


def test_source_is_gone(builder: StoreBuilder, tmp_path: Path) -> None:
    """Retention takes the source; the shipped store has it all."""
    expected = rows_of(read_at(builder.root))
    ship(builder.root, tmp_path / "far")
    for file in sorted((builder.root / "commitlog").iterdir())[:2]:
        file.unlink()
    assert len(rows_of(read_at(builder.root))) < len(expected)
    with builder.open() as store:
        store.append_many(messages(400, 420))
    ship(builder.root, tmp_path / "far")
    assert rows_of(read_at(tmp_path / "far"))[: len(expected)] == expected
    shutil.rmtree(builder.root)
    assert len(rows_of(read_at(tmp_path / "far"))) == len(expected) + 20


def test_gap(builder: StoreBuilder, tmp_path: Path) -> None:
    """What retention took before it was shipped is said, and then a gap."""
    target = tmp_path / "far"
    ship(builder.root, target)
    with builder.open() as store:
        store.append_many(messages(400, 1000))
    for file in sorted((builder.root / "commitlog").iterdir())[:-2]:
        file.unlink()
    before = objects_in(target)
    with pytest.raises(DataLost, match=r"the log now begins at .*--ignore-data-loss"):
        ship(builder.root, target)
    assert objects_in(target) == before
    ship(builder.root, target, ignore_data_loss=True)
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        read_at(target)
    rows = rows_of(read_at(target, failOnDataLoss="false"))
    assert rows[-1] == rows_of(read_at(builder.root))[-1]
    assert len(rows) > 700


def test_another_store(builder: StoreBuilder, tmp_path: Path) -> None:
    target = tmp_path / "far"
    ship(builder.root, target)
    before = objects_in(target)
    other = StoreBuilder(tmp_path / "other" / "broker-a", segment_bytes=SEGMENT_BYTES)
    with other.open() as store:
        store.append_many(messages(1000, 1400))
    with pytest.raises(StoreReplaced, match="begins with other records; use another target"):
        ship(other.root, target)
    renamed = target / "broker-b"
    (target / "broker-a").rename(renamed)
    shutil.copytree(builder.root, tmp_path / "broker-b")
    with pytest.raises(StoreReplaced, match="it holds what broker-a shipped"):
        ship(tmp_path / "broker-b", target)
    assert {name.replace("broker-b/", "broker-a/"): data for name, data in objects_in(target).items()} == before


def test_end_lost_in_a_crash(builder: StoreBuilder, tmp_path: Path) -> None:
    """An end that was shipped, lost and written again: said, and shipped again under other names."""
    target = tmp_path / "far"
    copy = tmp_path / "earlier"
    shutil.copytree(builder.root, copy)
    with builder.open() as store:
        store.append_many(messages(400, 410))
    ship(builder.root, target)
    shutil.rmtree(builder.root)
    copy.rename(builder.root)
    with builder.open() as store:
        store.append_many(messages(900, 930))
    before = objects_in(target)
    with pytest.raises(DataLost, match="its end was lost in a crash"):
        ship(builder.root, target)
    assert objects_in(target) == before
    ship(builder.root, target, ignore_data_loss=True)
    after = objects_in(target)
    assert {name: after[name] for name in before} == before
    assert assert_same(builder.root, target) == 730


def test_mistakes(builder: StoreBuilder, tmp_path: Path) -> None:
    """Clear, and nothing written."""
    with pytest.raises(OptionInvalid, match="no place for files"):
        ship(builder.root, "gopher://far/away")
    inhabited = tmp_path / "home" / "broker-a"
    inhabited.mkdir(parents=True)
    (inhabited / "letter.txt").write_text("dear")
    with pytest.raises(OptionInvalid, match=rf"option to = .*no {HEAD} \(letter.txt\); choose another place"):
        ship(builder.root, tmp_path / "home")
    assert list(objects_in(inhabited)) == ["letter.txt"]
    with pytest.raises(OptionInvalid, match="choose another place"):
        ship(builder.root, builder.root.parent)  # The folder of the target would be the store itself.
    ship(builder.root, tmp_path / "far")
    with pytest.raises(OptionInvalid, match="not with shipped stores"):
        ship(tmp_path / "far", tmp_path / "farther")
    assert not (tmp_path / "farther").exists()


def test_all_stores_are_looked_at_before_anything_is_written(builder: StoreBuilder, tmp_path: Path) -> None:
    other = StoreBuilder(tmp_path / "broker-b", segment_bytes=SEGMENT_BYTES)
    with other.open() as store:
        store.append_many(messages(0, 10))
    (tmp_path / "far" / "broker-b").mkdir(parents=True)
    (tmp_path / "far" / "broker-b" / "letter.txt").write_text("dear")
    paths = [str(builder.root), str(other.root)]
    with pytest.raises(OptionInvalid):
        job.ship(NO_SPARK, paths, str(tmp_path / "far"))
    assert list(objects_in(tmp_path / "far")) == ["broker-b/letter.txt"]
    (tmp_path / "far" / "broker-b" / "letter.txt").unlink()
    assert [one.broker_name for one in job.ship(NO_SPARK, paths, str(tmp_path / "far"), tail=True)] == [
        "broker-a",
        "broker-b",
    ]
    both = read_at(tmp_path / "far")
    assert sorted(set(both.column("brokerName"))) == ["broker-a", "broker-b"]
    assert len(both.rows) == 710


def test_target_that_cannot_be_written(builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorePathInvalid, match=r"file/broker-a/.*: (Not a directory|Cannot|Failed)"):
        ship(builder.root, tmp_path / "file")
    real_put = Place._put

    def put(place: Place, name: str, chunks: Iterable[bytes]) -> None:
        if "/commitlog/" in name:
            raise PermissionError(13, "Permission denied", name)
        real_put(place, name, chunks)

    monkeypatch.setattr(Place, "_put", put)
    with pytest.raises(StorePathInvalid, match=r"broker-a/commitlog/0+: Permission denied"):
        ship(builder.root, tmp_path / "far")
    assert not (tmp_path / "far" / "broker-a" / "manifests").exists()
    with pytest.raises(StorePathInvalid, match="nothing was shipped here yet"):
        read_at(tmp_path / "far")


def test_manifest_edited_by_hand(builder: StoreBuilder, tmp_path: Path) -> None:
    ship(builder.root, tmp_path / "far")
    newest = max((tmp_path / "far" / "broker-a" / "manifests").iterdir())
    text = json.loads(newest.read_bytes())
    text["segments"][0]["parts"][0]["records"] += 1
    newest.write_text(json.dumps(text))
    before = objects_in(tmp_path / "far")
    for attempt in (lambda: ship(builder.root, tmp_path / "far"), lambda: read_at(tmp_path / "far")):
        with pytest.raises(StoreError, match=f"{newest}: was changed after it was written"):
            attempt()
    newest.write_text("{")
    with pytest.raises(StoreError, match="is no manifest"):
        read_at(tmp_path / "far")
    newest.unlink()  # Back to the one before.
    assert objects_in(tmp_path / "far").keys() == before.keys() - {str(newest.relative_to(tmp_path / "far"))}
    ship(builder.root, tmp_path / "far")
    assert_same(builder.root, tmp_path / "far")


def test_object_that_does_not_arrive_whole(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read back before the manifest names it."""
    real_put = Place._put

    def put(place: Place, name: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        broken = data[:-1] + bytes([data[-1] ^ 1]) if "/commitlog/" in name else data
        real_put(place, name, [broken])

    monkeypatch.setattr(Place, "_put", put)
    with pytest.raises(StorePathInvalid, match=r"commitlog/0+: is not what was written"):
        ship(builder.root, tmp_path / "far")
    assert not (tmp_path / "far" / "broker-a" / "manifests").exists()
    monkeypatch.undo()
    run_here(monkeypatch)
    ship(builder.root, tmp_path / "far")
    assert_same(builder.root, tmp_path / "far")


def test_objects_that_are_gone(builder: StoreBuilder, tmp_path: Path) -> None:
    ship(builder.root, tmp_path / "far")
    first = tmp_path / "far" / "broker-a" / "commitlog" / f"{0:020}"
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(DataLost, match="bytes 0 to"):
        read_at(tmp_path / "far")
    left = rows_of(read_at(tmp_path / "far", failOnDataLoss="false"))
    assert 0 < len(left) < 700
    first.write_bytes(kept)
    summary = tmp_path / "far" / "broker-a" / "summaries" / f"{0:020}.parquet"
    summary.unlink()
    assert assert_same(builder.root, tmp_path / "far") == 700, "nobody asked for it"
    with pytest.raises(StoreError, match=f"{summary}: is gone"):
        read_at(tmp_path / "far", topic="orders")


def test_config_files(builder: StoreBuilder, tmp_path: Path) -> None:
    """The newest of each, unless it is just being written; old ones go after a day."""
    clock, config = ManualClock(1_800_000_000_000), builder.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text('{"offsetTable": {"orders@shop": {"0": 5}}}')
    ship(builder.root, tmp_path / "far", clock=clock)
    (place,) = find_stores([str(tmp_path / "far")], shipped=True)
    assert place.survey().config_text("consumerOffset.json") == '{"offsetTable": {"orders@shop": {"0": 5}}}'
    assert place.survey().config_text("delayOffset.json") is None
    (config / "consumerOffset.json").write_text('{"offsetTable": {"orders@')
    before = objects_in(tmp_path / "far")
    ship(builder.root, tmp_path / "far", clock=clock)
    assert objects_in(tmp_path / "far") == before
    clock.advance(ms=KEEP_MS + 1)
    (config / "consumerOffset.json").write_text('{"offsetTable": {"orders@shop": {"0": 6}}}')
    ship(builder.root, tmp_path / "far", clock=clock)
    assert place.survey().config_text("consumerOffset.json") == '{"offsetTable": {"orders@shop": {"0": 6}}}'
    clock.advance(ms=KEEP_MS + 1)
    (config / "delayOffset.json").write_text('{"offsetTable": {"1": 6}}')
    ship(builder.root, tmp_path / "far", clock=clock)
    names = [name for name in objects_in(tmp_path / "far") if "/config/" in name]
    assert len(names) == 2, names


def test_a_target_that_was_wiped_and_shipped_anew(builder: StoreBuilder, tmp_path: Path) -> None:
    target = tmp_path / "far"
    ship(builder.root, target)
    survey = ShippedSurvey.open_at(Place(str(target / "broker-a")))
    assert {topic for topic, _ in survey.queues()} == {"orders", "returns"}
    assert survey.find_key("orders", "o-5", -1, 1 << 62)
    shutil.rmtree(target)
    shutil.rmtree(builder.root)
    with builder.open() as store:
        store.append_many(messages(0, 700, "payments"))
    ship(builder.root, target)
    survey.refresh()
    assert {topic for topic, _ in survey.queues()} == {"payments"}
    assert survey.find_key("orders", "o-5", -1, 1 << 62) == []
    assert len(survey.find_key("payments", "o-5", -1, 1 << 62) or []) == 1


@pytest.mark.parametrize("kind", ["OptionInvalid", "StorePathInvalid", "DataLost", "KeyError", "annotations"])
def test_what_a_worker_says_is_said_by_the_driver(kind: str) -> None:
    error = ship_store.failure_of(ship_pieces.FailedPiece(kind, "no place for files"))
    assert isinstance(error, StoreError)
    assert str(error) == "no place for files"
