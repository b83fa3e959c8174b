"""Streams with topic options, and what they remember of a store: topics that are deleted and made again lose no row
unnoticed, and records that were lost before they were read are no loss."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import DataLost
from embermq.inspect.snapshot import Survey
from embermq.spark.planning import plan
from embermq.spark.planning.plan import LogCut
from embermq.spark.reading.slice_rows import Slice
from embermq.spark.streaming import stream_queues
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.stream_drive import Drive

pytestmark = pytest.mark.extended


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def put(store: MessageStore, word: str, count: int, topic: str = "orders", first: int = 0) -> None:
    store.append_many([Message(topic, b"%s %d" % (word.encode(), n), queue_id=0) for n in range(first, first + count)])
    store.wait_for_dispatch()


def bodies(word: str, count: int, first: int = 0) -> list[bytes]:
    return [b"%s %d" % (word.encode(), n) for n in range(first, first + count)]


def shown(drive: Drive) -> list[bytes]:
    return [row[3] for row in drive.rows]


def drive_of(builder: StoreBuilder, **options: object) -> Drive:
    return Drive(builder.root, **({"startingOffsets": "earliest", "topic": "orders"} | options))


# -- topics that were deleted and made again -----------------------------------------------------------------------


@pytest.mark.parametrize("new", [1, 4, 5, 6, 40])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 5}, {"maxOffsetsPerTrigger": 2}])
def test_however_much_a_topic_has_when_it_is_read_again(
    builder: StoreBuilder, new: int, limit: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer, as many or more than were read of it before; all read, or only some."""
    with builder.open() as store:
        put(store, "old", 5)
        put(store, "x", 1, "other")
        drive = drive_of(builder, **limit)
        drive.step()
        seen = shown(drive)
        assert seen == bodies("old", min(5, limit.get("maxOffsetsPerTrigger", 5)))
        store.delete_topic("orders")
        put(store, "new", new)
        restarted = drive_of(builder, **limit)
        restarted.offset = drive.offset
        for one in (drive, restarted):
            with pytest.raises(DataLost, match="orders queue 0"):
                one.step()
        drive.restart(failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            drive.run()
        assert shown(drive) == seen + bodies("new", new)
        assert "was deleted" in caplog.text
        drive.restart(failOnDataLoss="true")
        put(store, "more", 3)
        drive.run()
        assert shown(drive) == seen + bodies("new", new) + bodies("more", 3)


def test_a_deletion_of_which_there_is_no_note(builder: StoreBuilder) -> None:
    """As Apache RocketMQ does it."""
    with builder.open() as store:
        put(store, "old", 5)
        drive = drive_of(builder)
        drive.run()
        assert store.engine.queues is not None
        store.engine.queues.discard("orders", 0)
        store.engine.writer.adopt_offsets([("orders", 0, 0)])
        put(store, "new", 9)
        with pytest.raises(DataLost):
            drive.step()
        drive.restart(failOnDataLoss="false")
        drive.run()
    assert shown(drive) == bodies("old", 5) + bodies("new", 9)


def test_records_too_long_to_be_remembered(builder: StoreBuilder) -> None:
    """Then the end of the log is, as long as it has a shorter one."""
    with StoreBuilder(builder.root).open() as store:
        store.append_many([Message("orders", bytes(100_000), queue_id=0) for _ in range(3)])
        put(store, "x", 1, "other")
        drive = drive_of(builder)
        assert drive.step() == 3
        store.delete_topic("orders")
        put(store, "new", 5)
        with pytest.raises(DataLost):
            drive.step()


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 12),
        ({"maxOffsetsPerTrigger": 2}, 12),
        ({"maxBytesPerTrigger": 1}, 12),
        ({"startingOffsets": '{"orders": {"0": 3}, "other": {"0": 1}}'}, 8),
        ({"startingOffsets": "latest"}, 0),
    ],
)
def test_a_deletion_before_the_stream_began_is_no_loss(
    builder: StoreBuilder, options: dict[str, object], count: int
) -> None:
    with builder.open() as store:
        put(store, "old", 5)
        put(store, "x", 4, "other")
        store.delete_topic("orders")
        put(store, "new", 8)
        drive = drive_of(builder, **({"topic": "orders,other"} | options))
        drive.begin()
        drive.restart()
        drive.run()
        assert len(drive.rows) == count
        put(store, "new", 2, first=8)
        drive.restart()
        drive.run()
        assert shown(drive)[count:] == bodies("new", 2, 8)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_not_there_for_a_while(builder: StoreBuilder, fail: str) -> None:
    """While other topics were read: nothing of what it was counts when it comes again."""
    with builder.open() as store:
        put(store, "old", 5)
        put(store, "x", 1, "other")
        drive = drive_of(builder, topic="orders,other", failOnDataLoss=fail)
        assert drive.step() == 6
        store.delete_topic("orders")
        assert drive.step() == 0
        put(store, "x", 3, "other")
        assert drive.step() == 3
        put(store, "new", 8)
        put(store, "x", 3, "other")
        drive.restart()
        assert drive.step() == 11
    assert [body for body in shown(drive) if not body.startswith(b"x")] == bodies("old", 5) + bodies("new", 8)


