"""Deleted topics in shipped stores: a copy answers what the store answers, or would, had it been cut where the copy
ends. Tasks run here, without Spark, but for the last test."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import embermq.spark
from embermq import Message, MessageStore
from embermq.columns.plain.select import Selection
from embermq.errors import StoreError, TopicUnknown
from embermq.inspect.snapshot import DamagedRange, QueueSpan, Survey
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.verify.store_check import verify
from embermq.spark.jobs import ship_follow
from embermq.spark.jobs.ship_follow import keep_shipping
from embermq.spark.options.read_options import parse
from embermq.spark.planning.stores import find_stores
from embermq.spark.planning.topic_incarnations import newest_lives
from embermq.spark.reading.slice_rows import chooser
from embermq.spark.reading.views import register
from embermq.spark.shipped.deletions import DELETED_TOPICS_FILE, Deletions, merged
from embermq.spark.shipped.manifests import Manifest, manifest_name, newest_manifest, write_manifest
from embermq.spark.shipped.places import Place
from embermq.spark.streaming.stream_queues import QueueFollower
from embermq.spark.streaming.stream_stores import FollowedStore
from embermq.store.layout.deleted_topics import load_deleted_topics, parse_deleted_topics, to_bytes
from embermq.testing.builder import StoreBuilder
from tests.support.kernels import force_compiled, force_plain
from tests.support.records import LogOfRecords
from tests.support.shipping import NO_SPARK, objects_in, read_at, rows_of, run_here, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 64 << 10


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)


def put(store: MessageStore, topic: str, count: int, word: str, size: int = 200) -> None:
    store.append_many(
        [
            Message(topic, word.encode().ljust(size), keys=[f"k-{n}", f"{word}-{n}"], tags="ab"[n % 2], queue_id=n % 2)
            for n in range(count)
        ]
    )
    store.flush()


def live(store: MessageStore) -> None:
    """`gone` is deleted; `again` is deleted and used again, `twice` twice; `steady` lies before and after them."""
    put(store, "steady", 200, "s")
    put(store, "again", 60, "old")
    put(store, "gone", 30, "old")
    put(store, "twice", 20, "first")
    store.delete_topic("twice")
    put(store, "twice", 15, "second")
    for topic in ("gone", "again", "twice"):
        store.delete_topic(topic)
    put(store, "again", 20, "new")
    put(store, "twice", 10, "third")
    put(store, "steady", 200, "t")
    store.wait_for_dispatch()


def manifest_at(target: Path) -> Manifest:
    found = newest_manifest(Place(str(target / "broker-a")))
    assert found is not None
    return found


def noted_at(target: Path) -> dict[str, int]:
    return Deletions(Place(str(target / "broker-a"))).of(manifest_at(target))


def spans_at(path: Path) -> dict[tuple[str, int], QueueSpan]:
    (place,) = find_stores([str(path)], shipped=True)
    return place.survey().queues()


def topics_at(path: Path) -> set[str]:
    return {topic for topic, _ in spans_at(path)}


FILTERS: list[dict[str, str]] = [
    {},
    {"topic": "again"},
    {"topic": "steady,again"},
    {"subscribePattern": ".*"},
    {"topic": "again,twice,steady"},
    {"keys": "k-1"},
    {"keys": "old-1"},
    {"keys": "new-3,third-3"},
    {"topic": "steady,twice", "keys": "k-1"},
    {"subExpression": "a"},
    {"topic": "again,steady", "subExpression": "b", "queues": "1"},
    {"topic": "again", "includeSystemTopics": "true"},
    {"includeSystemTopics": "true"},
    {"startingOffsets": '{"again": {"0": 3, "1": -2}}'},
    {"topic": "steady,again", "startingTimestamp": "0"},
]


def assert_same(store: Path, target: Path) -> None:
    """Whatever is asked, store and copy answer the same."""
    assert spans_at(target) == spans_at(store)
    for limits in FILTERS:
        here, there = rows_of(read_at(store, **limits)), rows_of(read_at(target, **limits))
        assert there == here, limits


# -- what is read ------------------------------------------------------------------------------------------------------


def test_a_copy_answers_what_the_store_answers(builder: StoreBuilder, tmp_path: Path) -> None:
    with builder.open() as store:
        live(store)
        assert set(store.topics()) == {"steady", "again", "twice"}
        ship(builder.root, tmp_path / "while-written")
    ship(builder.root, tmp_path / "far")
    for target in (tmp_path / "while-written", tmp_path / "far"):
        assert_same(builder.root, target)
        assert noted_at(target) == load_deleted_topics(builder.files, builder.root)
        for source in (builder.root, target):
            with pytest.raises(TopicUnknown, match="'gone'"):
                read_at(source, topic="gone")
    # The log as it lies there has them all; queues have what came after.
    for options, gone, again in (({}, 0, 20), ({"includeSystemTopics": "true"}, 30, 80)):
        whole = read_at(tmp_path / "far", **options)
        assert sum(row["topic"] == "gone" for row in whole.rows) == gone
        assert sum(row["topic"] == "again" for row in whole.rows) == again
    both = read_at(tmp_path / "far", topic="again,twice,steady")
    words = [bytes(row["body"]).strip() for row in both.rows]
    assert {word: words.count(word) for word in set(words)} == {b"s": 200, b"t": 200, b"new": 20, b"third": 10}
    # Without queue files the store is walked: the same.
    shutil.rmtree(builder.root / "consumequeue")
    shutil.rmtree(builder.root / "index")
    assert_same(builder.root, tmp_path / "far")


def test_both_ways_to_read_a_store_agree(builder: StoreBuilder) -> None:
    """Through queues and in order: which one is cheaper must not decide what a topic has."""
    with builder.open() as store:
        live(store)
        put(store, "filler", 300, "f", 3000)
        put(store, "steady", 1, "end")
    by_log = read_at(builder.root, topic="steady,again,twice,filler")
    by_queue = read_at(builder.root, topic="steady,again,twice")
    assert (by_log.methods, by_queue.methods) == ({"log"}, {"queue"})
    assert [row for row in rows_of(by_log) if row["topic"] != "filler"] == rows_of(by_queue)
    assert len(by_queue.rows) == 431


def test_stream(builder: StoreBuilder, tmp_path: Path) -> None:
    """By queues: from the beginning, and a topic that goes while it is followed."""
    with builder.open() as store:
        live(store)
        ship(builder.root, tmp_path / "far")
        follower, followed = follow(tmp_path / "far", subscribePattern=".*")
        start = follower.initial()
        end = follower.until(start, None, limited=False)
        (work,) = follower.works(start, end)
        assert {request.topic for request in work.request.queues or ()} == {"steady", "again", "twice"}
        assert chosen_words(work.survey, work.selection) == {"s", "t", "new", "third"}
        store.delete_topic("steady")
        ship(builder.root, tmp_path / "far")
        followed.refresh()
        assert list(follower.works(end, follower.until(end, None, limited=False))) == []
        assert {span.topic for span in followed.wanted_queues()} == {"again", "twice"}


def follow(path: Path, **options: str) -> tuple[QueueFollower, FollowedStore]:
    (place,) = find_stores([str(path)], shipped=True)
    parsed = parse({"paths": json.dumps([str(path)]), "startingoffsets": "earliest", **options}, streaming=True)
    store = FollowedStore(place, parsed)
    return QueueFollower([store], parsed), store


def chosen_words(survey: Survey, selection: Selection) -> set[str]:
    """Which messages of a log a selection takes."""
    found: set[str] = set()
    for scanned in survey.scan(0, survey.log_end):
        assert not isinstance(scanned, DamagedRange)
        rows = chooser(selection, 1)(scanned)
        assert rows is not None
        found |= {word_of(scanned.keys(row)) for row in rows.tolist()}
    return found


def word_of(keys: Iterable[str]) -> str:
    (word,) = {key.split("-")[0] for key in keys if re.fullmatch(r"[a-z]+-\d+", key)} - {"k"}
    return word


@pytest.mark.parametrize("force", [force_plain, force_compiled])
def test_old_lives_are_told_by_their_place(
    force: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the plain way and by the kernel; of topics with a name as long, of several at once, of none."""
    force(monkeypatch)
    log = LogOfRecords(1000)
    names = ["ab", "ac", "ab", "tü", "a", "ab", "ac", "tü", "ab"]
    for topic in names:
        log.append(topic, 0, 0)
    places, records = log.offsets, log.columns()
    everything = Selection(queues={(topic, 0): (0, 1) for topic in names})

    def rows(deleted: dict[str, int], selection: Selection = everything) -> list[int]:
        kept = chooser(newest_lives(selection, deleted), 100)(records)
        assert kept is not None
        return [int(row) for row in kept]

    assert newest_lives(everything, {"other": 1 << 40}) is everything
    assert rows({"ab": places[5], "other": 1 << 40}, Selection()) == [1, 3, 4, 5, 6, 7, 8]
    assert rows({}) == list(range(9))
    assert rows({"ab": places[5]}) == [1, 3, 4, 5, 6, 7, 8]
    assert rows({"ab": places[8], "tü": places[4], "other": 1 << 40}) == [1, 4, 6, 7, 8]
    assert rows({"ab": 1000, "ac": log.end}) == [0, 2, 3, 4, 5, 7, 8]
    assert rows(dict.fromkeys(names, log.end)) == []
    assert rows({"ab": places[5]}, Selection(queues={("ab", 0): (0, 1)}, physical_end=places[8])) == [5]


