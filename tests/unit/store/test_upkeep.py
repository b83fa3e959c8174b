"""What a broker asks of a store now and then."""

from pathlib import Path

import pytest

from embermq import Message
from embermq.errors import StoreClosed, StoreReadOnly
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from embermq.store.services import TopicPuts
from embermq.testing import ManualClock
from embermq.testing.builder import StoreBuilder
from tests.crash.numbered import TINY


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", clock=ManualClock(), **TINY)


def test_unused_topics_go_and_the_stores_own_stay(builder: StoreBuilder) -> None:
    with builder.open() as store:
        for topic in ("live", "gone", "%RETRY%gone", HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC):
            store.internal.append(Message(topic, b"x"))
        assert sorted(store.clean_unused_topics({"live"})) == ["%RETRY%gone", "gone"]
        assert set(store.topics()) == {"live", HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC}
        assert store.clean_unused_topics({"live"}) == []
        assert store.append(Message("gone", b"y")).queue_offset == 0, "it begins again"
    with builder.open() as store:
        assert set(store.topics()) == {"live", "gone", HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC}


def test_expired_queues_go_and_keep_their_numbers(builder: StoreBuilder) -> None:
    with builder.open() as store:
        for _ in range(3):
            store.append(Message("old", b"x"))
        for _ in range(200):
            store.append(Message("new", bytes(200)))
        assert store.wait_for_dispatch()
        assert store.clean_expired_queues() == []
        builder.clock.advance(s=100)  # type: ignore[attr-defined]
        assert store.delete_expired(before_ms=builder.clock.now_ms()).segments > 0
        assert store.clean_expired_queues() == [("old", 0)]
        assert not (builder.root / "consumequeue" / "old" / "0").exists()
        assert "old" not in store.topics()
        assert store.clean_expired_queues() == []
    with builder.open() as store:
        assert store.append(Message("old", b"y")).queue_offset == 3
        assert [one.body for one in store.fetch("old", 0, 3).messages] == [b"y"]


def test_ids_of_a_stretch_of_a_queue(builder: StoreBuilder) -> None:
    with builder.open() as store:
        for number in range(30):
            store.append(Message("T", b"%d" % number))
        found = store.message_ids("T", 0, 5, 25)
        assert list(found.values()) == list(range(5, 25))
        for identity, offset in found.items():
            message = store.get(identity)
            assert message is not None
            assert message.queue_offset == offset
        assert len(store.message_ids("T", 0, -3, 1000)) == 30
        assert store.message_ids("T", 0, 30, 40) == store.message_ids("unknown", 0, 0, 9) == {}


def test_put_totals_by_topic(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append(Message("before", b"x"))
    with builder.open() as store:
        assert store.put_totals() == {}
        sizes = [store.append(Message("T", bytes(number), queue_id=number % 3)).size for number in range(20)]
        other = store.append(Message("before", b"x")).size
        expected = {"T": TopicPuts(20, sum(sizes)), "before": TopicPuts(1, other)}
        assert store.put_totals() == store.put_totals() == expected
        more = store.append(Message("T", b"y")).size
        assert store.put_totals()["T"] == TopicPuts(21, sum(sizes) + more)
        store.delete_topic("T")
        store.append(Message("T", b"y"))
        assert store.put_totals()["T"].count == 22


def test_is_it_on_disk(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    with builder.open() as store:
        for _ in range(20):
            store.append(Message("T", bytes(100)))
        assert not store.check_in_disk_by_consume_offset("T", 0, 0)
        assert not store.check_in_disk_by_consume_offset("T", 0, 99)
        monkeypatch.setattr(store.engine.fetcher, "_recent_bytes", 500)
        assert store.check_in_disk_by_consume_offset("T", 0, 0)
        assert not store.check_in_disk_by_consume_offset("T", 0, 19)


def test_private_buffers_that_are_all_in_use(builder: StoreBuilder) -> None:
    with builder.open() as store:
        assert not store.is_transient_pool_deficient
    pooled = builder.changed(transient_pool=True, transient_pool_buffers=1)
    with pooled.open() as store:
        assert not store.is_transient_pool_deficient
        store.append(Message("T", bytes(200)))
        assert store.is_transient_pool_deficient, "the file that is written has it"


def test_running_data_as_text(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append(Message("T", b"x"))
        lines = dict(line.split(": ", 1) for line in store.running_data_info().splitlines())
        assert lines["putMessageTimesTotal"] == "1"
        assert lines["commitLogMinOffset"] == "0"


def test_a_destroyed_store_leaves_config_and_foreign_files(builder: StoreBuilder) -> None:
    with builder.open() as store:
        for _ in range(100):
            store.append(Message("T", bytes(200), keys="k"))
        assert store.wait_for_dispatch()
        (builder.root / "config").mkdir(exist_ok=True)
        (builder.root / "config" / "topics.json").write_text("{}")
        (builder.root / "index" / "notes.txt").write_text("mine")
        (builder.root / "mine.txt").write_text("mine")
        assert store.destroy() == [builder.root / "index" / "notes.txt"]
        with pytest.raises(StoreClosed):
            store.append(Message("T", b"x"))
        with pytest.raises(StoreClosed):
            store.destroy()
    left = {path.relative_to(builder.root).as_posix() for path in builder.root.rglob("*") if path.is_file()}
    assert left == {"config/topics.json", "index/notes.txt", "mine.txt", "lock"}
    with builder.open() as store:
        assert store.append(Message("T", b"x")).physical_offset == 0
    with builder.open(read_only=True) as reader, pytest.raises(StoreReadOnly):
        reader.destroy()