def test_a_topic_made_again_between_planning_and_reading(builder: StoreBuilder) -> None:
    """Other rows than were planned are not read in their place."""
    with builder.open() as store:
        put(store, "old", 5)
        drive = drive_of(builder)
        end = drive.plan()
        store.delete_topic("orders")
        put(store, "new", 8)
        drive.restart()
        with pytest.raises(DataLost):
            drive.read(end)
        drive.restart(failOnDataLoss="false")
        assert drive.read(end) == []
        drive.commit(end)
        drive.run()
    assert shown(drive) == bodies("new", 8)


def test_another_store_has_other_queues(builder: StoreBuilder) -> None:
    """Offsets of a queue that the old store had and the new one gets later."""
    with builder.open() as store:
        put(store, "old", 5)
    drive = Drive(builder.root, startingOffsets="earliest", subscribePattern="orders|other", failOnDataLoss="false")
    drive.run()
    shutil.rmtree(builder.root)
    with builder.open() as store:
        put(store, "x", 2, "other")
        drive.restart()
        drive.run()
        put(store, "new", 8)
        drive.run()
    assert shown(drive) == bodies("old", 5) + bodies("x", 2) + bodies("new", 8)


def test_topics_that_options_leave_out_for_a_while(builder: StoreBuilder) -> None:
    """They are gone on with; but not if they were made again."""
    with builder.open() as store:
        for topic in ("orders", "kept", "gone"):
            put(store, topic, 5, topic)
        drive = drive_of(builder, topic="orders,kept,gone", maxOffsetsPerTrigger=9)
        drive.step()
        assert len(drive.rows) == 9
        store.delete_topic("gone")
        put(store, "new", 8, "gone")
        drive.restart(topic="orders")
        drive.run()
        assert len(drive.rows) == 11
        drive.restart(topic="orders,kept,gone")
        drive.run()
    rows = shown(drive)
    assert sorted(body for body in rows if body.startswith(b"kept")) == bodies("kept", 5)
    assert [body for body in rows if body.startswith(b"new")] == bodies("new", 8)


# -- crashes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"topic": "orders"}, {}, {"topic": "orders", "rest": True}])
def test_records_lost_before_they_were_read_are_no_loss(
    builder: StoreBuilder, tmp_path: Path, options: dict[str, object]
) -> None:
    """A limited stream has not come to them yet, or they are of a topic it does not read."""
    given = {"maxOffsetsPerTrigger": 2, "startingOffsets": "earliest"} | options
    rest = given.pop("rest", False)
    with builder.open() as store:
        put(store, "m", 2 if rest else 5)
    shutil.copytree(builder.root, tmp_path / "saved")
    with builder.open() as store:
        put(store, "lost", 5, "other" if rest else "orders")
    drive = Drive(builder.root, **given)
    assert drive.step() == 2
    shutil.rmtree(builder.root)
    shutil.copytree(tmp_path / "saved", builder.root)
    with builder.open() as store:
        put(store, "late", 5)
    drive.restart()
    drive.run()
    assert shown(drive) == bodies("m", 2 if rest else 5) + bodies("late", 5)


