"""The stream reader, asked as Spark asks: every record once, through rolls, restarts, limits, losses."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.columns.plain.select import is_system_topic
from embermq.errors import DataLost, OptionInvalid, StorePathInvalid, StoreReplaced, TopicUnknown
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.spark.stream_drive import Drive, Row
from tests.support import golden
from tests.support.surveys import frames_of

MODES: dict[str, dict[str, Any]] = {
    "log": {},
    "topics": {"subscribePattern": ".*"},
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Without and with topic options."""
    return MODES[request.param]


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


@pytest.fixture
def store(builder: StoreBuilder) -> Iterator[MessageStore]:
    with builder.open() as opened:
        yield opened


def fill(store: MessageStore, count: int, first: int = 0) -> int:
    return numbered.append_until(store, first, first + count)


def visible(root: Path) -> list[Row]:
    """What a consumer would see, in the order of the log."""
    return [
        (one.topic, one.queue_id, one.queue_offset, bytes(one.body))
        for one in frames_of(root)
        if one.sys_flag & 4 == 0 and not is_system_topic(one.topic)
    ]


def check_rows(drive: Drive, root: Path) -> None:
    """Every visible record once; each queue in order."""
    expected = visible(root)
    assert Counter(drive.rows) == Counter(expected)
    for key in {row[:2] for row in expected}:
        offsets = [row[2] for row in drive.rows if row[:2] == key]
        assert offsets == sorted(offsets)


# -- everything once -----------------------------------------------------------------------------------------