# -- what is shipped ---------------------------------------------------------------------------------------------------


def test_every_manifest_of_a_turn_knows(builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever counts, no deleted topic is in it: also while the copy has not come to where it was deleted."""
    run_here(monkeypatch, parallel=1)
    with builder.open() as store:
        put(store, "again", 50, "older")
        put(store, "steady", 400, "r")
        live(store)
    shown, write = [], Place.write

    def look(place: Place, name: str, chunks: Any) -> None:
        write(place, name, chunks)
        if name.startswith("manifests/"):
            shown.append((manifest_at(tmp_path / "far").end, topics_at(tmp_path / "far")))

    monkeypatch.setattr(Place, "write", look)
    ship(builder.root, tmp_path / "far")
    places = load_deleted_topics(builder.files, builder.root)
    assert len(shown) >= 2
    assert shown[0][0] < places["again"] < shown[-1][0]
    assert shown[0][1] == {"steady"}
    assert shown[-1][1] == {"steady", "again", "twice"}
    assert len([name for name in objects_in(tmp_path / "far") if name.endswith(DELETED_TOPICS_FILE)]) == 1


def test_deleted_behind_what_is_shipped(builder: StoreBuilder, tmp_path: Path) -> None:
    """Whole log files only: the copy answers as the store would, had it been cut where the copy ends."""
    with builder.open() as store:
        put(store, "again", 150, "old")
        put(store, "steady", 150, "s")
        put(store, "again", 10, "late")
        store.delete_topic("again")
        put(store, "again", 5, "new")
    done = ship(builder.root, tmp_path / "far", tail=False)
    place = load_deleted_topics(builder.files, builder.root)["again"]
    assert 0 < done.end < place
    cut = Path(shutil.copytree(builder.root, tmp_path / "cut"))
    for folder in ("consumequeue", "index"):
        shutil.rmtree(cut / folder)
    for file in (cut / "commitlog").iterdir():
        if int(file.name) >= done.end:
            file.unlink()
    (cut / "embermq.state").unlink(missing_ok=True)
    assert spans_at(tmp_path / "far") == spans_at(cut)
    assert topics_at(cut) == {"steady"}
    ship(builder.root, tmp_path / "far")
    assert [span.max_offset for (topic, _), span in spans_at(tmp_path / "far").items() if topic == "again"] == [3, 2]
    assert rows_of(read_at(tmp_path / "far", topic="again,steady")) == rows_of(
        read_at(builder.root, topic="again,steady")
    )


def test_a_deletion_alone_is_something_new(builder: StoreBuilder, tmp_path: Path) -> None:
    with builder.open() as store:
        put(store, "gone", 30, "old")
        put(store, "steady", 30, "s")
        before = ship(builder.root, tmp_path / "far")
        assert DELETED_TOPICS_FILE not in manifest_at(tmp_path / "far").config
        store.delete_topic("gone")
        done = ship(builder.root, tmp_path / "far")
        assert (done.objects, done.manifest) == (0, before.manifest + 1)
        assert topics_at(tmp_path / "far") == {"steady"}
        assert ship(builder.root, tmp_path / "far").manifest == done.manifest


def test_while_it_is_followed(builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the next round, also when nothing else is new; and then nothing more is written."""
    monkeypatch.setattr(ship_follow, "_wait", lambda seconds, stop: None)
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, "gone", 30, "old")
        put(store, "steady", 30, "s")
        rounds = keep_shipping(NO_SPARK, [str(builder.root)], str(target))
        assert next(rounds).objects == 1
        (place,) = find_stores([str(target)], shipped=True)
        survey = place.survey()
        assert {topic for topic, _ in survey.queues()} == {"gone", "steady"}
        store.delete_topic("gone")
        done = next(rounds)
        assert (done.failure, done.objects) == (None, 0)
        survey.refresh()
        assert {topic for topic, _ in survey.queues()} == {"steady"}
        number = manifest_at(target).number
        assert next(rounds).failure is None
        assert manifest_at(target).number == number
        store.delete_topic("steady")
        put(store, "gone", 2, "new")
        next(rounds)
        survey.refresh()
        assert {(topic, span.max_offset) for (topic, _), span in survey.queues().items()} == {("gone", 1)}
        assert [len(read_at(source, topic="gone").rows) for source in (builder.root, target)] == [2, 2]


