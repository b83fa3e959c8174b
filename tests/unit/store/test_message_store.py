"""The public API: what a user sees of a store, in the order they would meet it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from embermq import (
    Arrival,
    BatchItem,
    BrokerRole,
    FetchStatus,
    FlushDisk,
    Host,
    Message,
    MessageBatch,
    MessageStore,
    PutStatus,
    StorePlugin,
    StoreSettings,
    errors,
)
from embermq.columns.rows import RecordColumns
from embermq.testing import FaultyFiles, LossyFiles, ManualClock

SMALL = {
    "segment_bytes": 64 << 10,
    "queue_file_bytes": 20 * 50,
    "index_slots_max": 100,
    "index_entries_max": 400,
    "kernels": "never",
    "disk_full_percent": 100,
}


def small(**changes: object) -> StoreSettings:
    return StoreSettings(**{**SMALL, **changes})  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", small()) as opened:
        yield opened


def order(number: int, **fields: object) -> Message:
    values = {"topic": "orders", "body": b"order %d" % number, "tags": "paid", "keys": [f"o-{number}"], **fields}
    return Message(**values)  # type: ignore[arg-type]


# -- appending and reading back ----------------------------------------------------------------------------


def test_a_message_reads_back_with_all_its_fields(store: MessageStore) -> None:
    born = Host("10.1.2.3", 4567)
    receipt = store.append(
        order(1, properties={"region": "eu"}, queue_id=3, flag=7, born_timestamp=123, born_host=born, reconsume_times=2)
    )
    assert receipt.ok
    assert receipt.status == "PUT_OK"
    (message,) = store.fetch("orders", 3, offset=0).messages
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 0)
    assert (message.body, message.payload, message.tags, message.keys) == (b"order 1", b"order 1", "paid", ["o-1"])
    assert message.properties == {"region": "eu", "TAGS": "paid", "KEYS": "o-1"}
    assert (message.flag, message.born_timestamp, message.born_host, message.reconsume_times) == (7, 123, born, 2)
    assert message.message_id == receipt.message_id
    assert message.store_timestamp == receipt.store_timestamp
    assert store.get(receipt.message_id) == store.at(receipt.physical_offset) == message


def test_what_was_appended_is_seen_at_once_by_every_kind_of_read(store: MessageStore) -> None:
    for number in range(300):
        receipt = store.append(order(number))
        assert store.max_offset("orders", 0) == number + 1
        assert [m.physical_offset for m in store.find("orders", f"o-{number}")] == [receipt.physical_offset]
    assert store.topics() == {"orders": [0]}
    assert store.message_count("orders", 0) == 300
    assert [m.queue_offset for m in store.scan()] == list(range(300))


def test_many_are_stored_in_order_and_a_bad_one_stores_none(store: MessageStore) -> None:
    receipts = store.append_many(order(number, queue_id=number % 2) for number in range(10))
    assert [receipt.queue_offset for receipt in receipts] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    before = store.max_physical
    with pytest.raises(errors.TopicNameInvalid):
        store.append_many([order(1), order(2, topic="no/slash"), order(3)])
    assert store.max_physical == before
    assert store.append_many([]) == []


@pytest.mark.parametrize("kernels", ["never", "always"])
def test_many_by_kernel_and_by_plain_code_give_the_same_bytes(tmp_path: Path, kernels: str) -> None:
    messages = [
        Message(f"topic-{n % 3}", b"x" * (n * 7 % 400), ["a", None, "Käse"][n % 3], ["k", "l"][: n % 3], queue_id=n % 2)
        for n in range(400)
    ]
    plain, fast = tmp_path / "plain", tmp_path / kernels
    for path, settings in ((plain, small()), (fast, small(kernels=kernels))):
        with MessageStore.open(path, settings, clock=ManualClock()) as store:
            for topic in ("topic-0", "topic-1", "topic-2"):
                store.append(Message(topic, b"first"))
            ordinary = [message for message in messages if message.tags != "Käse"]
            receipts = list(store.append_many(ordinary)) + list(store.append_many(messages))
            assert [r.physical_offset for r in receipts] == [m.physical_offset for m in store.scan()][3:]
    for name in sorted(file.name for file in (plain / "commitlog").iterdir()):
        assert (plain / "commitlog" / name).read_bytes() == (fast / "commitlog" / name).read_bytes()


def test_a_batch_lies_side_by_side_in_one_segment(store: MessageStore) -> None:
    store.append(order(0, body=b"x" * 65_000))
    items = [BatchItem(b"item %d" % n, {"TAGS": "t"}) for n in range(5)]
    receipt = store.append_batch(MessageBatch(Message("orders", properties={"CLUSTER": "c"}), items))
    assert receipt.message_count == 5
    assert receipt.physical_offset == 65_536
    ids = receipt.message_id.split(",")
    assert [store.get(one).body for one in ids] == [item.body for item in items]  # type: ignore[union-attr]
    assert store.get(ids[0]).properties == {"TAGS": "t", "CLUSTER": "c"}  # type: ignore[union-attr]
    for bad in (
        MessageBatch(Message("orders"), []),
        MessageBatch(Message("orders", delay_level=1), items),
        MessageBatch(Message("orders", sys_flag=0x4), items),
        MessageBatch(Message("orders"), [BatchItem(b"x" * 40_000)] * 2),
    ):
        with pytest.raises(errors.BatchInvalid):
            store.append_batch(bad)


def test_prepared_and_rolled_back_records_reach_no_queue(store: MessageStore) -> None:
    for sys_flag in (0x4, 0xC, 0x8, 0x0):
        store.append(order(sys_flag, sys_flag=sys_flag))
    assert [m.sys_flag for m in store.fetch("orders", 0, 0).messages] == [0x8, 0x0]
    assert len(list(store.scan())) == 4
    assert len(store.find("orders", "o-4")) == 1  # Prepared ones are indexed,
    assert store.find("orders", "o-12") == []  # rolled-back ones are not.


# -- fetch ---------------------------------------------------------------------------------------------------


def test_every_outcome_of_fetch(store: MessageStore) -> None:
    store.append_many([order(n) for n in range(60)])
    outcome = store.fetch("orders", 0, 0)
    assert (outcome.status, len(outcome.messages), outcome.next_offset) == (FetchStatus.FOUND, 32, 32)
    assert (outcome.min_offset, outcome.max_offset) == (0, 60)
    assert store.fetch("orders", 0, 59).next_offset == 60
    assert store.fetch("orders", 0, 60).status == "OFFSET_OVERFLOW_ONE"
    over = store.fetch("orders", 0, 61)
    assert (over.status, over.next_offset) == ("OFFSET_OVERFLOW_BADLY", 60)
    assert store.fetch("orders", 0, -1).status == "OFFSET_TOO_SMALL"
    assert store.fetch("orders", 9, 0).status == "NO_MESSAGE_IN_QUEUE"
    assert store.fetch("nobody", 0, 5).next_offset == 0
    none = store.fetch("orders", 0, 0, tags="sent")
    assert (none.status, none.messages, none.next_offset) == ("NO_MATCHED_MESSAGE", [], 50)
    assert len(store.fetch("orders", 0, 0, max_messages=0).messages) == 1


def test_tags_that_share_a_hash_are_told_apart_by_text(store: MessageStore) -> None:
    store.append(order(1, tags="Aa"))
    store.append(order(2, tags="BB"))  # The same Java hash.
    assert [m.tags for m in store.fetch("orders", 0, 0, tags="BB").messages] == ["BB"]
    assert len(store.fetch("orders", 0, 0, tags="Aa || BB").messages) == 2


def test_size_limits_end_a_fetch(tmp_path: Path) -> None:
    settings = small(fetch_bytes_max_memory=3000, memory_percent_max=40)
    with MessageStore.open(tmp_path / "s", settings) as store:
        store.append_many([order(n, body=b"x" * 1000) for n in range(10)])
        assert len(store.fetch("orders", 0, 0).messages) == 2
    with MessageStore.open(tmp_path / "s", small(memory_percent_max=0)) as store:
        outcome = store.fetch("orders", 0, 0)  # Nothing counts as recent: the limits for old messages apply.
        assert len(outcome.messages) == 8
        assert outcome.suggest_slave


# -- look-ups ------------------------------------------------------------------------------------------------


def test_find_by_key_time_and_limit(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with MessageStore.open(tmp_path / "s", small(), clock=clock) as store:
        for number in range(200):
            store.append(order(number, keys=["same", f"o-{number}"], properties={"UNIQ_KEY": f"u{number}"}))
            clock.advance(ms=333)
        times = [m.store_timestamp for m in store.find("orders", "same")]
        assert len(times) == 200
        assert times == sorted(times)
        assert [m.store_timestamp for m in store.find("orders", "same", limit=5)] == times[-5:]
        for begin, end in ((times[10], times[20]), (times[10] + 1, times[20] - 1), (0, times[0] - 1)):
            expected = [t for t in times if begin <= t <= end]
            assert [m.store_timestamp for m in store.find("orders", "same", begin, end)] == expected
        assert [m.unique_key for m in store.find("orders", "u7")] == ["u7"]
        assert store.find("other", "same") == []
        assert store.offset_at("orders", 0, times[42]) == 42
        assert store.earliest_time() == store.earliest_time("orders", 0) == times[0]
        assert store.store_time("orders", 0, 42) == times[42]


def test_places_without_a_message(store: MessageStore) -> None:
    receipt = store.append(order(1))
    assert store.at(receipt.physical_offset + 1) is None
    assert store.at(10**12) is None
    assert store.get("7F00000100002A9F00000000FFFFFFFF") is None
    assert store.store_time("orders", 0, 7) == -1
    assert store.physical_offset("nobody", 0, 0) == 0
    with pytest.raises(errors.MessageIdInvalid):
        store.get("what?")
    with pytest.raises(errors.StoreError, match="negative"):
        store.at(-1)


# -- durability ------------------------------------------------------------------------------------------------


def test_sync_flush_acknowledges_only_what_is_flushed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", small(flush=FlushDisk.SYNC)) as store:
        for number in range(20):
            receipt = store.append(order(number))
            assert store.flushed_offset >= receipt.physical_offset + receipt.size
        futures = [store.append_async(order(n)) for n in range(50)]
        wait(futures, timeout=10)
        assert all(future.result().ok for future in futures)
        assert store.append(order(99, wait_for_store=False)).ok


def test_group_commit_serves_many_threads(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", small(flush=FlushDisk.SYNC)) as store:
        receipts: list[int] = []

        def work(number: int) -> None:
            for n in range(10):
                receipts.append(store.append(order(number * 100 + n)).physical_offset)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(receipts)) == 80
        assert store.max_offset("orders", 0) == 80


def test_a_failed_sync_is_never_acknowledged_and_ends_appending(tmp_path: Path) -> None:
    files = FaultyFiles(LossyFiles())
    root = Path("/store")
    store = MessageStore.open(root, small(flush=FlushDisk.SYNC), files=files)
    good = store.append(order(1))
    files.fail("sync", nth=1, path_contains="commitlog")
    with pytest.raises(errors.FlushFailed, match="read-only until it is reopened"):
        store.append(order(2))
    with pytest.raises(errors.FlushFailed):
        store.append(order(3))
    with pytest.raises(errors.FlushFailed):
        store.append_async(order(4))
    assert store.at(good.physical_offset) is not None
    assert store.fetch("orders", 0, 0).next_offset == 1  # What is not durable is not shown.
    files.heal()
    store.close()
    with MessageStore.open(root, small(flush=FlushDisk.SYNC), files=files) as again:
        assert not again.recovery.clean
        assert again.at(good.physical_offset) is not None
        assert again.append(order(5)).ok


class SlowDisk(FaultyFiles):
    """Syncs of log files wait for a gate."""

    def __init__(self) -> None:
        super().__init__(LossyFiles())
        self.gate = threading.Event()
        self.gate.set()

    def count(self, kind: str, path: Path) -> Any:
        if kind == "sync" and "commitlog" in path.parts:
            self.gate.wait(10)
        return super().count(kind, path)


def test_a_slow_disk_gives_a_timeout_not_a_lie() -> None:
    files = SlowDisk()
    settings = small(flush=FlushDisk.SYNC, sync_flush_timeout_ms=50)
    with MessageStore.open(Path("/s"), settings, files=files) as store:
        assert store.append(order(0)).ok  # Makes the first log file, which syncs as well.
        files.gate.clear()
        receipt = store.append(order(1))
        assert receipt.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert not receipt.ok
        files.gate.set()
        assert store.flush() >= receipt.physical_offset + receipt.size


@pytest.mark.parametrize("pool", [False, True])
def test_what_was_appended_survives_a_clean_reopen(tmp_path: Path, pool: bool) -> None:
    settings = small(transient_pool=pool, transient_pool_buffers=3)
    with MessageStore.open(tmp_path / "s", settings) as store:
        ids = [store.append(order(n, body=b"y" * (n % 900))).message_id for n in range(500)]
    assert not (tmp_path / "s" / "abort").exists()
    with MessageStore.open(tmp_path / "s", settings) as store:
        assert store.recovery.clean
        assert store.recovery.findings == []
        assert [store.get(one).body for one in ids] == [b"y" * (n % 900) for n in range(500)]  # type: ignore[union-attr]
        assert store.append(order(500)).queue_offset == 500


def test_private_buffers_are_read_only_after_commit(tmp_path: Path) -> None:
    settings = small(transient_pool=True, commit_interval_ms=60_000, commit_thorough_interval_ms=60_000)
    with MessageStore.open(tmp_path / "s", settings) as store:
        store.append(order(0, body=b"x" * 60_000))
        store.append(order(1, body=b"x" * 60_000))  # Rolls: the full first segment is committed in its time.
        store.flush()
        assert store.max_physical <= store.engine.log.wrote_offset


APPENDS: dict[str, Callable[[MessageStore, Message], object]] = {
    "append": lambda store, message: store.append(message),
    "append_many": lambda store, message: store.append_many([message]),
    "append_many of a list": lambda store, message: store.append_many([message] * 64),
    "append_batch": lambda store, message: store.append_batch(
        MessageBatch(order(0, body=b""), [BatchItem(message.body)])
    ),
    "append_async": lambda store, message: store.append_async(message).result(10),
    "a delivery": lambda store, message: store.internal.append(message, although_full=True),
}


@pytest.mark.parametrize("kind", APPENDS)
@pytest.mark.parametrize("pool", [False, True], ids=["untimed flush", "private buffers"])
def test_every_kind_of_append_wakes_the_flusher(
    tmp_path: Path, kind: str, pool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embermq.store.append.flush.IDLE_SECONDS", 600.0)
    never = 3_600_000
    settings = small(
        segment_bytes=4 << 20,
        flush_timed=pool,
        flush_interval_ms=never,
        transient_pool=pool,
        commit_interval_ms=never,
        commit_thorough_interval_ms=never,
    )
    with MessageStore.open(tmp_path / "s", settings, clock=ManualClock()) as store:
        moved = threading.Event()
        if pool:
            store.append(order(0))  # The first one is committed at once, and not long before the next one.
            store.on_arrival(lambda arrival: moved.set() if arrival.next_offset > 1 else None)
        else:
            monkeypatch.setattr(store.engine.services.flusher, "_on_progress", lambda _flushed: moved.set())
        APPENDS[kind](store, order(1, body=b"x" * 17_000))
        # A long list is written in several runs, each of which wakes the thread that commits or flushes.
        while (store.max_physical if pool else store.flushed_offset) < store.engine.log.wrote_offset:
            assert moved.wait(10)
            moved.clear()


# -- guards ----------------------------------------------------------------------------------------------------


def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    with (
        MessageStore.open(tmp_path / "s", small(role=BrokerRole.SLAVE)) as store,
        pytest.raises(errors.AppendRefused, match="SLAVE") as refused,
    ):
        store.append(order(1))
    assert refused.value.status == "SERVICE_NOT_AVAILABLE"


def test_a_full_disk_refuses_appends_and_takes_them_again(tmp_path: Path) -> None:
    files = LossyFiles(capacity_bytes=10 << 20)
    with MessageStore.open(Path("/s"), small(disk_full_percent=90), files=files) as store:
        assert store.append(order(1)).ok
        files.put(Path("/ballast"), bytes(9 << 20))
        store.engine.services.housekeeping.check_disk()
        with pytest.raises(errors.DiskFull, match="free some space") as refused:
            store.append(order(2))
        assert refused.value.status == "SERVICE_NOT_AVAILABLE"
        assert len(store.fetch("orders", 0, 0).messages) == 1
        files.remove(Path("/ballast"))
        store.engine.services.housekeeping.check_disk()
        assert store.append(order(3)).ok


def test_an_append_that_hangs_turns_others_away(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "s", small(), clock=clock) as store:
        clock.advance(s=1)
        writer = store.engine.writer
        writer.put_lock.lock.acquire()
        began = writer.put_lock.begin()
        assert store.runtime_info()["pageCacheLockTimeMills"] == "0"
        clock.advance(s=1.5)
        assert store.runtime_info()["pageCacheLockTimeMills"] == "1500"
        with pytest.raises(errors.PageCacheBusy) as busy:
            store.append(order(1))
        assert busy.value.status == "OS_PAGECACHE_BUSY"
        writer.put_lock.finish(began, 0, 0)
        writer.put_lock.lock.release()
        assert store.append(order(1)).ok


def test_after_close_every_call_says_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", small())
    store.close()
    store.close()
    for call in (
        lambda: store.append(order(1)),
        lambda: store.fetch("orders", 0, 0),
        lambda: store.topics(),
        lambda: store.at(0),
        lambda: store.flush(),
        lambda: store.stats(),
        lambda: store.wait_for_dispatch(),
    ):
        with pytest.raises(errors.StoreClosed, match="is closed"):
            call()


@pytest.mark.parametrize("read_only", [False, True])
def test_closed_in_the_middle_of_a_scan(tmp_path: Path, read_only: bool) -> None:
    with MessageStore.open(tmp_path / "s", small()) as store:
        store.append_many([order(n) for n in range(10)])
    store = MessageStore.open(tmp_path / "s", small(), read_only=read_only)
    scan = store.scan()
    assert next(scan).body == b"order 0"
    store.close()
    with pytest.raises(errors.StoreClosed):
        next(scan)


@pytest.mark.parametrize("wrong", [1.5, 2**63, -(2**63) - 1, "now"], ids=repr)
def test_a_time_that_is_none_leaves_nothing_behind(store: MessageStore, wrong: Any) -> None:
    store.append(order(0))  # The queue is known: the short way is open.
    bad = Message("orders", b"x", born_timestamp=wrong)
    batch = MessageBatch(Message("orders", b"", born_timestamp=wrong), [BatchItem(b"y")])
    for call in (
        lambda: store.append(bad),
        lambda: store.append_many([order(1), order(2), bad]),
        lambda: store.append_many([*(order(n) for n in range(300)), bad]),
        lambda: store.append_batch(batch),
        lambda: store.append_async(bad).result(10),
    ):
        with pytest.raises(errors.MessageRejected, match="born_timestamp"):
            call()
    assert store.max_offset("orders", 0) == 1
    assert store.append(order(1)).queue_offset == 1


def test_an_id_of_no_place(store: MessageStore) -> None:
    store.append(order(0))
    assert store.get("7F00000100002A9F" + 16 * "F") is None


# -- what can be plugged in --------------------------------------------------------------------------------------


def test_read_only_reads_a_store_that_is_open_elsewhere_and_refuses_to_write(store: MessageStore) -> None:
    store.append_many([order(n) for n in range(100)])
    with MessageStore.open(store.path, small(), read_only=True) as reader:
        assert reader.max_offset("orders", 0) == 100
        assert [m.body for m in reader.find("orders", "o-77")] == [b"order 77"]
        for call in (lambda: reader.append(order(1)), lambda: reader.append_many([order(1)]), lambda: reader.flush()):
            with pytest.raises(errors.StoreReadOnly):
                call()


class Counting:
    """A sink of a user's own."""

    name = "counting"

    def __init__(self) -> None:
        self.position = 0
        self.topics: list[str] = []
        self.flushes = 0

    def take(self, batch: RecordColumns, end: int) -> None:
        self.topics += [batch.topic(i) for i in range(len(batch))]
        self.position = end

    def flush(self) -> None:
        self.flushes += 1

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        self.flushes += 100