def test_a_store_at_rest(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        fill(opened, 200)
    before = golden.tree_state(builder.root)
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    assert drive.run() == [len(visible(builder.root))]
    check_rows(drive, builder.root)
    assert drive.step() == 0
    assert golden.tree_state(builder.root) == before


def test_a_store_that_grows(builder: StoreBuilder, store: MessageStore, mode: dict[str, Any]) -> None:
    """New topics, queues and log files come while the stream runs."""
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    assert drive.step() == 0
    n = 0
    for round_ in range(8):
        n = fill(store, 25, n)
        store.append(Message(f"new{round_}", b"first of a topic", queue_id=round_))
        assert drive.step() > 0
        assert drive.step() == 0
    check_rows(drive, builder.root)
    assert len(list((builder.root / "commitlog").iterdir())) > 3


def test_beginning_with_the_latest(builder: StoreBuilder, store: MessageStore, mode: dict[str, Any]) -> None:
    n = fill(store, 50)
    old = visible(builder.root)
    drive = Drive(builder.root, **mode)
    assert drive.step() == 0
    fill(store, 50, n)
    drive.run()
    assert Counter(drive.rows) == Counter(visible(builder.root)) - Counter(old)


def test_beginning_with_a_time(tmp_path: Path, mode: dict[str, Any]) -> None:
    clock = ManualClock()
    builder = StoreBuilder(tmp_path / "store", clock=clock, **numbered.TINY)
    with builder.open() as opened:
        n = fill(opened, 40)
        old = visible(builder.root)
        clock.advance(s=60)
        middle = clock.now_ms()
        fill(opened, 40, n)
    drive = Drive(builder.root, startingTimestamp=middle, **mode)
    drive.run()
    assert Counter(drive.rows) == Counter(visible(builder.root)) - Counter(old)


def test_beginning_with_offsets(builder: StoreBuilder) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", b"%d" % n, queue_id=n % 2) for n in range(20)])
        opened.append_many([Message("u", b"%d" % n) for n in range(5)])
    drive = Drive(builder.root, startingOffsets='{"t": {"0": 7, "1": -2}}', topic="t")
    drive.run()
    assert Counter(row[:2] for row in drive.rows) == {("t", 0): 3, ("t", 1): 10}
    # Queues that are not named begin where a stream does by default: at the latest offset.
    drive = Drive(builder.root, startingOffsets='{"t": {"0": 7, "1": -1}}')
    drive.run()
    assert Counter(row[:2] for row in drive.rows) == {("t", 0): 3}


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_golden_stores(name: str, tmp_path: Path, mode: dict[str, Any]) -> None:
    root = golden.restore(name, tmp_path)
    before = golden.tree_state(root)
    drive = Drive(root, startingOffsets="earliest", decompress="false", maxOffsetsPerTrigger=37, **mode)
    sizes = drive.run()
    assert all(sizes)
    records = [one for one in golden.manifest(name).records if not one.blank]
    expected = Counter(
        (one.topic, one.queue_id, one.queue_offset)
        for one in records
        if one.sys_flag & 4 == 0 and not is_system_topic(one.topic)
    )
    assert Counter(row[:3] for row in drive.rows) == expected
    assert golden.tree_state(root) == before


def test_system_topics_when_asked_for(builder: StoreBuilder) -> None:
    with builder.open() as opened:
        fill(opened, 64)
    drive = Drive(builder.root, startingOffsets="earliest", includeSystemTopics="true")
    drive.run()
    assert len(drive.rows) == len(frames_of(builder.root))


def test_topics_queues_tags_and_keys(builder: StoreBuilder, store: MessageStore) -> None:
    filters: dict[str, tuple[dict[str, str], Any]] = {
        "topic": ({"topic": "Topic1"}, lambda row, n: row[0] == "Topic1"),
        "queues": ({"queues": '{"Topic0": [1]}'}, lambda row, n: row[:2] == ("Topic0", 1)),
        "tags": ({"subExpression": "tag1"}, lambda row, n: numbered.known(n).tags == "tag1"),
        "keys": ({"keys": "shared3"}, lambda row, n: "shared3" in numbered.known(n).keys),
        "both": (
            {"topic": "Topic0", "subExpression": "tag1 || tag2"},
            lambda row, n: row[0] == "Topic0" and numbered.known(n).tags in ("tag1", "tag2"),
        ),
    }
    n = fill(store, 32)
    drives = {
        name: Drive(builder.root, startingOffsets="earliest", **options) for name, (options, _) in filters.items()
    }
    for _ in range(3):
        for drive in drives.values():
            drive.step()
        n = fill(store, 32, n)
    for name, drive in drives.items():
        drive.run()
        wanted = [row for row in visible(builder.root) if filters[name][1](row, int(row[3].split(b"|")[0]))]
        assert wanted, name
        assert Counter(drive.rows) == Counter(wanted), name


def test_several_stores(tmp_path: Path, mode: dict[str, Any]) -> None:
    roots = []
    for name in ("broker-a", "broker-b", "broker-c"):
        builder = StoreBuilder(tmp_path / name, **numbered.TINY)
        with builder.open() as opened:
            fill(opened, 30 if name != "broker-c" else 90)
        roots.append(builder.root)
    drive = Drive(tmp_path / "broker-*", startingOffsets="earliest", maxOffsetsPerTrigger=20, **mode)
    drive.run()
    assert Counter(drive.rows) == sum((Counter(visible(root)) for root in roots), Counter())
    assert set(json.loads(drive.offset)["stores"]) == {"broker-a", "broker-b", "broker-c"}


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50, 100_000])
def test_no_more_rows_than_wanted(builder: StoreBuilder, limit: int) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", b"%d" % n * 30, queue_id=n % 3) for n in range(120)])
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    sizes = drive.run()
    assert max(sizes) == min(limit, 120)
    check_rows(drive, builder.root)
    drive = Drive(builder.root, startingOffsets="earliest", topic="t", maxOffsetsPerTrigger=limit)
    sizes = drive.run()
    assert max(sizes) <= max(limit + 2, 3)  # One of each queue at least.
    check_rows(drive, builder.root)


