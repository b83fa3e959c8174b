"""Delayed messages through a whole store: parked, delivered, and the same bytes as RocketMQ leaves."""

import threading
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.settings import FlushDisk
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.testing.clock import ManualClock

SMALL = StoreSettings(
    segment_bytes=1 << 20,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


def wait_for_arrival(store: MessageStore, topic: str) -> threading.Event:
    arrived = threading.Event()
    store.on_arrival(lambda arrival: arrived.set() if arrival.topic == topic else None)
    return arrived


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_delayed_message_comes_when_it_is_due(tmp_path: Path, flush: FlushDisk) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(flush=flush), clock=clock) as store:
        arrived = wait_for_arrival(store, "orders")
        message = Message("orders", b"later", tags="paid", keys=["o-1"], queue_id=2, delay_level=1)
        assert store.append(message).ok
        assert store.fetch("orders", 2, 0).messages == []
        [parked] = store.fetch(SCHEDULE_TOPIC, 0, 0).messages
        clock.advance(ms=999)
        assert not arrived.wait(0.25)
        clock.advance(ms=1)
        assert arrived.wait(10)
        [delivered] = store.fetch("orders", 2, 0).messages
        assert (delivered.body, delivered.tags, delivered.keys) == (b"later", "paid", ["o-1"])
        assert delivered.property_bytes == parked.property_bytes
        assert delivered.born_timestamp == parked.born_timestamp
        assert delivered.store_timestamp == clock.now_ms()
        assert [one.body for one in store.find("orders", "o-1")] == [b"later"]
        assert [one.tags for one in store.fetch("orders", 2, 0, tags="paid").messages] == ["paid"]
        assert store.runtime_info()["scheduleMessageOffset_1"] == "1,1"


@pytest.mark.slow
def test_a_look_passes_over_no_other_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten looks a second must not cost more because the store has many queues."""
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        store.append_many([Message(f"topic-{n}", b"x") for n in range(40)])
        store.append(Message("orders", b"later", delay_level=1))
        store.append(Message("orders", b"much later", delay_level=3))
        assert store.wait_for_dispatch(10)
        store.engine.services.housekeeping.stop()  # It lists all queues now and then, as it should.
        listings: list[str] = []
        for name in ("all", "topics"):
            monkeypatch.setattr(ConsumeQueues, name, lambda _queues, name=name: listings.append(name))
        arrived = wait_for_arrival(store, "orders")
        clock.advance(s=1)
        assert arrived.wait(10)
        assert listings == []
        monkeypatch.undo()
        assert store.engine.queues is not None
        assert store.engine.queues.ids_of(SCHEDULE_TOPIC) == store.topics()[SCHEDULE_TOPIC] == [0, 2]


@pytest.mark.slow
def test_what_is_parked_survives_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        store.append(Message("orders", b"later", delay_level=2))
    clock.advance(s=5)
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        assert wait_for_arrival(store, "orders").wait(10) or store.fetch("orders", 0, 0).messages
        [delivered] = store.fetch("orders", 0, 0).messages
        assert delivered.body == b"later"


def test_what_became_due_by_a_moved_clock_is_delivered_on_request(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        assert store.deliver_due()  # Nothing is parked.
        store.append_many([Message("orders", b"%d" % n, delay_level=1 + n % 3) for n in range(30)])
        assert store.deliver_due()
        assert store.fetch("orders", 0, 0).messages == []
        clock.advance(s=5)
        assert store.deliver_due()
        assert len(store.fetch("orders", 0, 0).messages) == 20
        clock.advance(s=5)
        assert store.deliver_due()
        assert len(store.fetch("orders", 0, 0).messages) == 30


def test_what_the_store_refuses_now_is_delivered_on_the_next_request(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        store.append(Message("orders", b"later", delay_level=1))
        store.set_writable(False)
        clock.advance(s=1)
        assert store.deliver_due()
        assert store.fetch("orders", 0, 0).messages == []
        store.set_writable(True)
        assert store.deliver_due()
        assert [one.body for one in store.fetch("orders", 0, 0).messages] == [b"later"]


def test_a_request_waits_no_longer_than_asked(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL, clock=ManualClock()) as store:
        assert not store.deliver_due(0.0)


def test_a_store_that_delivers_nothing_has_nothing_due(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(delayed_delivery=False), clock=clock) as store:
        store.append(Message("orders", b"later", delay_level=1))
        clock.advance(s=1)
        assert store.deliver_due(0.0)