def test_what_the_store_forgets_with_its_log_the_copy_keeps(tmp_path: Path) -> None:
    """The note of a store is dropped once its log begins behind it; the copy has the records still."""
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)
    with builder.open() as store:
        put(store, "gone", 30, "old")
        put(store, "again", 30, "old")
        store.delete_topic("gone")
        store.delete_topic("again")
        put(store, "steady", 600, "s")
    ship(builder.root, tmp_path / "far")
    sorted((builder.root / "commitlog").iterdir())[0].unlink()
    with builder.open() as store:
        put(store, "again", 3, "new")
        put(store, "other", 3, "old")
        store.delete_topic("other")
    assert list(load_deleted_topics(builder.files, builder.root)) == ["other"]
    ship(builder.root, tmp_path / "far")
    assert set(noted_at(tmp_path / "far")) == {"gone", "again", "other"}
    assert topics_at(tmp_path / "far") == {"steady", "again"}
    assert len(read_at(tmp_path / "far", topic="again,steady").rows) == 603
    number = manifest_at(tmp_path / "far").number
    assert ship(builder.root, tmp_path / "far").manifest == number, "and nothing new each time"


@pytest.mark.parametrize("keeps_note", [True, False])
def test_end_lost_in_a_crash(builder: StoreBuilder, tmp_path: Path, *, keeps_note: bool) -> None:
    """The store lowers the place to where its log ends now, or was put back to where it knows of no deletion."""
    with builder.open() as store:
        put(store, "again", 100, "old")
        put(store, "steady", 650, "s")
    shutil.copytree(builder.root, tmp_path / "earlier")
    with builder.open() as store:
        put(store, "steady", 10, "lost")
        store.delete_topic("again")
    ship(builder.root, tmp_path / "far")
    place = noted_at(tmp_path / "far")["again"]
    if keeps_note:
        shutil.copy(builder.root / DELETED_TOPICS_FILE, tmp_path / "earlier" / DELETED_TOPICS_FILE)
    shutil.rmtree(builder.root)
    (tmp_path / "earlier").rename(builder.root)
    with builder.open() as store:
        put(store, "again", 8, "new")
        put(store, "steady", 100, "t")
    ship(builder.root, tmp_path / "far", ignore_data_loss=True)
    assert noted_at(tmp_path / "far") == load_deleted_topics(builder.files, builder.root)
    assert noted_at(tmp_path / "far").get("again", 0) < place
    rows = rows_of(read_at(tmp_path / "far", topic="again,steady"))
    assert rows == rows_of(read_at(builder.root, topic="again,steady"))
    assert sum(row["topic"] == "again" for row in rows) == (8 if keeps_note else 108)
    assert spans_at(tmp_path / "far") == spans_at(builder.root)