class Failing(Counting):
    name = "failing"

    def take(self, batch: RecordColumns, end: int) -> None:
        raise OSError("no room")


def test_a_users_sink_sees_every_record_and_a_failing_one_hurts_nobody(tmp_path: Path) -> None:
    counting, failing = Counting(), Failing()
    with MessageStore.open(tmp_path / "s", small(), sinks=[failing, counting]) as store:
        store.append_many([order(n) for n in range(10)])
        assert store.wait_for_dispatch()
        assert counting.topics == ["orders"] * 10
        assert counting.position == store.max_physical
        assert len(store.fetch("orders", 0, 0).messages) == 10
    assert counting.flushes == 101


class Raising(Counting):
    """Not even an OSError."""

    name = "raising"

    def take(self, batch: RecordColumns, end: int) -> None:
        raise ValueError("a mistake of the user's")


def test_a_sink_that_raises_whatever_it_is_hurts_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting()
    with MessageStore.open(tmp_path / "s", small(), sinks=[Raising(), counting]) as store:
        for n in range(3):
            store.append(order(n))
            assert store.wait_for_dispatch()
        assert counting.topics == ["orders"] * 3
        assert store.max_offset("orders", 0) == 3
    assert caplog.text.count("a mistake of the user's") >= 1


def test_a_listener_that_raises_hurts_nobody(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def fail(arrival: Arrival) -> None:
        if arrival.next_offset != 3:
            raise ValueError(f"at {arrival.next_offset}")

    stop = store.on_arrival(fail)
    store.on_arrival(lambda arrival: heard.append(arrival.next_offset))
    for n in range(5):
        assert store.append(order(n)).ok
    assert store.wait_for_dispatch()
    assert heard == [1, 2, 3, 4, 5]
    assert store.max_offset("orders", 0) == len(store.fetch("orders", 0, 0).messages) == 5
    assert caplog.text.count("arrival listener failed") == 2  # At the first, and again after one that went well.
    stop()
    store.append(order(5))
    assert store.wait_for_dispatch()
    assert caplog.text.count("arrival listener failed") == 2


def test_arrivals_are_announced_after_they_can_be_fetched(store: MessageStore) -> None:
    seen: list[tuple[Arrival, bool]] = []
    arrived = threading.Event()

    def listen(arrival: Arrival) -> None:
        assert store.engine.queues is not None
        queue = store.engine.queues.find(arrival.topic, arrival.queue_id)
        seen.append((arrival, queue is not None and queue.max_offset == arrival.next_offset))
        arrived.set()

    stop = store.on_arrival(listen)
    store.append(order(1))
    assert arrived.wait(5)
    (arrival, visible) = seen[0]
    assert (arrival.topic, arrival.queue_id, arrival.next_offset, visible) == ("orders", 0, 1, True)
    assert b"TAGS\x01paid" in arrival.property_bytes
    stop()
    store.append(order(2))
    store.wait_for_dispatch()
    assert len(seen) == 1


def test_the_log_alone_keeps_queue_offsets_across_reopens(tmp_path: Path) -> None:
    for opened in range(3):
        with MessageStore.open(tmp_path / "s", small(), dispatch="none") as store:
            offsets = [store.append(order(n, queue_id=n % 2)).queue_offset for n in range(10)]
            assert offsets == [opened * 5 + n // 2 for n in range(10)]
            assert store.topics() == {}
            with pytest.raises(errors.StoreError, match="no index"):
                store.find("orders", "o-1")
    assert not any((tmp_path / "s" / "consumequeue").iterdir())
    with MessageStore.open(tmp_path / "s", small()) as store:
        assert store.max_offset("orders", 1) == 15
        assert len(store.find("orders", "o-3")) == 3


class Shouting(StorePlugin):
    def append(self, message: Message) -> object:
        return self.next_store.append(Message(message.topic, message.body.upper()))


def test_plugins_wrap_the_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", small(), plugins=[Shouting]) as store:
        store.append(Message("t", b"quiet"))
        assert [m.body for m in store.fetch("t", 0, 0).messages] == [b"QUIET"]


def test_delayed_messages_are_parked_delivered_and_not_delivered_again(tmp_path: Path) -> None:
    settings = small(delay_levels="1s 5s")
    clock = ManualClock(1_700_000_000_000)
    with MessageStore.open(tmp_path / "s", settings, clock=clock) as store:
        store.append(order(1, delay_level=1, queue_id=2))
        store.append(order(2, delay_level=99))
        assert store.topics() == {"SCHEDULE_TOPIC_XXXX": [0, 1]}
        clock.advance(s=1)
        assert store.engine.services.delayed is not None
        store.engine.services.delayed.deliver_due(clock.now_ms())
        (message,) = store.fetch("orders", 2, 0).messages
        assert message.body == b"order 1"
        assert message.properties["REAL_TOPIC"] == "orders"
    with MessageStore.open(tmp_path / "s", settings, clock=clock) as store:
        clock.advance(s=10)
        assert store.engine.services.delayed is not None
        store.engine.services.delayed.deliver_due(clock.now_ms())
        assert store.max_offset("orders", 2) == 1
        assert [m.body for m in store.fetch("orders", 0, 0).messages] == [b"order 2"]


def test_figures(store: MessageStore) -> None:
    store.append_many([order(n) for n in range(7)])
    store.wait_for_dispatch()
    stats = store.stats()
    assert (stats.put_count, stats.topics, stats.queues, stats.dispatch_behind_bytes) == (7, 1, 1, 0)
    assert stats.put_bytes == stats.max_physical
    info = store.runtime_info()
    assert info["putMessageTimesTotal"] == "7"
    assert info["commitLogMaxOffset"] == str(store.max_physical)
    assert all(isinstance(value, str) for value in info.values())


@pytest.mark.parametrize("count", [64, 65, 129, 300])
@pytest.mark.slow
def test_any_number_of_queues_is_there_again(tmp_path: Path, count: int) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        store.append_many(Message(f"t{number % 7}", b"x", queue_id=number) for number in range(count))
    for _ in range(2):
        with MessageStore.open(tmp_path, small()) as store:
            receipts = [store.append(Message(f"t{number % 7}", b"y", queue_id=number)) for number in range(count)]
        offsets = {receipt.queue_offset for receipt in receipts}
        assert len(offsets) == 1, "each queue goes on where it was"
    with MessageStore.open(tmp_path, small(), read_only=True) as store:
        assert all(store.message_count(f"t{number % 7}", number) == 3 for number in range(count))