def test_records_lost_after_they_were_read_are_a_loss(builder: StoreBuilder, tmp_path: Path) -> None:
    with builder.open() as store:
        put(store, "m", 5)
    shutil.copytree(builder.root, tmp_path / "saved")
    with builder.open() as store:
        put(store, "lost", 5)
    drive = drive_of(builder, maxOffsetsPerTrigger=6)
    assert drive.step() == 6
    shutil.rmtree(builder.root)
    shutil.copytree(tmp_path / "saved", builder.root)
    with builder.open() as store:
        put(store, "late", 5)
    drive.restart()
    with pytest.raises(DataLost):
        drive.step()


def test_while_entries_are_in_no_file_yet(builder: StoreBuilder) -> None:
    """The place is looked up in the log then."""
    with builder.open() as store:
        put(store, "m", 9)
    shutil.rmtree(builder.root / "consumequeue")
    drive = drive_of(builder, maxOffsetsPerTrigger=4)
    drive.step()
    survey = Survey.open(builder.root)
    (one,) = json.loads(drive.offset)["stores"].values()
    entry = survey.entries("orders", 0, 3, 4)[0]
    assert one["identity"] == survey.identity_at(int(entry["physical_offset"]) + int(entry["size"]))


def test_checkpoints_that_remember_the_end_of_the_log(builder: StoreBuilder) -> None:
    """As they once did; a new life is known by them as well."""
    with builder.open() as store:
        put(store, "m", 9)
        put(store, "x", 3, "other")
        drive = drive_of(builder, maxOffsetsPerTrigger=4)
        drive.step()
        offset = json.loads(drive.offset)
        for one in offset["stores"].values():
            one["identity"] = Survey.open(builder.root).identity_at(store.max_physical)
        drive.offset = json.dumps(offset)
        drive.restart()
        drive.run()
        assert shown(drive) == bodies("m", 9)
        offset["topics"]["orders"] = {name: {"0": 4} for name in offset["stores"]}
        drive.offset = json.dumps(offset)
        store.delete_topic("orders")
        put(store, "new", 12)
        drive.restart()
        with pytest.raises(DataLost):
            drive.step()


# -- queue files that are of no use --------------------------------------------------------------------------------


def test_tags_of_parked_messages(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their entries have the time they are due where others have the hash of a tag."""
    with StoreBuilder(builder.root, delayed_delivery=False).open() as store:
        for n in range(60):
            store.append(Message("bulk", bytes(500)))
            if n % 10 == 0:
                store.append(Message("orders", b"late %d" % n, tags="paid", delay_level=18))
        store.wait_for_dispatch()
    options = {"topic": "SCHEDULE_TOPIC_XXXX", "includeSystemTopics": "true", "subExpression": "paid"}
    for near in (stream_queues.NEAR_BYTES, -1):
        monkeypatch.setattr(stream_queues, "NEAR_BYTES", near)
        drive = drive_of(builder, **options)
        assert drive.step() == 6


def test_damage_as_rows_is_read_in_the_order_of_the_log(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """By queue, slices that miss records of one damaged stretch would each report it."""
    with builder.open() as store:
        put(store, "m", 9)
    monkeypatch.setattr(stream_queues, "NEAR_BYTES", -1)
    monkeypatch.setattr(plan, "JUMP_BYTES", -(1 << 20))  # By queue, if at all.
    drive = drive_of(builder, onCorrupt="rows")
    end = drive.plan()
    slices = drive.reader.partitions(json.loads(drive.offset), json.loads(end))
    assert all(isinstance(one, Slice) and isinstance(one.cut, LogCut) for one in slices)