def test_merged() -> None:
    assert merged({}, {}, 100, 0) == {}
    assert merged({"a": 50}, {"a": 90}, 100, 0) == {"a": 50}, "lowered by the store"
    assert merged({"a": 150}, {"a": 90}, 100, 0) == {"a": 150}, "deleted again"
    assert merged({"b": 5}, {"a": 40}, 100, 40) == {"a": 40, "b": 5}, "forgotten with the log"
    assert merged({}, {"a": 41}, 100, 40) == {}, "the store has what it is about, and knows of no deletion"
    assert merged({}, {"a": 170}, 0, 120) == {}, "nothing is left that it is about"
    assert merged({}, {"a": 170}, 100, 120) == {"a": 100}, "a gap: what comes after it is of a new life"


def test_back_into_a_store(builder: StoreBuilder, tmp_path: Path) -> None:
    """As docs/format/shipped.md says, with the note: a rebuild brings no deleted topic back."""
    with builder.open() as store:
        live(store)
        put(store, "steady", 200, "u")
    ship(builder.root, tmp_path / "far")
    far, back = tmp_path / "far" / "broker-a", tmp_path / "back"
    shutil.copytree(far / "commitlog", back / "commitlog")
    (tail,) = (far / "tail").iterdir()
    whole = b"".join(part.read_bytes() for part in sorted(tail.iterdir()) if not part.suffix)
    (back / "commitlog" / tail.name).write_bytes(whole.ljust(SEGMENT_BYTES, b"\0"))
    note = far / manifest_at(tmp_path / "far").config[DELETED_TOPICS_FILE].name
    assert note.read_bytes() == (builder.root / DELETED_TOPICS_FILE).read_bytes()
    shutil.copy(note, back / DELETED_TOPICS_FILE)
    rebuild(back, builder.settings)
    assert topics_at(back) == {"steady", "again", "twice"}
    assert spans_at(back) == spans_at(builder.root)
    assert verify(back).is_sound
    assert_same(back, tmp_path / "far")


