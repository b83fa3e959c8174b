"""Rates and lags of a store, from outside."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StorePathInvalid
from embermq.files import DiskUsage
from embermq.inspect.rates import Glance, Watch, rates_between
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=400,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)
STILL = Glance(
    seconds=10.0,
    log_min=0,
    log_end=1000,
    topics={"a": 10, "b": 5},
    queues=2,
    dispatched=900,
    flushed=800,
    checkpoint_behind_ms=None,
    newest_store_ms=1,
    segments=1,
    spare_segments=0,
    disk=DiskUsage(100, 50, 50),
    writer_pid=None,
)


def test_rates() -> None:
    later = replace(STILL, seconds=12.0, log_end=3000, topics={"a": 10, "b": 9, "c": 20})
    rates = rates_between(STILL, later)
    assert rates.bytes == 1000
    assert rates.messages == 12
    assert list(rates.topics.items()) == [("c", 10.0), ("b", 2.0)]


def test_a_store_that_was_replaced_counts_as_still() -> None:
    rates = rates_between(STILL, replace(STILL, log_end=0, topics={"a": 1}))
    assert (rates.messages, rates.bytes, rates.topics) == (0, 0, {})


def test_lags() -> None:
    assert STILL.dispatch_behind_bytes == 100
    assert STILL.flush_behind_bytes == 200
    assert replace(STILL, flushed=None).flush_behind_bytes is None
    assert replace(STILL, dispatched=5000).dispatch_behind_bytes == 0
    assert STILL.messages == 15


def test_a_running_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(Message("t", b"x"))
        store.wait_for_dispatch()
        watch = Watch(tmp_path / "store")
        before = watch.look()
        for number in range(99):
            store.append(Message("t", bytes(100), queue_id=number % 3))
        newest = store.append(Message("t", bytes(100)))
        store.flush()
        store.wait_for_dispatch()
        after = watch.look()
        assert after.messages - before.messages == 100
        assert after.log_end == store.max_physical
        assert after.flush_behind_bytes == 0
        assert after.newest_store_ms == newest.store_timestamp
        assert after.segments > before.segments
        assert after.queues == 3
        assert after.writer_pid == os.getpid()
        assert 0 < after.disk.used_ratio <= 1
        assert rates_between(before, after).topics.keys() == {"t"}
    assert watch.look().writer_pid is None


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_a_store_of_rocketmq_at_rest(name: str, tmp_path: Path) -> None:
    path = golden.restore(name, tmp_path)
    before = golden.tree_state(path)
    glance = Watch(path).look()
    records = [record for record in golden.manifest(name).records if not record.blank]
    assert glance.log_end == records[-1].phy + records[-1].size
    assert glance.flushed is None
    assert glance.newest_store_ms == max(record.store_timestamp for record in records if not record.sys_flag & 4)
    if name in golden.CLEAN_STORES:
        assert glance.dispatch_behind_bytes == 0
        assert glance.checkpoint_behind_ms is not None
    assert golden.tree_state(path) == before, "watching writes nothing"


def test_queues_of_rocketmq_that_are_behind(tmp_path: Path) -> None:
    """The last entries of some queues are taken away, as if they were not dispatched yet."""
    path = golden.restore("basic", tmp_path)
    records = [record for record in golden.manifest("basic").records if not record.blank]
    gone = records[-7:]
    for record in gone:
        file = path / "consumequeue" / record.topic / str(record.queue_id) / "00000000000000000000"
        raw = bytearray(file.read_bytes())
        raw[record.queue_offset * 20 : record.queue_offset * 20 + 20] = bytes(20)
        file.write_bytes(raw)
    glance = Watch(path).look()
    last = records[-8]
    assert glance.dispatched == last.phy + last.size
    assert glance.dispatch_behind_bytes == glance.log_end - glance.dispatched > 0


def test_an_empty_store(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store", SMALL).close()
    glance = Watch(tmp_path / "store").look()
    assert (glance.messages, glance.queues, glance.newest_store_ms) == (0, 0, None)
    assert glance.dispatch_behind_bytes == 0


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid):
        Watch(tmp_path / "missing")