def test_no_more_bytes_than_wanted(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", bytes(200), queue_id=n % 3) for n in range(200)])
    size = frames_of(builder.root)[0].size
    drive = Drive(builder.root, startingOffsets="earliest", maxBytesPerTrigger=20 * size, **mode)
    sizes = drive.run()
    assert 9 <= len(sizes) <= 13
    assert max(sizes) <= 24
    check_rows(drive, builder.root)


def test_bytes_and_rows_together(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", bytes(200)) for n in range(100)])
    drive = Drive(builder.root, startingOffsets="earliest", maxBytesPerTrigger="1m", maxOffsetsPerTrigger=9, **mode)
    assert max(drive.run()) == 9
    drive = Drive(builder.root, startingOffsets="earliest", maxBytesPerTrigger=1, maxOffsetsPerTrigger=9, **mode)
    assert max(drive.run()) == 1


def test_limits_do_not_count_when_everything_is_asked_for(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", bytes(200)) for n in range(100)])
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=9, **mode)
    assert drive.step(everything=True) == 100


def test_waiting_for_enough_rows(
    builder: StoreBuilder, store: MessageStore, mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("embermq.spark.streaming.stream_limits.time.monotonic", lambda: now[0])
    drive = Drive(builder.root, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="10s", **mode)
    store.append_many([Message("t", b"x") for _ in range(30)])
    assert drive.step() == 0
    store.append_many([Message("t", b"x") for _ in range(19)])
    assert drive.step() == 0
    store.append_many([Message("t", b"x") for _ in range(1)])
    assert drive.step() == 50
    store.append_many([Message("t", b"x") for _ in range(5)])
    now[0] += 9
    assert drive.step() == 0
    now[0] += 2
    assert drive.step() == 5
    now[0] += 100
    assert drive.step() == 0


def test_available_now_ends_where_it_began(builder: StoreBuilder, store: MessageStore, mode: dict[str, Any]) -> None:
    n = fill(store, 60)
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=13, minOffsetsPerTrigger=5, **mode)
    drive.begin()
    drive.reader.prepareForTriggerAvailableNow()
    expected = visible(builder.root)
    n = fill(store, 60, n)
    store.append(Message("later", b"a new topic"))
    drive.run()
    assert Counter(drive.rows) == Counter(expected)
    # The next run, from the checkpoint, takes the rest.
    drive.restart()
    drive.reader.prepareForTriggerAvailableNow()
    expected = visible(builder.root)
    fill(store, 10, n)
    drive.run()
    assert Counter(drive.rows) == Counter(expected)


# -- restarts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill", ["planned", "read", "committed"])
def test_restarts_lose_and_repeat_nothing(
    builder: StoreBuilder, store: MessageStore, mode: dict[str, Any], kill: str
) -> None:
    """The driver dies after each step of each batch; a batch that was planned is read again, the same."""
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=11, **mode)
    n = 0
    for _ in range(12):
        n = fill(store, 16, n)
        end = drive.plan()
        if kill == "planned":
            drive.restart()
        rows = drive.read(end)
        if kill == "read":
            fill(store, 4, n)
            n += 4
            drive.restart()
            assert drive.read(end) == rows
        drive.rows += rows
        drive.commit(end)
        if kill == "committed":
            drive.restart()
    drive.run()
    check_rows(drive, builder.root)


def test_offsets_are_as_documented(builder: StoreBuilder) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", b"x", queue_id=n % 2) for n in range(5)])
        opened.append(Message("u", b"x"))
        end = opened.max_physical
    drive = Drive(builder.root, startingOffsets="earliest")
    drive.run()
    offset = json.loads(drive.offset)
    ((name, one),) = offset["stores"].items()
    assert offset == {"stores": {name: {"identity": one["identity"], "position": end}}}
    drive = Drive(builder.root, startingOffsets="earliest", topic="t,u")
    drive.run()
    offset = json.loads(drive.offset)
    assert sorted(offset) == ["stores", "topics"]
    ((name, one),) = offset["stores"].items()
    assert list(one) == ["identity"]
    assert offset["topics"] == {"t": {name: {"0": 3, "1": 2}}, "u": {name: {"0": 1}}}


def test_a_checkpoint_of_the_other_kind_is_refused(builder: StoreBuilder) -> None:
    with builder.open() as opened:
        opened.append(Message("t", b"x"))
    for before, after in (({}, {"topic": "t"}), ({"topic": "t"}, {})):
        drive = Drive(builder.root, startingOffsets="earliest", **before)
        drive.run()
        other = Drive(builder.root, **after)
        other.offset = drive.offset
        with pytest.raises(OptionInvalid) as raised:
            other.step()
        assert raised.value.option == "checkpointLocation"
    other = Drive(builder.root)
    other.offset = '{"kafka": {"0": 3}}'
    with pytest.raises(OptionInvalid):
        other.step()


# -- loss ----------------------------------------------------------------------------------------------------


def drop_first_files(root: Path, count: int) -> None:
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()


def test_retention_before_reading_fails(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        fill(opened, 150)
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=20, **mode)
    drive.step()
    drop_first_files(builder.root, 3)
    with pytest.raises(DataLost) as raised:
        drive.step()
    assert "failOnDataLoss=false" in str(raised.value)
    drive.restart()
    with pytest.raises(DataLost):
        drive.step()


def test_retention_before_reading_is_passed_over(
    builder: StoreBuilder, mode: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with builder.open() as opened:
        fill(opened, 150)
    drive = Drive(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=20, failOnDataLoss="false", **mode)
    drive.step()
    seen = list(drive.rows)
    drop_first_files(builder.root, 3)
    with caplog.at_level(logging.WARNING):
        drive.run()
    assert "deleted before they were read" in caplog.text
    left = visible(builder.root)
    assert Counter(drive.rows[len(seen) :]) == Counter(left) - Counter(seen)


def test_retention_between_planning_and_reading(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    """The offset was written down, the files are gone: fails, or reads what is left."""
    for fail in ("true", "false"):
        with builder.open() as opened:
            fill(opened, 150)
        drive = Drive(builder.root, startingOffsets="earliest", failOnDataLoss=fail, **mode)
        end = drive.plan()
        drop_first_files(builder.root, 2)
        drive.restart()
        if fail == "true":
            with pytest.raises(DataLost):
                drive.read(end)
        else:
            assert Counter(drive.read(end)) == Counter(visible(builder.root))
        shutil.rmtree(builder.root)


def test_what_was_read_may_go(builder: StoreBuilder, store: MessageStore, mode: dict[str, Any]) -> None:
    """Retention behind the reader is no loss."""
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    n = 0
    expected: list[Row] = []
    for _ in range(6):
        n = fill(store, 40, n)
        expected += [row for row in visible(builder.root) if row not in set(expected)]
        drive.run()
        store.wait_for_dispatch()
        while len(store.engine.log.segments.all) > 1:
            store.engine.log.segments.delete_first()
    assert Counter(drive.rows) == Counter(expected)


def test_another_store_at_the_path(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        fill(opened, 60)
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    drive.run()
    shutil.rmtree(builder.root)
    with builder.open() as opened:
        fill(opened, 100, 4800)
    with pytest.raises(StoreReplaced) as raised:
        drive.step()
    assert raised.value.path == builder.root
    drive.restart()
    with pytest.raises(StoreReplaced):
        drive.step()
    seen = len(drive.rows)
    drive.restart(failOnDataLoss="false")
    drive.run()
    assert Counter(drive.rows[seen:]) == Counter(visible(builder.root))
    drive.restart(failOnDataLoss="true")
    assert drive.step() == 0


def test_another_store_before_a_planned_batch_is_read(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        fill(opened, 60)
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    end = drive.plan()
    shutil.rmtree(builder.root)
    with builder.open() as opened:
        fill(opened, 100, 4800)
    drive.restart()
    with pytest.raises(StoreReplaced):
        drive.read(end)


def test_an_end_that_a_crash_took_back(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    """Under ASYNC_FLUSH a machine that stops may lose what was shown; that is said, and not passed over."""
    with builder.open() as opened:
        fill(opened, 30)
    frames = frames_of(builder.root)
    drive = Drive(builder.root, startingOffsets="earliest", **mode)
    drive.run()
    path = builder.root / "commitlog" / "0".zfill(20)
    data = path.read_bytes()
    path.write_bytes(data[: frames[9].physical_offset].ljust(len(data), b"\0"))
    for later in sorted((builder.root / "commitlog").iterdir())[1:]:
        later.unlink()
    drive.restart()
    with pytest.raises(DataLost):
        drive.step()
    with builder.open() as opened:
        fill(opened, 64, 4800)
    drive.restart()
    with pytest.raises(DataLost):
        drive.step()
    drive.restart(failOnDataLoss="false")
    seen = len(drive.rows)
    drive.run()
    assert drive.rows[seen:]
    assert set(drive.rows[seen:]) <= set(visible(builder.root))
    drive.restart(failOnDataLoss="true")
    assert drive.step() == 0


def test_a_topic_that_begins_anew(builder: StoreBuilder, store: MessageStore) -> None:
    drive = Drive(builder.root, startingOffsets="earliest", topic="gone")
    store.append_many([Message("gone", b"old %d" % n) for n in range(9)])
    assert drive.step() == 9
    store.wait_for_dispatch()
    assert store.engine.queues is not None
    store.engine.queues.discard("gone", 0)
    store.engine.writer.adopt_offsets([("gone", 0, 0)])
    store.append_many([Message("gone", b"new %d" % n) for n in range(4)])
    with pytest.raises(DataLost) as raised:
        drive.step()
    assert "gone queue 0" in str(raised.value)
    drive.restart(failOnDataLoss="false")
    assert drive.step() == 4
    assert [row[3] for row in drive.rows[9:]] == [b"new %d" % n for n in range(4)]


def test_a_store_that_is_not_there_any_more(tmp_path: Path, mode: dict[str, Any]) -> None:
    for name in ("broker-a", "broker-b"):
        with StoreBuilder(tmp_path / name, **numbered.TINY).open() as opened:
            fill(opened, 20)
    drive = Drive(tmp_path / "broker-*", startingOffsets="earliest", **mode)
    drive.run()
    shutil.rmtree(tmp_path / "broker-b")
    drive.restart()
    with pytest.raises(DataLost) as raised:
        drive.step()
    assert "broker-b" in str(raised.value)
    drive.restart(failOnDataLoss="false")
    assert drive.step() == 0


def test_damage_is_as_the_options_have_it(builder: StoreBuilder, mode: dict[str, Any]) -> None:
    with builder.open() as opened:
        opened.append_many([Message("t", b"body %d" % n) for n in range(20)])
    frames = frames_of(builder.root)
    with (builder.root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(frames[5].physical_offset + 90)
        file.write(b"#")
    drive = Drive(builder.root, startingOffsets="earliest", onCorrupt="skip", **mode)
    drive.run()
    assert len(drive.rows) == 19
    drive = Drive(builder.root, startingOffsets="earliest", onCorrupt="rows", **mode)
    drive.run()
    assert len(drive.rows) == 20
    assert sum(row[0] is None for row in drive.rows) == 1


# -- bad input -----------------------------------------------------------------------------------------------


def test_mistakes_show_before_anything_is_read(builder: StoreBuilder, tmp_path: Path) -> None:
    with builder.open() as opened:
        opened.append(Message("orders", b"x"))
    with pytest.raises(TopicUnknown) as unknown:
        Drive(builder.root, topic="oders").begin()
    assert unknown.value.nearest == ("orders",)
    with pytest.raises(StorePathInvalid):
        Drive(tmp_path / "missing").begin()
    with pytest.raises(OptionInvalid):
        Drive(builder.root, endingOffsets="latest")
    with pytest.raises(OptionInvalid):
        Drive(builder.root, maxOffsetsPerTriger=5)
    with pytest.raises(OptionInvalid):
        Drive(builder.root, startingOffsets='{"orders": {"0": 99}}').begin()
    with pytest.raises(OptionInvalid):
        Drive(builder.root, startingTimestamp=1_700_000_000)
    Drive(builder.root, subscribePattern="nothing yet.*").begin()