# -- notes that are not there, or not right ----------------------------------------------------------------------------


@pytest.fixture
def shipped_note(builder: StoreBuilder, tmp_path: Path) -> Path:
    with builder.open() as store:
        live(store)
    ship(builder.root, tmp_path / "far")
    return tmp_path / "far" / "broker-a" / manifest_at(tmp_path / "far").config[DELETED_TOPICS_FILE].name


def test_a_manifest_without_a_note_knows_of_no_deletion(
    builder: StoreBuilder, shipped_note: Path, tmp_path: Path
) -> None:
    """As those that were written before there was one; the next turn adds it."""
    place, manifest = Place(str(tmp_path / "far" / "broker-a")), manifest_at(tmp_path / "far")
    config = {name: one for name, one in manifest.config.items() if name != DELETED_TOPICS_FILE}
    place.remove(manifest_name(manifest.number))
    old = write_manifest(place, msgspec.structs.replace(manifest, config=config))
    assert DELETED_TOPICS_FILE not in place.read(manifest_name(old.number)).decode()
    assert noted_at(tmp_path / "far") == {}
    assert topics_at(tmp_path / "far") == {"steady", "gone", "again", "twice"}
    assert len(read_at(tmp_path / "far", topic="gone").rows) == 30
    ship(builder.root, tmp_path / "far")
    assert shipped_note.exists()
    assert_same(builder.root, tmp_path / "far")


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_note_that_is_gone_or_damaged(
    builder: StoreBuilder, shipped_note: Path, tmp_path: Path, *, is_gone: bool
) -> None:
    """Is said where it is needed; the log with all there is in it can be read."""
    data = shipped_note.read_bytes()
    shipped_note.unlink() if is_gone else shipped_note.write_bytes(data.replace(b"gone", b"bone"))
    what = f"{shipped_note}: is {'gone' if is_gone else 'damaged'}; restore it, or ship the store anew"
    for attempt in (lambda: read_at(tmp_path / "far", topic="steady"), lambda: ship(builder.root, tmp_path / "far")):
        with pytest.raises(StoreError, match=what):
            attempt()
    every = {"includeSystemTopics": "true"}
    assert len(read_at(tmp_path / "far", **every).rows) == len(read_at(builder.root, **every).rows)
    shipped_note.write_bytes(data)
    assert_same(builder.root, tmp_path / "far")


def test_bytes_of_a_note() -> None:
    note = {"b": 7, "a": 1 << 40, "ü": 0}
    assert parse_deleted_topics(to_bytes(note)) == note
    assert to_bytes(note) == to_bytes(dict(sorted(note.items())))
    for wrong in (b"", b"{", b"\xff", b'{"topics":[]}', to_bytes(note).replace(b'"b",7', b'"b",8')):
        assert parse_deleted_topics(wrong) is None


# -- with Spark --------------------------------------------------------------------------------------------------------


def test_store_and_copy_as_one_table(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """What the log has lost comes from the copy, without what was deleted."""
    far = tmp_path / "far"
    with builder.open() as store:
        live(store)
        put(store, "steady", 100, "u")
    whole = {topic: len(read_at(builder.root, topic=topic).rows) for topic in ("steady", "again", "twice")}
    ship(builder.root, far)
    sorted((builder.root / "commitlog").iterdir())[0].unlink()

    def count(**options: Any) -> int:
        return embermq.spark.table(spark, builder.root, shipped=str(far), **options).count()

    assert {topic: count(topic=topic) for topic in whole} == whole == {"steady": 500, "again": 20, "twice": 10}
    assert count(topic="steady,again") == 520
    assert count(keys=["old-1", "first-1", "new-1", "s-1"]) == 2
    with pytest.raises(TopicUnknown, match="gone"):
        count(topic="gone")
    assert register(spark, [str(builder.root)], shipped=str(far)) == ["messages", "again", "steady", "twice"]
    assert spark.read.format("rocketmq").option("subscribePattern", ".*").load(str(far)).count() == 530
